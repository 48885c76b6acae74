"""Watching a model attend: weights come out under the module's own name, at no cost when nobody watches.

    with record_attention(model, only="decoder.*cross*") as maps:
        model(source, target)
    maps["decoder.layers.0.cross_attention"]      # one tensor of weights per call

The output does not change by being watched: an attention module computes its result by the route it would have taken anyway and,
only while watched, hands over its weights as well. Nothing is stored on a module. The list of watchers lives in a context variable,
so another thread that runs the same model is not recorded.

Axis legend: B batch, H heads, Q queries, K keys.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn


class Recording(Mapping[str, list[Tensor]]):
    """The weights of each attention module by its path, in order of its calls, each (B, Q, K) or (B, H, Q, K)."""

    def __init__(self, names: dict[int, str]):
        self._names = names
        self._calls: dict[str, list[Tensor]] = {}

    def add(self, module: nn.Module, weights: Tensor) -> None:
        name = self._names.get(id(module))
        if name is not None:
            self._calls.setdefault(name, []).append(weights.detach())

    def knows(self, module: nn.Module) -> bool:
        return id(module) in self._names

    def joined(self, name: str) -> Tensor:
        """All calls of one module as one map over queries; keys that a call did not have yet get weight 0."""
        calls = self[name]
        longest = max(weights.shape[-1] for weights in calls)
        padded = [nn.functional.pad(weights, (0, longest - weights.shape[-1])) for weights in calls]
        return torch.cat(padded, dim=-2)

    def __getitem__(self, name: str) -> list[Tensor]:
        if name not in self._calls:
            recorded = ", ".join(self._calls) or "nothing"
            raise KeyError(f"no attention was recorded under {name!r}; recorded: {recorded}")
        return self._calls[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._calls)

    def __len__(self) -> int:
        return len(self._calls)


_watching: ContextVar[tuple[Recording, ...]] = ContextVar("saccade_watching", default=())


@contextmanager
def record_attention(model: nn.Module, only: str = "*") -> Iterator[Recording]:
    """Record every attention module of `model` whose path matches the pattern `only`. A compiled model runs uncompiled meanwhile."""
    names = {
        id(module): _readable(name) for name, module in model.named_modules() if fnmatchcase(_readable(name), only)
    }
    recording = Recording(names)
    token = _watching.set((*_watching.get(), recording))
    try:
        with torch.compiler.set_stance("force_eager"):
            yield recording
    finally:
        _watching.reset(token)


def is_watched(module: nn.Module) -> bool:
    """Whether somebody wants the weights of this module now. Compiled and exported graphs never record."""
    if torch.compiler.is_compiling():
        return False
    return any(recording.knows(module) for recording in _watching.get())


def record(module: nn.Module, weights: Tensor) -> None:
    """Hand the weights (before any dropout) to everybody who watches this module."""
    for recording in _watching.get():
        recording.add(module, weights)


def _readable(name: str) -> str:
    """The module's path without what torch.compile and DistributedDataParallel put into it."""
    return ".".join(part for part in name.split(".") if part not in ("_orig_mod", "module"))
