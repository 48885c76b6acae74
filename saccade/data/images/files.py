"""Labelled images from a folder per class, a zip of that, a CSV of paths and labels, or a pair of idx files.

Every source becomes a `Listing`: names, labels, and a way to open one image. Nothing is decoded or extracted here, and nothing outside the
given path is read: links and CSV lines that lead out of its folder are refused.
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

from saccade.data.images.decoding import from_array
from saccade.data.images.store import (
    ImageStore,
    check_inside,
    check_zip_is_whole,
    folder_store,
    open_file,
    zip_store,
)
from saccade.data.text.lines import read_lines
from saccade.data.text.pairs import counted
from saccade.errors import UserError
from saccade.files import open_regular

_LARGEST_IDX = 1 << 32  # bytes


@dataclass(frozen=True)
class Listing:
    """Images to be opened one by one, in an order that depends on their names alone."""

    origin: str
    names: Sequence[str]
    labels: Sequence[str]
    open: Callable[[int], Image.Image]
    ignored: int = 0  # files whose ending is not that of an image
    empty: Sequence[str] = ()  # folders beside those of the classes that contain no images

    def __len__(self) -> int:
        return len(self.names)


def list_images(path: Path, classes: Sequence[str] = ()) -> Listing:
    """The images at the path. `classes` are the labels of the training images, where they are known."""
    try:
        if path.is_dir():
            return _by_folder(folder_store(path), classes)
        with open_regular(path) as file:
            start = file.read(4)
        if zipfile.is_zipfile(path):
            return _by_folder(zip_store(path), classes)
        if start[:2] == b"\x1f\x8b" or start[:3] == b"\0\0\x08":
            return _idx(path)
        if path.suffix.lower() == ".csv":
            return _csv(path)
        check_zip_is_whole(path)
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror or error}): check the path and its rights") from None
    raise UserError(
        f"{path} is not image data: give a folder with a folder for each class, a zip of one, "
        "a .csv with the columns path and label, or an idx file of images"
    )


def in_order(labels: Iterable[str]) -> tuple[str, ...]:
    """The classes in alphabetical order, or in numerical order where all are numbers."""
    names = sorted(set(labels))
    if all(re.fullmatch(r"[0-9]{1,9}", name) for name in names):
        names.sort(key=int)
    return tuple(names)


# A folder or a zip: the class is the name of a folder


def _by_folder(store: ImageStore, classes: Sequence[str]) -> Listing:
    if not store.names:
        raise _no_images(store)
    names = store.names
    parts = [_parts(name) for name in names]
    outer = _outer_folders(parts, classes)
    alone = [name for name, path in zip(names, parts, strict=True) if len(path) < len(outer) + 2]
    if alone:
        raise UserError(
            f"{store.origin} has {counted(len(alone), 'image')} outside of any class folder, the first {alone[0]}: "
            "put each image into a folder named after its class"
        )
    labels = [path[len(outer)] for path in parts]
    beside = {path[-1] for path in map(_parts, store.folders) if path[:-1] == outer}
    empty = sorted(beside - set(labels))
    return Listing(store.origin, names, labels, lambda index: store.open(names[index]), store.ignored, empty)


def _parts(name: str) -> tuple[str, ...]:
    return PurePosixPath(unicodedata.normalize("NFC", name)).parts


def _outer_folders(parts: Sequence[tuple[str, ...]], classes: Sequence[str]) -> tuple[str, ...]:
    """Folders around the class folders: zips often have one."""
    depth = 0
    while (
        len({path[depth] for path in parts}) == 1
        and parts[0][depth] not in classes
        and min(map(len, parts)) > depth + 2
    ):
        depth += 1
    return parts[0][:depth]


def _no_images(store: ImageStore) -> UserError:
    path = Path(store.origin)
    idx = sorted(file.name for file in path.glob("*idx3*")) if path.is_dir() else []
    if idx:
        return UserError(f"{path} is a folder of idx files: give the file of the images, for example {path / idx[0]}")
    return UserError(f"{path} contains no images: give a folder (or a zip) with a folder of images for each class")


# A table of paths and labels


def _csv(path: Path) -> Listing:
    root = os.path.realpath(path.parent)
    names, labels = [], []
    lines: dict[str, int] = {}  # of each file
    missing: list[str] = []
    try:
        for _ in read_lines(path) if path.stat().st_size else ():
            pass  # each is UTF-8 and no longer than a line may be
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file)
            columns = [(name or "").strip().lower() for name in rows.fieldnames or ()]
            if "path" not in columns or "label" not in columns:
                raise UserError(
                    f"{path} has the columns {', '.join(columns) or '(none)'}: its first line must name the columns path and label, "
                    "separated by commas"
                )
            rows.fieldnames = columns
            for row in rows:
                name, label = (row["path"] or "").strip(), unicodedata.normalize("NFC", (row["label"] or "").strip())
                if not name or not label:
                    raise UserError(f"{path}, line {rows.line_num}, lacks a path or a label: fill it in or delete it")
                check_inside(os.path.join(root, name), root, path)
                before = lines.setdefault(os.path.realpath(os.path.join(root, name)), rows.line_num)
                if before != rows.line_num:
                    raise UserError(
                        f"{path} names {name} in line {before} and again in line {rows.line_num}: keep one of them, "
                        "so that no image is both trained on and tested on"
                    )
                if not os.path.lexists(os.path.join(root, name)):
                    missing.append(f"{name} in line {rows.line_num}")
                names.append(name)
                labels.append(label)
    except (UnicodeDecodeError, csv.Error, ValueError) as error:
        raise UserError(f"{path} is not a readable CSV ({error}): save it as CSV in UTF-8") from None
    if not names:
        raise UserError(f"{path} has no lines after the first: add a path and a label per line")
    if missing:
        raise UserError(
            f"{path}: {len(missing):,} of the {len(names):,} files that it names are not there, the first {missing[0]}; "
            "correct the paths, which are relative to the folder of the CSV, or delete the lines"
        )
    return Listing(str(path), names, labels, lambda index: open_file(Path(root, names[index]), names[index]))


# Idx: the format of MNIST


def _idx(path: Path) -> Listing:
    """Labels are in the file beside it that has labels and idx1 in its name instead of images and idx3."""
    images = _read_idx(path, 3)
    beside = path.with_name(path.name.replace("images", "labels").replace("idx3", "idx1"))
    if beside == path or not beside.is_file():
        what = (
            f"{beside}, which is not there"
            if beside != path
            else "a file of the same name, with labels instead of images"
        )
        raise UserError(f"the labels of {path} are expected in {what}: put them there")
    labels = _read_idx(beside, 1)
    if len(labels) != len(images):
        raise UserError(f"{path} has {len(images):,} images but {beside} {len(labels):,} labels: copy both again")
    names = [f"{path.name} {index}" for index in range(len(images))]
    return Listing(str(path), names, [str(label) for label in labels], lambda i: from_array(images[i], names[i]))


def _read_idx(path: Path, dimensions: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    try:
        with open_regular(path) as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            file: BinaryIO = gzip.GzipFile(fileobj=raw) if packed else raw  # type: ignore[assignment]
            magic = file.read(4)
            if magic != bytes([0, 0, 8, dimensions]):
                raise UserError(
                    f"{path} is not an idx file of 8-bit numbers in {dimensions} dimension{'s'[: dimensions - 1]}: "
                    "give one in the format of MNIST"
                )
            sizes = [int.from_bytes(file.read(4), "big") for _ in range(dimensions)]
            expected = int(np.prod(sizes, dtype=object))
            content = file.read(min(expected, _LARGEST_IDX) + 1)
    except (EOFError, OSError, ValueError, zlib.error) as error:
        raise UserError(f"{path} is damaged or incomplete ({error}): copy it again") from None
    if len(content) != expected or expected == 0:
        raise UserError(
            f"{path} announces {' × '.join(map(str, sizes))} numbers and has "
            f"{len(content):,}{'+' * (len(content) > expected)}: copy it again"
        )
    return np.frombuffer(content, np.uint8).reshape(sizes)
