"""A model's tensors before it is built: its config.yaml may be a stranger's and ask for any size.

The model is built on the meta device, where tensors have shapes and no memory. Those of a run must be the ones that were saved, and any
model must fit into this machine's memory.

    with saved_shapes({"output.weight": (10, 64), ...}, "runs/mine"):
        build_model(...)                        # refuses any other model
"""

import os
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from saccade.errors import UserError

_MOST_TENSORS = 100_000  # of a model whose tensors are not known yet
_MOST_BYTES = 1 << 30  # of a model in a run that saved no tensors of it

Sizes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class _Saved:
    shapes: Sizes | None
    origin: str


_saved: ContextVar[_Saved | None] = ContextVar("saved", default=None)


class _TooMany(Exception):
    """More tensors than the model may have: it would be built for ever."""


@contextmanager
def saved_shapes(shapes: Sizes | None, origin: str) -> Iterator[None]:
    """A model that is built inside must have just these tensors; where none were saved (None), it must be a small one."""
    token = _saved.set(_Saved(shapes, origin))
    try:
        yield
    finally:
        _saved.reset(token)


def own_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and saved buffers by name, each once: of tied weights only the first name."""
    saved = model.state_dict(keep_vars=True)
    named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {name: tensor for name, tensor in named.items() if name in saved}


def require_fit(shapes: Sizes, own: Sizes, origin: str) -> None:
    """Names and shapes must be just the model's own."""
    wrong = set(own) ^ set(shapes) or {name for name in own if own[name] != shapes[name]}
    if wrong:
        raise _misfit(origin, f"{', '.join(sorted(wrong)[:3])} differ")


def _misfit(origin: str, what: str) -> UserError:
    return UserError(f"{origin} does not fit the model of its config.yaml: {what}; train it anew")


def check_sketch(build: Callable[[], nn.Module]) -> None:
    saved = _saved.get()
    shapes = None if saved is None else saved.shapes
    try:
        with _counted(_MOST_TENSORS if shapes is None else 2 * len(shapes) + 100):
            sketch = _sketch(build)
    except _TooMany:
        if saved is None or shapes is None:
            raise UserError(f"this model has more than {_MOST_TENSORS:,} tensors: set fewer layers") from None
        raise _misfit(saved.origin, f"it has {len(shapes):,} tensors and the model has more") from None
    except UserError:
        raise
    except Exception as error:
        too_large = isinstance(error, OverflowError | MemoryError) or "overflow" in str(error)
        if not too_large:
            return  # a model that cannot be built without memory: building it says what is wrong
        raise UserError(f"this model is too large for any machine ({_first_line(error)}): set smaller sizes") from None
    tensors = own_tensors(sketch)
    if saved is not None and shapes is not None:
        require_fit(shapes, {name: tuple(tensor.shape) for name, tensor in tensors.items()}, saved.origin)
    needed = sum(tensor.numel() * tensor.itemsize for tensor in (*sketch.parameters(), *sketch.buffers()))
    if saved is not None and shapes is None and needed > _MOST_BYTES:
        raise _misfit(saved.origin, f"it holds no weights, and the model takes {needed / 2**30:,.0f} GB")
    memory = _memory()
    if needed > memory:
        count = sum(parameter.numel() for parameter in sketch.parameters())
        raise UserError(
            f"this model has {count:,} parameters, which take {needed / 2**30:,.0f} GB, and this machine has {memory / 2**30:,.0f} GB: "
            "set smaller sizes"
        )


def _sketch(build: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng(devices=[]), torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # weights that are copied into a tensor without memory go nowhere, as they should
        return build()


@contextmanager
def _counted(most: int) -> Iterator[None]:
    """Stops this thread where it makes more parameters than that."""
    count, thread = 0, threading.get_ident()

    def counted(module: nn.Module, name: str, parameter: nn.Parameter) -> None:
        nonlocal count
        if threading.get_ident() == thread:
            count += 1
            if count > most:
                raise _TooMany

    handle = register_module_parameter_registration_hook(counted)
    try:
        yield
    finally:
        handle.remove()


def _memory() -> float:
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):  # a system that does not say
        return float("inf")


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]
