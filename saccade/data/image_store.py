"""Images without labels, by name, in a folder or a zip: for data whose table of contents is another file.

Nothing is decoded here, nothing is extracted, and nothing outside the path that was given is read.
"""

import os
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from PIL import Image

from saccade.data.image_decoding import ENDINGS, BadImage, open_image
from saccade.data.image_files import open_file
from saccade.errors import UserError

_LARGEST_FILE = 1 << 29  # bytes


@dataclass(frozen=True)
class ImageStore:
    origin: str
    names: Sequence[str]  # paths inside it, sorted
    open: Callable[[str], Image.Image]

    def find(self, name: str) -> str | None:
        """The path of an image by its path or, where only one has it, by its bare name: archives often wrap images in one more folder."""
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
    try:
        if path.is_dir():
            return _checked(_folder(path))
        if zipfile.is_zipfile(path):
            return _checked(_zip(path))
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror or error}): check the path and its rights") from None
    raise UserError(f"{path} is neither a folder nor a zip file: give the folder or the zip that the images are in")


def _checked(store: ImageStore) -> ImageStore:
    if not store.names:
        raise UserError(
            f"{store.origin} has no images in it ({', '.join(sorted(ENDINGS))}): give the folder they are in"
        )
    return store


def _folder(root: Path) -> ImageStore:
    real = os.path.realpath(root)
    found: list[str] = []
    for folder, folders, files in os.walk(real):  # links to folders are not followed
        folders[:] = sorted(name for name in folders if not _is_hidden(name))
        for name in files:
            path = os.path.join(folder, name)
            if not _is_image(name):
                continue
            if os.path.islink(path) and os.path.commonpath((os.path.realpath(path), real)) != real:
                raise UserError(
                    f"{path} is a link to {os.path.realpath(path)}, outside of {root}: only what is below it is read; copy the image"
                )
            found.append(os.path.relpath(path, real).replace(os.sep, "/"))
    return ImageStore(str(root), sorted(found), lambda name: open_file(Path(real, name), name))


def _zip(path: Path) -> ImageStore:
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise UserError(f"{path} is a damaged zip file ({error}): get it again") from None
    entries = {
        entry.filename.replace("\\", "/"): entry
        for entry in archive.infolist()
        if _is_image(entry.filename) and not any(map(_is_hidden, PurePosixPath(entry.filename).parts))
    }

    def open_entry(name: str) -> Image.Image:
        entry, full = entries[name], f"{name} in {path.name}"
        if entry.file_size > _LARGEST_FILE:
            raise BadImage(f"{full} has {entry.file_size:,} bytes, more than any picture should: replace it")
        try:
            content = archive.read(entry)
        except Exception as error:  # three libraries unpack, and each has errors of its own
            raise BadImage(f"{full} cannot be unpacked ({error}): make the zip anew, without a password") from None
        return open_image(content, full)

    return ImageStore(str(path), sorted(entries), open_entry)


def _is_image(name: str) -> bool:
    bare = PurePosixPath(name).name
    return os.path.splitext(bare)[1].lower() in ENDINGS and not _is_hidden(bare)


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"
