"""Recording what a model attends to: weights by the module's own path, at no cost while nothing records.

    with record_attention(model, only="decoder.*cross*") as maps:
        model(source, target)
    maps["decoder.layers.0.cross_attention"]      # one tensor of weights per call

Recording does not change the output: an attention module computes its result by the route it would have taken anyway and, only while
it is recorded, computes its weights as well. Nothing is stored on a module. The list of recordings lives in a context variable, so another
thread that runs the same model is not recorded.

Axis legend: B batch, H heads, Q queries, K keys.
"""

import sys
import warnings
from collections.abc import Container, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from fnmatch import fnmatchcase
from threading import Lock

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


class Recording(Mapping[str, list[Tensor]]):
    """The weights of each attention module by its path, in order of its calls, each (B, Q, K) or (B, H, Q, K)."""

    def __init__(self, names: dict[int, str]):
        self._names = names
        self._calls: dict[str, list[Tensor]] = {}

    def add(self, module: nn.Module, weights: Tensor) -> None:
        name = self._names.get(id(module))
        if name is not None:
            # A copy where backward will read the weights again: whoever keeps a recording may change it.
            copy = weights.detach().clone() if torch.is_grad_enabled() else weights.detach()
            self._calls.setdefault(name, []).append(copy)

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


class _Uncompiled:
    """Compiled models run eagerly from the first user's entry to the last one's exit: the compiler has one stance for all threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._inside = 0
        self._stance = ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            # A process that never loaded the compiler has compiled nothing, and loading it takes seconds.
            if _compiler_is_loaded():
                self._stance.enter_context(torch.compiler.set_stance("force_eager"))
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._stance.close()


def _compiler_is_loaded() -> bool:
    return "torch._dynamo" in sys.modules


def _compiler_was_used() -> bool:
    return _compiler_is_loaded() and torch._dynamo.utils.counters["frames"]["total"] > 0


uncompiled = _Uncompiled()
_watching: ContextVar[tuple[Recording, ...]] = ContextVar("saccade_watching", default=())


@contextmanager
def record_attention(model: nn.Module, only: str | Container[str] = "*") -> Iterator[Recording]:
    """Record every attention module of `model` whose path matches the pattern `only`, or is one of several paths. A compiled model runs
    eagerly meanwhile."""
    names: dict[int, str] = {}
    unrecordable: list[str] = []
    for name, module in _paths(model):
        if fnmatchcase(name, only) if isinstance(only, str) else name in only:
            names.setdefault(id(module), name)
            if isinstance(module, nn.MultiheadAttention):
                unrecordable.append(name)
    if not names and isinstance(only, str):
        raise KeyError(f"no module of this model matches {only!r}: use a pattern of paths, such as 'decoder.*cross*'")
    if unrecordable:
        warnings.warn(_torch_layers(unrecordable), stacklevel=3)
    recording, was_loaded = Recording(names), _compiler_is_loaded()
    with uncompiled:
        token = _watching.set((*_watching.get(), recording))
        try:
            yield recording
        finally:
            _watching.reset(token)
    if not recording and not was_loaded and _compiler_was_used():
        warnings.warn(
            "nothing was recorded: the model was compiled for the first time inside record_attention; run it once before",
            stacklevel=3,
        )


def _torch_layers(names: list[str]) -> str:
    paths = ", ".join(repr(name) for name in names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return (
        f"the attention of torch.nn.MultiheadAttention is not recorded (path {paths}): "
        "replace the layer with saccade.attention.MultiHead.from_torch(layer)"
    )


def is_watched(module: nn.Module) -> bool:
    """Whether the weights of this module are being recorded. Compiled and exported graphs never record."""
    if torch.compiler.is_compiling():
        return False
    return any(recording.knows(module) for recording in _watching.get())


def is_anybody_watching() -> bool:
    """Whether the weights of any module are being recorded. Compiled and exported graphs never record."""
    return not torch.compiler.is_compiling() and bool(_watching.get())


def record(module: nn.Module, weights: Tensor) -> None:
    """Add the weights (before any dropout) to every recording of this module; once, where a checkpoint computes them again."""
    if torch.compiler.is_compiling() or torch._C._current_graph_task_id() != -1:  # the latter: during backward
        return
    for recording in _watching.get():
        recording.add(module, weights)


def _paths(module: nn.Module, path: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Every module by its path, without what torch.compile and DistributedDataParallel put into it; a shared one once per parent."""
    yield path, module
    for name, child in module._modules.items():  # named_children() leaves out the second name of a child
        if child is None:
            continue
        wrapped = name == "_orig_mod" or isinstance(module, DistributedDataParallel)
        yield from _paths(child, path if wrapped else f"{path}.{name}".lstrip("."))
