"""Kernels in C, compiled where the package is installed: those beside this file, and those of the layers.

They are for a CPU with AVX2, and where it pays compiled for AVX-512 as well. Where there was no compiler, or is no such processor,
there are none, and torch's own are taken: the same numbers up to rounding, in more time. (What dropout draws from a
seed is not the same with and without.)
"""

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

NAMES = (
    "saccade_attend",
    "saccade_attend_backward",
    "saccade_attend_long",
    "saccade_attend_long_backward",
    "saccade_drop",
    "saccade_gru",
    "saccade_hidden_layer",
    "saccade_rows",
    "saccade_softmax_rows",
)
LAYOUT = 1  # of what the kernels are given; the same number stands in lanes.h
Function = Callable[..., int]


@cache
def kernels() -> dict[str, Function] | None:
    """All of them, by their names, for eight lanes."""
    found = _of_library("_compiled", lanes=8) if _capability().startswith("AVX") else {}
    return found if found.keys() == set(NAMES) else None


@cache
def wide_kernels() -> dict[str, Function]:
    """Those that there are for sixteen lanes as well, on a processor that has them."""
    return _of_library("_compiled_avx512", lanes=16) if kernels() is not None and _capability() == "AVX512" else {}


def _capability() -> str:
    """AVX2 or AVX512; of older processors torch says DEFAULT."""
    return torch.backends.cpu.get_cpu_capability()


def _of_library(name: str, lanes: int) -> dict[str, Function]:
    """None, if there is no such library or it was compiled from other sources."""
    compiled = find_spec(f"saccade.attention.{name}")
    if compiled is None or compiled.origin is None:
        return {}
    try:
        library = ctypes.CDLL(compiled.origin)
    except OSError:  # made for another system
        return {}
    if not hasattr(library, "saccade_layout") or library.saccade_layout() != 100 * LAYOUT + lanes:
        return {}
    return {kernel: getattr(library, kernel) for kernel in NAMES if hasattr(library, kernel)}


def can_compute(*tensors: Tensor) -> bool:
    """Whether there are kernels, and for these: single precision on a CPU, numbers in memory and not what stands for them in a graph."""
    return (
        not torch.compiler.is_compiling()
        and kernels() is not None
        and all(_is_in_memory(x) and x.dtype is torch.float32 and x.is_cpu for x in tensors)
        and not torch.is_autocast_enabled("cpu")
        and not torch._C._are_functorch_transforms_active()
        and forward_ad._current_level < 0
    )


def _is_in_memory(x: Tensor) -> bool:
    return type(x) in (Tensor, nn.Parameter) and not torch._C._functorch.is_legacy_batchedtensor(x)


def run(kernel: str, described: ctypes.Structure, wide: bool = False) -> None:
    """Calls a kernel, the one for sixteen lanes if `wide`, with what its struct of C describes, in as many threads as torch has."""
    found = wide_kernels() if wide else kernels()
    assert found is not None
    if not found[kernel](ctypes.byref(described), ctypes.c_int64(torch.get_num_threads())):
        raise MemoryError(f"{kernel} got no memory to work in")


def gradients_by_torch(
    function: Callable[..., Tensor], given: Sequence[Tensor], gradient: Tensor, wanted: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """What a kernel's way back gives, by a function of torch that computes the same: for gradients that shall have gradients themselves."""
    with torch.enable_grad():
        given = [x.view_as(x) for x in given]  # one of them may have been computed from another: each by itself
        answer = function(*given)
    chosen = [x for x, is_wanted in zip(given, wanted, strict=False) if is_wanted]
    found = iter(torch.autograd.grad(answer, chosen, gradient, create_graph=torch.is_grad_enabled()))
    return tuple(next(found) if is_wanted else None for _, is_wanted in zip(given, wanted, strict=False))
