"""Kernels in C, compiled where the package is installed: short_kernel.c beside this file, and those of the layers.

They are for a CPU with AVX2. Where there was no compiler, or is no such processor, there are none, and torch's own are taken: the same
numbers up to rounding, in more time. (What dropout draws from a seed is not the same with and without.)
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
    "saccade_drop",
    "saccade_gru",
    "saccade_hidden_layer",
    "saccade_rows",
    "saccade_softmax_rows",
)


@cache
def kernels() -> ctypes.CDLL | None:
    compiled = find_spec("saccade.attention._compiled")
    has_avx2 = torch.backends.cpu.get_cpu_capability().startswith(
        "AVX"
    )  # AVX2 or AVX512: of older ones torch says DEFAULT
    if compiled is None or compiled.origin is None or not has_avx2:
        return None
    try:
        library = ctypes.CDLL(compiled.origin)
    except OSError:  # made for another system
        return None
    return library if all(hasattr(library, name) for name in NAMES) else None  # compiled from older sources


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


def run(kernel: str, described: ctypes.Structure) -> None:
    """Calls a kernel with what its struct of C describes, in as many threads as torch has."""
    found = kernels()
    assert found is not None
    if not getattr(found, kernel)(ctypes.byref(described), ctypes.c_int64(torch.get_num_threads())):
        raise MemoryError(f"{kernel} got no memory to work in")


def gradients_by_torch(
    function: Callable[..., Tensor], given: Sequence[Tensor], gradient: Tensor, wanted: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """What a kernel's way back gives, by a function of torch that computes the same: for gradients that shall have gradients themselves."""
    with torch.enable_grad():
        answer = function(*given)
    chosen = [x for x, is_wanted in zip(given, wanted, strict=False) if is_wanted]
    found = iter(torch.autograd.grad(answer, chosen, gradient, create_graph=torch.is_grad_enabled()))
    return tuple(next(found) if is_wanted else None for _, is_wanted in zip(given, wanted, strict=False))
