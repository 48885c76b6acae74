"""Where labelled images come from: a folder per class, a zip of that, a CSV of paths and labels, or a pair of idx files.

Every source becomes a `Listing`: names, labels, and a way to open one image. Nothing is decoded here, nothing is extracted, and nothing
outside the path that was given is read: links and CSV lines that lead out of its folder are refused.
"""

import csv
import gzip
import os
import re
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import numpy as np
from PIL import Image

from saccade.data.image_decoding import ENDINGS, BadImage, from_array, open_image
from saccade.errors import UserError

_LARGEST_FILE, _LARGEST_IDX = 1 << 29, 1 << 32  # bytes


@dataclass(frozen=True)
class Listing:
    """Images to be opened one by one, in an order that depends on their names alone."""

    origin: str
    names: Sequence[str]
    labels: Sequence[str]
    open: Callable[[int], Image.Image]
    ignored: int = 0  # files that are no images by their ending

    def __len__(self) -> int:
        return len(self.names)


def list_images(path: Path, classes: Sequence[str] = ()) -> Listing:
    """What stands at the path. `classes` are the labels that are known already, from the training images."""
    try:
        if path.is_dir():
            return _folder(path, classes)
        with path.open("rb") as file:
            start = file.read(4)
        if zipfile.is_zipfile(path):
            return _zip(path, classes)
        if start[:2] == b"\x1f\x8b" or start[:3] == b"\0\0\x08":
            return _idx(path)
        if path.suffix.lower() == ".csv":
            return _csv(path)
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror or error}): check the path and its rights") from None
    raise UserError(
        f"{path} is none of the kinds of image data: give a folder with a folder for each class, a zip of one, "
        "a .csv with the columns path and label, or an idx file of images"
    )


def in_order(labels: Iterable[str]) -> tuple[str, ...]:
    """The class list: by alphabet, or by number where all are numbers."""
    names = sorted(set(labels))
    if all(re.fullmatch(r"[0-9]{1,9}", name) for name in names):
        names.sort(key=int)
    return tuple(names)


# A folder or a zip: the class is the name of a folder


def _folder(root: Path, classes: Sequence[str]) -> Listing:
    real = os.path.realpath(root)
    found: list[str] = []
    ignored = 0
    for folder, folders, files in os.walk(real):
        folders[:] = sorted(name for name in folders if not _is_hidden(name))
        for path in (os.path.join(folder, name) for name in (*folders, *files)):
            if os.path.islink(path):
                _check_inside(path, real, root)
        images = [name for name in files if _is_image(name)]
        ignored += sum(not _is_hidden(name) for name in files) - len(images)
        found += [os.path.relpath(os.path.join(folder, name), real).replace(os.sep, "/") for name in images]
    names = sorted(found)
    labels = _labels_by_folder(names, classes, root)
    return Listing(str(root), names, labels, lambda index: open_file(Path(real, names[index]), names[index]), ignored)


def _zip(path: Path, classes: Sequence[str]) -> Listing:
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise UserError(f"{path} is a damaged zip file ({error}): get it again") from None
    entries = {
        entry.filename.replace("\\", "/"): entry
        for entry in archive.infolist()
        if not entry.is_dir() and not any(map(_is_hidden, PurePosixPath(entry.filename).parts))
    }
    names = sorted(name for name in entries if _is_image(name))
    labels = _labels_by_folder(names, classes, path)

    def open_entry(index: int) -> Image.Image:
        name = f"{names[index]} in {path.name}"
        entry = entries[names[index]]
        if entry.file_size > _LARGEST_FILE:
            raise BadImage(f"{name} has {entry.file_size:,} bytes, more than any picture should: replace it")
        try:
            content = archive.read(entry)
        except Exception as error:  # three libraries unpack, and each has errors of its own
            raise BadImage(f"{name} cannot be unpacked ({error}): make the zip anew, without a password") from None
        return open_image(content, name)

    return Listing(str(path), names, labels, open_entry, len(entries) - len(names))


