"""Images by name in a folder or a zip, and how one of them is opened.

Nothing is decoded or extracted here, and nothing outside the given path is read: links that lead out are refused.
"""

import os
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from PIL import Image

from saccade.data.image_shape import ImageShape
from saccade.data.images.decoding import ENDINGS, BadImage, NoImage, Pixels, copied, decode, from_array, open_image
from saccade.errors import UserError
from saccade.files import read_bytes

AnyImage = str | os.PathLike[str] | Image.Image | np.ndarray[Any, Any]  # an array of bytes (H, W) or (H, W, 3)

_LARGEST_FILE = 1 << 29  # bytes
_MOST_MEMBERS = 5_000_000  # of a zip


@dataclass(frozen=True)
class ImageStore:
    origin: str
    names: Sequence[str]  # paths inside it, sorted
    open: Callable[[str], Image.Image]
    ignored: int = 0  # files whose ending is not that of an image
    folders: frozenset[str] = frozenset()  # all paths of folders inside it

    def find(self, name: str) -> str | None:
        """The path of an image, by its path or, where it is unique, by its bare name: archives often wrap images in one more folder."""
        name = name.replace("\\", "/").removeprefix("./")
        if name in self._known:
            return name
        return self._by_bare_name.get(PurePosixPath(name).name)

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.names)

    @cached_property
    def _by_bare_name(self) -> dict[str, str]:
        bare = {name: PurePosixPath(name).name for name in self.names}
        counts = Counter(bare.values())
        return {short: name for name, short in bare.items() if counts[short] == 1}


def open_store(path: Path) -> ImageStore:
    """The images in a folder or zip; there must be some."""
    try:
        if path.is_dir():
            return _checked(folder_store(path))
        if path.is_file() and zipfile.is_zipfile(path):
            return _checked(zip_store(path))
        check_zip_is_whole(path)
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror or error}): check the path and its rights") from None
    raise UserError(f"{path} is neither a folder nor a zip file: give the folder or zip of the images")


def _checked(store: ImageStore) -> ImageStore:
    if not store.names:
        raise UserError(f"{store.origin} contains no images ({', '.join(sorted(ENDINGS))}): give the folder that does")
    return store


def check_zip_is_whole(path: Path) -> None:
    """Reports a file that begins as a zip but cannot be opened as one."""
    if not path.is_file():  # nor are pipes and devices, which would be waited for
        return
    with path.open("rb") as file:
        if file.read(4) == b"PK\x03\x04":
            raise UserError(f"{path} is a damaged or incomplete zip file, without the list at its end: copy it again")


def folder_store(root: Path) -> ImageStore:
    real = os.path.realpath(root)
    names: list[str] = []
    ignored = 0
    inside: list[str] = []
    for folder, folders, files in os.walk(real):
        folders[:] = sorted(name for name in folders if not _is_hidden(name))
        inside += [_relative(os.path.join(folder, name), real) for name in folders]
        for path in (os.path.join(folder, name) for name in (*folders, *files)):
            if os.path.islink(path):
                check_inside(path, real, root)
        images = [name for name in files if _is_image(name)]
        ignored += sum(not _is_hidden(name) for name in files) - len(images)
        names += [_relative(os.path.join(folder, name), real) for name in images]
    for name in (str(root), *names, *inside):
        _check_name(name, root)
    return ImageStore(
        str(root), sorted(names), lambda name: open_file(Path(real, name), name), ignored, frozenset(inside)
    )


def zip_store(path: Path) -> ImageStore:
    try:
        archive = zipfile.ZipFile(path)
        if len(archive.infolist()) > _MOST_MEMBERS:
            raise UserError(
                f"{path} has {len(archive.infolist()):,} members (at most {_MOST_MEMBERS:,}): unpack it and give the folder"
            )
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise UserError(f"{path} is a damaged zip file ({error}): copy it again") from None
    entries = {
        entry.filename.replace("\\", "/"): entry
        for entry in archive.infolist()
        if not entry.is_dir() and not any(map(_is_hidden, PurePosixPath(entry.filename).parts))
    }
    names = sorted(name for name in entries if _is_image(name))
    places = (PurePosixPath(entry.filename.replace("\\", "/")) for entry in archive.infolist())
    folders = frozenset(
        str(folder)
        for entry, place in zip(archive.infolist(), places, strict=True)
        for folder in ((place, *place.parents) if entry.is_dir() else place.parents)
        if folder.parts and not any(map(_is_hidden, folder.parts))
    )

    def open_entry(name: str) -> Image.Image:
        entry, full = entries[name], f"{name} in {path.name}"
        if entry.file_size > _LARGEST_FILE:
            raise BadImage(f"{full} has {entry.file_size:,} bytes, more than any image should: replace it")
        try:
            with archive.open(entry) as member:
                content = member.read(_LARGEST_FILE + 1)
        except Exception as error:  # three libraries unpack, and each has errors of its own
            raise BadImage(f"{full} cannot be unpacked ({error}): make the zip again, without a password") from None
        return open_image(content, full)

    return ImageStore(str(path), names, open_entry, len(entries) - len(names), folders)


# One image


def open_file(path: Path, name: str) -> Image.Image:
    if not name:
        raise NoImage("an empty line is not an image: give the path of one")
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise BadImage(f"{name} has {path.stat().st_size:,} bytes, more than any image should: replace it")
        content = read_bytes(path, _LARGEST_FILE)
    except (OSError, ValueError) as error:
        raise NoImage(f"{name} cannot be opened ({getattr(error, 'strerror', error)}): check the path") from None
    return open_image(content, name)


def pixels_of(image: AnyImage, shape: ImageShape) -> Pixels:
    """An image in any form as bytes (C, H, W) of the model's size."""
    name = name_of(image)
    if isinstance(image, Image.Image):
        opened = copied(image, name)
    elif isinstance(image, str | os.PathLike):
        opened = open_file(Path(image), name)
    else:
        opened = from_array(image, name)
    return decode(opened, shape, name)[0]


def name_of(source: AnyImage) -> str:
    """The name of an image in an answer: its path, or a description."""
    if isinstance(source, str | os.PathLike):
        return os.fspath(source)
    size = source.size[::-1] if isinstance(source, Image.Image) else np.shape(source)[:2]
    return f"an image of {' × '.join(map(str, size))}"


# Names and places


def _relative(path: str, root: str) -> str:
    return os.path.relpath(path, root).replace(os.sep, "/")


def _is_image(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in ENDINGS and not _is_hidden(os.path.basename(name))


def _is_hidden(name: str) -> bool:
    """Files that operating systems leave in folders and archives."""
    return name.startswith(".") or name == "__MACOSX"


def _check_name(name: str, root: Path) -> None:
    """File systems allow any bytes in a name; ours are written as UTF-8 text."""
    try:
        name.encode()
    except UnicodeEncodeError:
        shown = os.fsencode(name).decode("utf-8", "backslashreplace")
        raise UserError(f"{root} contains a name that is not UTF-8, {shown}: rename it") from None


def check_inside(path: str, root: str, origin: Path) -> None:
    real = os.path.realpath(path)
    if os.path.commonpath((real, root)) != root:
        raise UserError(
            f"{origin} leads to {real}, outside of {root}, and only files inside it are read: give a folder (or put the CSV into one) "
            "above both, or copy the images"
        )
