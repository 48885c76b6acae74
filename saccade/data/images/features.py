"""Features of images from a frozen encoder, computed once and cached in a memory-mapped file that all runs share.

The file is named after the fingerprints of the encoder and of the pixels. It is written under another name, image after image, so that
interrupted work is resumed; it gets its name when it is complete. Numbers have 16 bits, which is enough for features of magnitude 1.

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
from saccade.stored import map_array

Array = np.ndarray[Any, np.dtype[Any]]

_AT_A_TIME = 8  # images: larger batches exceed the processor's caches and are slower
_INTERVAL = 30.0  # seconds between two notices


class FrozenEncoder(Protocol):
    """An encoder that always gives the same features for the same pixels."""

    size: int
    grid: tuple[int, int]
    frozen: bool

    def __call__(self, images: Tensor) -> Tensor: ...

    def fingerprint(self) -> str: ...


def cache_directory() -> Path:
    """SACCADE_CACHE, or the user's cache directory."""
    configured = os.environ.get("SACCADE_CACHE")
    if configured:
        return expanded(configured).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "saccade"


def features(encoder: FrozenEncoder, pixels: Array, path: Path, say: Say) -> Array:
    """The features (N, K, D) of images (N, 3, H, W), from the directory `path` or computed into it. Do not write to them."""
    if not encoder.frozen:
        raise ValueError("the features of an encoder that is trained change: freeze it first")
    shape = (len(pixels), encoder.grid[0] * encoder.grid[1], encoder.size)
    file = path / "features" / f"{_key(encoder, pixels)}.npy"
    make_directory(file.parent)
    try:
        if not file.exists():
            aside = file.with_suffix(".partial")
            with _locked(aside) as partial:
                if file.exists():  # another process has finished while this one waited
                    aside.unlink(missing_ok=True)
                else:
                    _fill(partial, encoder, pixels, shape, say)
                    aside.replace(file)
        return map_array(file, "<f2", shape)
    except OSError as error:
        raise UserError(
            f"{file} cannot be written or read ({error.strerror or error}): free some space, or set SACCADE_CACHE to another directory"
        ) from None
    except ValueError as error:
        raise UserError(f"{file} is damaged ({error}): delete it, and it will be computed again") from None


def _key(encoder: FrozenEncoder, pixels: Array) -> str:
    digest = blake2b(digest_size=16)
    digest.update(f"{encoder.fingerprint()} {pixels.shape}".encode())
    for start in range(0, len(pixels), 256):
        digest.update(np.ascontiguousarray(pixels[start : start + 256]).data)
    return digest.hexdigest()


def _fill(file: BinaryIO, encoder: FrozenEncoder, pixels: Array, shape: tuple[int, ...], say: Say) -> None:
    """Appends what is missing. Written as a file and not through a memory map, where a full disk would kill the process."""
    done = _begin(file, shape)
    say(f"computing features of {len(pixels) - done:,} images{f' ({done:,} are cached)' if done else ''}")
    started = last = time.monotonic()
    first = done
    for start in range(done, len(pixels), _AT_A_TIME):
        with torch.inference_mode():
            part = encoder(torch.from_numpy(np.array(pixels[start : start + _AT_A_TIME])))
        if not torch.isfinite(part).all() or part.abs().max() > np.finfo(np.float16).max:
            raise UserError(
                f"the encoder gives features of image {start} or one of the next {_AT_A_TIME} that are not finite 16-bit numbers: "
                "check its weights, or choose another encoder"
            )
        file.write(part.to("cpu", torch.float16).numpy().tobytes())
        done = start + len(part)
        now = time.monotonic()
        if now - last > _INTERVAL:
            last = now
            say(f"features of {done:,} of {len(pixels):,} images, {(done - first) / (now - started):.0f} a second")
    file.flush()
    os.fsync(file.fileno())
    say(f"features of {len(pixels):,} images of {shape[1]} cells × {shape[2]} are ready")


def _begin(file: BinaryIO, shape: tuple[int, ...]) -> int:
    """Moves to where the next image goes; returns how many images the file has."""
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
def _locked(path: Path) -> Iterator[BinaryIO]:
    """The file, opened to append; one process at a time has it, the others wait."""
    with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+b") as file:
        try:
            import fcntl
        except ImportError:  # a system without such locks, where training in several processes is not usual either
            yield file
            return
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
