"""The C kernels of this package: found, loaded and called.

They are compiled when the package is installed, for AVX2 and, where it pays, a second time for AVX-512. Without a compiler or without
such a processor there are none: `can_compute` is False and callers compute the same numbers with torch, up to rounding.
"""

import ctypes
from collections.abc import Callable
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
    "saccade_hidden_layer",
)
LAYOUT = 2  # version of the structs shared with C; the same number is in lanes.h
LANES, WIDE_LANES = 8, 16  # float32 values per vector register with AVX2 and with AVX-512
Function = Callable[..., int]


@cache
def kernels() -> dict[str, Function] | None:
    """All kernels by name, compiled for AVX2; None where they are missing or the processor cannot run them."""
    functions = _load("_compiled", LANES) if _capability().startswith("AVX") else {}
    return functions if functions.keys() == set(NAMES) else None


@cache
def wide_kernels() -> dict[str, Function]:
    """Those compiled for AVX-512 as well, on a processor that has it."""
    return _load("_compiled_avx512", WIDE_LANES) if kernels() is not None and _capability() == "AVX512" else {}


def can_compute(*tensors: Tensor) -> bool:
    """Whether kernels exist and take these tensors: plain float32 in CPU memory, outside of compilation, autocast and torch.func."""
    return (
        not torch.compiler.is_compiling()
        and kernels() is not None
        and all(_is_in_memory(x) and x.dtype is torch.float32 and x.is_cpu for x in tensors)
        and not torch.is_autocast_enabled("cpu")
        and not torch._C._are_functorch_transforms_active()
        and forward_ad._current_level < 0
    )


def run(kernel: str, arguments: ctypes.Structure, wide: bool = False) -> None:
    """Call a kernel (the AVX-512 one if `wide`) on its C struct, with as many threads as torch uses."""
    functions = wide_kernels() if wide else kernels()
    assert functions is not None
    if not functions[kernel](ctypes.byref(arguments), ctypes.c_int64(torch.get_num_threads())):
        raise MemoryError(f"{kernel} could not allocate its working memory")


def _capability() -> str:
    """AVX2 or AVX512; DEFAULT for older processors."""
    return torch.backends.cpu.get_cpu_capability()


def _load(library_name: str, lanes: int) -> dict[str, Function]:
    """The functions of one library; empty if it is missing or was compiled from other sources."""
    spec = find_spec(f"saccade.kernels.{library_name}")
    if spec is None or spec.origin is None:
        return {}
    try:
        library = ctypes.CDLL(spec.origin)
    except OSError:  # built for another system
        return {}
    if not hasattr(library, "saccade_layout") or library.saccade_layout() != 100 * LAYOUT + lanes:
        return {}
    return {name: getattr(library, name) for name in NAMES if hasattr(library, name)}


def _is_in_memory(x: Tensor) -> bool:
    """Tensors of torch.func and of gradients taken in batches look like others and have no memory of their own."""
    if type(x) not in (Tensor, nn.Parameter):
        return False
    try:
        x.data_ptr()
    except RuntimeError:
        return False
    return True
