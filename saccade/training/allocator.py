"""The memory allocator's settings for training.

A step frees and asks again for the same large tensors. glibc gives blocks above a threshold back to the system each time and gets them
filled with zeros page by page; told to keep them, it trains a tiny Transformer on one thread 4 to 7 % faster.
"""

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_KEPT = 1 << 30  # bytes


def keep_freed_memory() -> bool:
    """Whether the allocator is one that can be told, and was."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    return mallopt is not None and bool(mallopt(_TRIM_THRESHOLD, _KEPT) and mallopt(_MMAP_THRESHOLD, _KEPT))
