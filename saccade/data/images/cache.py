"""Decoded images on disk: written once, one after another, then mapped into memory, so that there may be any number of them.

The directory gets its name when it is complete.

Axis legend: N images, C channels, H rows, W columns.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy

from saccade import checksums
from saccade.data.image_shape import ImageShape
from saccade.data.images.decoding import BadImage, decode
from saccade.data.images.files import Listing
from saccade.errors import Say, UserError
from saccade.files import replacing_directory
from saccade.stored import map_array, read_json

_MANY = 2000  # images whose reading is announced
_MOST_NAMES = 1 << 28  # bytes of the names of a split
_INTERVAL = 10.0  # seconds between two notices


@dataclass(frozen=True)
class ImageSet:
    """The images of one split. Pixels are a view of a file: do not write to them."""

    pixels: np.ndarray[Any, np.dtype[np.uint8]]  # (N, C, H, W)
    labels: np.ndarray[Any, np.dtype[np.int64]]  # (N,)
    names: list[str]

    def __len__(self) -> int:
        return len(self.labels)

    @classmethod
    def open(cls, directory: Path, split: str, shape: ImageShape, classes: int = 1) -> "ImageSet":
        try:
            names = read_json(directory / f"{split}.names.json", list[str], _MOST_NAMES)
            pixels = map_array(directory / f"{split}.npy", "|u1", (len(names), *shape.sizes))
            labels = map_array(directory / f"{split}.labels.npy", "<i8", (len(names),)).copy()
            for name in (f"{split}.npy", f"{split}.labels.npy", f"{split}.names.json"):
                checksums.check_file(directory.parent, f"{directory.name}/{name}")
            if len(names) and (labels.min() < 0 or labels.max() >= classes):
                raise ValueError(f"a label is not one of the {classes:,} classes")
        except (OSError, ValueError) as error:
            raise UserError(
                f"the {split} images in {directory} are incomplete ({error}): copy the run again, or train it again"
            ) from None
        return cls(pixels, labels, names)


@dataclass
class Counts:
    """What happened while images were decoded."""

    images: int = 0
    resized: int = 0
    bad: int = 0
    first_bad: str = ""
    seconds: float = 0.0

    @property
    def why_none(self) -> str:
        """An addition to the message that too few images are left."""
        return f" ({self.bad:,} cannot be decoded, the first: {self.first_bad})" if self.bad else ""

    def sentences(self, shape: ImageShape, seconds_in_all: float) -> Iterator[str]:
        """Notices; `seconds_in_all` is the time from listing the images to the last byte written."""
        share = 100 * self.seconds / max(seconds_in_all, 1e-9)
        yield f"{self.images:,} images read in {seconds_in_all:.1f} s, {share:.0f} % of that to decode them"
        if self.resized:
            size = f"{shape.rows} × {shape.columns}"
            how = "stretched to" if shape.stretched else "cut to the proportions of"
            yield f"{self.resized:,} images had another size and were scaled and {how} {size}"
        if self.bad:
            yield f"{self.bad:,} images cannot be decoded and were left out, the first: {self.first_bad}"


class _Reading:
    """Reports progress while many images are read."""

    def __init__(self, total: int, say: Say):
        self.total, self.done, self.say, self.last = total, 0, say, time.monotonic()
        if total >= _MANY:
            say(f"reading {total:,} images")

    def watched(self, indices: Sequence[int]) -> Iterator[int]:
        for index in indices:
            if time.monotonic() - self.last > _INTERVAL:
                self.say(f"{self.done:,} of {self.total:,} images read")
                self.last = time.monotonic()
            yield index
            self.done += 1


def write_sets(
    directory: Path,
    splits: Mapping[Any, tuple[Listing, Sequence[int]]],
    classes: Sequence[str],
    shape: ImageShape,
    skip_bad: bool,
    say: Say,
) -> Counts:
    """Decodes the chosen images of every split into `directory`, which is replaced when the new one is complete.
    Progress is reported where there are many."""
    counts = Counts()
    reading = _Reading(sum(len(indices) for _, indices in splits.values()), say)
    with replacing_directory(directory) as aside:
        for split, (listing, indices) in splits.items():
            _write(aside, split, listing, reading.watched(indices), classes, shape, skip_bad, counts)
    return counts


def _write(
    directory: Path,
    split: str,
    listing: Listing,
    indices: Iterable[int],
    classes: Sequence[str],
    shape: ImageShape,
    skip_bad: bool,
    counts: Counts,
) -> None:
    numbers = {name: number for number, name in enumerate(classes)}
    labels: list[int] = []
    names: list[str] = []
    with _growing(directory / f"{split}.npy", shape) as file:
        for index in indices:
            before = time.perf_counter()
            try:
                pixels, resized = decode(listing.open(index), shape, listing.names[index])
            except BadImage as error:
                message = str(error) if Path(listing.origin).name in str(error) else f"{listing.origin}: {error}"
                if not skip_bad:
                    raise UserError(f"{message}; --skip-bad leaves such images out") from None
                counts.bad += 1
                counts.first_bad = counts.first_bad or message
                continue
            counts.seconds += time.perf_counter() - before
            counts.images += 1
            counts.resized += resized
            file.write(pixels.tobytes())
            labels.append(numbers[listing.labels[index]])
            names.append(listing.names[index])
    np.save(directory / f"{split}.labels.npy", np.array(labels, np.int64), allow_pickle=False)
    (directory / f"{split}.names.json").write_text(json.dumps(names, ensure_ascii=False), encoding="utf-8")


@contextmanager
def _growing(path: Path, shape: ImageShape) -> Iterator[BinaryIO]:
    """A .npy file of images that are written one after another; their number is written into its header at the end.

    Written as a file and not through a memory map: on a full disk the one raises an error, the other kills the process.
    """
    size = shape.channels * shape.rows * shape.columns
    with path.open("wb") as file:
        _header(file, 0, shape)
        start = file.tell()
        yield file
        count = (file.tell() - start) // size
        file.seek(0)
        _header(file, count, shape)  # numpy leaves room in it for the first size to grow
        assert file.tell() == start


def _header(file: BinaryIO, count: int, shape: ImageShape) -> None:
    sizes = (count, shape.channels, shape.rows, shape.columns)
    npy.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": sizes})
