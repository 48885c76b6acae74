"""The memory allocator's settings for training.

A step frees and asks again for the same large tensors. glibc gives blocks above a threshold back to the system each time and gets them
filled with zeros page by page; told to keep them, it trains faster (docs/results/notebook.md).
"""

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_KEPT = 1 << 30  # bytes
_LARGEST_MAPPED = (1 << 30, 1 << 25)  # bytes; what older ones refuse is asked for less


def keep_freed_memory() -> bool:
    """Whether the allocator is one that can be told, and was."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is None or not any(mallopt(_MMAP_THRESHOLD, most) for most in _LARGEST_MAPPED):
        return False
    return bool(mallopt(_TRIM_THRESHOLD, _KEPT))
