"""Captions of images in three formats, recognised by their content:

    Flickr8k's token file     NAME.jpg#0<tab>caption                  a line each
    COCO's caption JSON       {"images": [{"id", "file_name"}], "annotations": [{"image_id", "caption"}]}
    CSV                       a first line with the columns image and caption

Captions are stored as they are trained and scored: lower-case, without punctuation.
"""

import csv
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from saccade.data.text.lines import MAX_CHARACTERS
from saccade.errors import UserError
from saccade.files import read_bytes

_MOST_BYTES = 1 << 30


@dataclass(frozen=True)
class CaptionTable:
    """The captions of each image, in the order of the file; and how many lines had no words in them."""

    origin: str
    captions: dict[str, tuple[str, ...]]
    empty: int = 0


def read_captions(path: Path) -> CaptionTable:
    text = _text(path)
    start = text.lstrip()[:1]
    columns = [name.strip().lower() for name in text.partition("\n")[0].split(",")]
    rows: Iterable[tuple[str, str]]
    if start == "{":
        rows = _coco(text, path)
    elif "image" in columns and "caption" in columns:
        rows = _csv(text, path)
    else:
        rows = _flickr(text, path)
    captions: dict[str, list[str]] = {}
    empty = 0
    for name, caption in rows:
        words = plain(caption)
        if words:
            captions.setdefault(name, []).append(words)
        else:
            empty += 1
    if not captions:
        raise UserError(f"{path} contains no captions: give a file with a caption for each image")
    return CaptionTable(str(path), {name: tuple(texts) for name, texts in captions.items()}, empty)


def read_names(path: Path) -> list[str]:
    """One of Flickr8k's split lists: a file name on each line."""
    names = [line.strip() for line in _text(path).splitlines() if line.strip()]
    if not names:
        raise UserError(f"{path} names no images: give a file with an image name on each line")
    return names


def plain(caption: str) -> str:
    """Lower-case words with a space between them. "The dog 's T-shirt!" is "the dogs t shirt"."""
    caption = unicodedata.normalize("NFC", caption).lower()
    caption = re.sub(r"\s*['’](?=(?:s|t|re|ve|ll|d|m)\b)|['’]", "", caption)
    return " ".join(re.sub(r"[^\w\s]|_", " ", caption).split())


def _text(path: Path) -> str:
    try:
        text = read_bytes(path, _MOST_BYTES).decode("utf-8-sig")
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror or error}): check the path and its rights") from None
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not text in UTF-8 ({error.reason} at byte {error.start}): save it as UTF-8"
        ) from None
    except ValueError as error:
        raise UserError(f"{path} is too large ({error}): give a file of captions") from None
    if not text.lstrip().startswith("{") and max(map(len, text.split("\n"))) > MAX_CHARACTERS:
        raise UserError(f"{path} has a line of more than {MAX_CHARACTERS:,} characters: shorten or delete it")
    return text.replace("\r\n", "\n")


def _flickr(text: str, path: Path) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        key, tab, caption = line.partition("\t")
        name, mark, _ = key.rpartition("#")
        if not tab or not mark or not name.strip():
            raise UserError(
                f"{path}, line {number}, is not NAME#NUMBER, a tab and a caption: give Flickr8k's token file, COCO's caption JSON, "
                "or a CSV whose first line names the columns image and caption"
            )
        yield name.strip(), caption


def _csv(text: str, path: Path) -> Iterator[tuple[str, str]]:
    rows = csv.DictReader(text.splitlines(keepends=True))
    rows.fieldnames = [(name or "").strip().lower() for name in rows.fieldnames or ()]
    try:
        for row in rows:
            name, caption = (row["image"] or "").strip(), row["caption"]
            if not name or caption is None:
                raise UserError(f"{path}, line {rows.line_num}, lacks an image or a caption: fill it in or delete it")
            yield name, caption
    except csv.Error as error:
        raise UserError(f"{path} is not a readable CSV ({error}): save it as CSV in UTF-8") from None


def _coco(text: str, path: Path) -> list[tuple[str, str]]:
    try:
        content = json.loads(text)
        names = {image["id"]: str(image["file_name"]) for image in content["images"]}
        return [(names[note["image_id"]], str(note["caption"])) for note in content["annotations"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(
            f"{path} is not COCO's caption JSON ({type(error).__name__}: {error}): it needs images with id and file_name, "
            "and annotations with image_id and caption"
        ) from None