def _labels_by_folder(names: Sequence[str], classes: Sequence[str], origin: Path) -> list[str]:
    """The first folder of each path. A zip often wraps everything in one more folder: that one is no class."""
    if not names:
        raise UserError(
            f"{origin} has no images in it: give a folder (or a zip) with a folder of images for each class"
        )
    parts = [PurePosixPath(unicodedata.normalize("NFC", name)).parts for name in names]
    while len({path[0] for path in parts}) == 1 and parts[0][0] not in classes and min(map(len, parts)) > 2:
        parts = [path[1:] for path in parts]
    alone = [name for name, path in zip(names, parts, strict=True) if len(path) < 2]
    if alone:
        raise UserError(
            f"{origin} has {len(alone):,} images outside of any class folder, the first {alone[0]}: "
            "put each image into a folder that is named after its class"
        )
    return [path[0] for path in parts]


# A table of paths and labels


def _csv(path: Path) -> Listing:
    root = os.path.realpath(path.parent)
    names, labels = [], []
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file)
            columns = [(name or "").strip().lower() for name in rows.fieldnames or ()]
            if "path" not in columns or "label" not in columns:
                raise UserError(
                    f"{path} begins with the columns {', '.join(columns) or '(none)'}: its first line must name path and label"
                )
            rows.fieldnames = columns
            for row in rows:
                name, label = (row["path"] or "").strip(), unicodedata.normalize("NFC", (row["label"] or "").strip())
                if not name or not label:
                    raise UserError(f"{path}, line {rows.line_num}, lacks a path or a label: fill it in or delete it")
                _check_inside(os.path.join(root, name), root, path)
                names.append(name)
                labels.append(label)
    except (UnicodeDecodeError, csv.Error, ValueError) as error:
        raise UserError(f"{path} is not a readable CSV ({error}): save it as CSV in UTF-8") from None
    if not names:
        raise UserError(f"{path} has no lines below its first one: add a path and a label per line")
    return Listing(str(path), names, labels, lambda index: open_file(Path(root, names[index]), names[index]))


# Idx: the format of MNIST


def _idx(path: Path) -> Listing:
    """Labels are in the file beside it that has labels and idx1 in its name instead of images and idx3."""
    images = _read_idx(path, 3)
    beside = path.with_name(path.name.replace("images", "labels").replace("idx3", "idx1"))
    if beside == path or not beside.is_file():
        what = f"{beside}, which is not there" if beside != path else "a file named after it, with labels for images"
        raise UserError(f"the labels of {path} are looked for in {what}: put them there under this name")
    labels = _read_idx(beside, 1)
    if len(labels) != len(images):
        raise UserError(f"{path} has {len(images):,} images but {beside} {len(labels):,} labels: get both anew")
    names = [f"{path.name} {index}" for index in range(len(images))]
    return Listing(str(path), names, [str(label) for label in labels], lambda i: from_array(images[i], names[i]))


def _read_idx(path: Path, dimensions: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            file: BinaryIO = gzip.GzipFile(fileobj=raw) if packed else raw  # type: ignore[assignment]
            magic = file.read(4)
            if magic != bytes([0, 0, 8, dimensions]):
                raise UserError(
                    f"{path} does not begin as an idx file of 8-bit numbers in {dimensions} dimension{'s'[: dimensions - 1]}: "
                    "give one as MNIST has them"
                )
            sizes = [int.from_bytes(file.read(4), "big") for _ in range(dimensions)]
            expected = int(np.prod(sizes, dtype=object))
            content = file.read(min(expected, _LARGEST_IDX) + 1)
    except (EOFError, OSError, ValueError, zlib.error) as error:
        raise UserError(f"{path} is damaged or cut short ({error}): get it again") from None
    if len(content) != expected or expected == 0:
        raise UserError(
            f"{path} promises {' × '.join(map(str, sizes))} numbers and has {len(content):,}{'+' * (len(content) > expected)}: get it again"
        )
    return np.frombuffer(content, np.uint8).reshape(sizes)


# Names and places


def open_file(path: Path, name: str) -> Image.Image:
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise BadImage(f"{name} has {path.stat().st_size:,} bytes, more than any picture should: replace it")
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        raise BadImage(f"{name} cannot be opened ({getattr(error, 'strerror', error)}): check the path") from None
    return open_image(content, name)


def _is_image(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in ENDINGS and not _is_hidden(os.path.basename(name))


def _is_hidden(name: str) -> bool:
    """What systems leave in folders and archives without being asked."""
    return name.startswith(".") or name == "__MACOSX"


def _check_inside(path: str, root: str, given: Path) -> None:
    real = os.path.realpath(path)
    if os.path.commonpath((real, root)) != root:
        raise UserError(
            f"{given} leads to {real}, outside of {root}: only what is below it is read; give a folder above both, or copy the images"
        )
