"""What a frozen encoder makes of images, computed once and kept: a memory-mapped file shared by all runs that need the same.

The file is named after the encoder's fingerprint and that of the pixels. It is written aside, image after image, so that work that was
stopped goes on where it was; it gets its name when it is whole. Numbers have 16 bits, which is plenty for features of size 1 or so.

Axis legend: N images, K cells, D features.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
import torch
from numpy.lib import format as npy
from torch import Tensor

from saccade.errors import Say, UserError
from saccade.files import expanded, make_directory

Array = np.ndarray[Any, np.dtype[Any]]

_AT_A_TIME = 8  # images: more do not fit the caches of a processor and take longer each
_PAUSE = 30.0  # seconds between two words about progress


class FrozenEncoder(Protocol):
    """An encoder that gives the same features for the same pixels, always."""

    size: int
    grid: tuple[int, int]
    frozen: bool

    def __call__(self, images: Tensor) -> Tensor: ...

    def fingerprint(self) -> str: ...


def cache_directory() -> Path:
    """SACCADE_CACHE, or where this system keeps such things."""
    given = os.environ.get("SACCADE_CACHE")
    if given:
        return expanded(given).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "saccade"


def features(encoder: FrozenEncoder, pixels: Array, path: Path, say: Say) -> Array:
    """The features (N, K, D) of images (N, 3, H, W), from the directory `path` or computed into it. Do not write to them."""
    if not encoder.frozen:
        raise ValueError("features of an encoder that is still trained change with it: freeze it first")
    shape = (len(pixels), encoder.grid[0] * encoder.grid[1], encoder.size)
    file = path / "features" / f"{_key(encoder, pixels)}.npy"
    make_directory(file.parent)
    try:
        if not file.exists():
            aside = file.with_suffix(".partial")
            with _alone(aside) as partial:
                if file.exists():  # another process has finished while this one waited
                    aside.unlink(missing_ok=True)
                else:
                    _fill(partial, encoder, pixels, shape, say)
                    aside.replace(file)
        found = npy.open_memmap(file, mode="r")
        if found.shape != shape or found.dtype != np.float16:
            raise ValueError(f"{found.shape} {found.dtype} for {shape}")
    except OSError as error:
        raise UserError(
            f"{file} cannot be written or read ({error.strerror or error}): make room, or name another place in SACCADE_CACHE"
        ) from None
    except ValueError as error:
        raise UserError(f"{file} is damaged ({error}): delete it, and it is made anew") from None
    return found.view(np.ndarray)


def _key(encoder: FrozenEncoder, pixels: Array) -> str:
    digest = blake2b(digest_size=16)
    digest.update(f"{encoder.fingerprint()} {pixels.shape}".encode())
    for start in range(0, len(pixels), 256):
        digest.update(np.ascontiguousarray(pixels[start : start + 256]).data)
    return digest.hexdigest()


def _fill(file: BinaryIO, encoder: FrozenEncoder, pixels: Array, shape: tuple[int, ...], say: Say) -> None:
    """Appends what is missing. Written through a file and not a memory map: on a full disk the one raises an error, the other kills."""
    done = _begin(file, shape)
    say(f"computing features of {len(pixels) - done:,} images{f' ({done:,} are there already)' if done else ''}")
    started = spoken = time.monotonic()
    first = done
    for start in range(done, len(pixels), _AT_A_TIME):
        with torch.inference_mode():
            part = encoder(torch.from_numpy(np.array(pixels[start : start + _AT_A_TIME])))
        if not torch.isfinite(part).all() or part.abs().max() > np.finfo(np.float16).max:
            raise UserError(
                f"the encoder gives features of image {start} or one of the next {_AT_A_TIME} that are no finite 16-bit numbers: "
                "check its weights, or choose another encoder"
            )
        file.write(part.to("cpu", torch.float16).numpy().tobytes())
        done = start + len(part)
        now = time.monotonic()
        if now - spoken > _PAUSE:
            spoken = now
            say(f"features of {done:,} of {len(pixels):,} images, {(done - first) / (now - started):.0f} a second")
    file.flush()
    os.fsync(file.fileno())
    say(f"features of {len(pixels):,} images of {shape[1]} cells × {shape[2]} are ready")


def _begin(file: BinaryIO, shape: tuple[int, ...]) -> int:
    """Puts the file where the next image goes; how many images it holds."""
    row = 2 * shape[1] * shape[2]
    file.seek(0, os.SEEK_END)
    end = file.tell()
    file.seek(0)
    npy.write_array_header_1_0(file, {"descr": "<f2", "fortran_order": False, "shape": shape})
    start = file.tell()
    done = max(0, end - start) // row
    file.truncate(start + done * row)
    file.seek(start + done * row)
    return done


@contextmanager
def _alone(path: Path) -> Iterator[BinaryIO]:
    """The file, opened to go on with; only one process at a time has it, the others wait."""
    with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+b") as file:
        try:
            import fcntl
        except ImportError:  # a system without such locks, on which training in several processes is not usual either
            yield file
            return
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
