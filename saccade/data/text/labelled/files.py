"""Texts with labels, from what people have: a table, a folder of .txt for each class, or lines that begin with their label.

__label__positive what a film        fastText's lines
1 what a film                        label text
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from saccade.data.text.labelled.columns import Columns, Wanted, find_columns
from saccade.data.text.labelled.tables import ENDINGS, ending_of, read_table
from saccade.data.text.lines import MAX_CHARACTERS, check_readable, read_lines
from saccade.data.text.spelling import Span, spaced
from saccade.errors import Say, UserError

_FASTTEXT = "__label__"


@dataclass(frozen=True)
class Labelled:
    """A text on one line, its label, and the parts of it that people marked as what tells the label, by characters."""

    text: str
    label: str
    rationale: tuple[Span, ...] | None = None


@dataclass
class Listing:
    origin: Path
    examples: list[Labelled] = field(default_factory=list)
    empty: int = 0  # texts with nothing in them, left out
    unlabelled: int = 0  # texts without a label, left out

    def sentence(self) -> str:
        """What was left out; empty where nothing was."""
        parts = [(self.empty, "empty texts"), (self.unlabelled, "texts without a label")]
        left = [f"{count:,} {what}" for count, what in parts if count]
        return f"{self.origin}: left out {' and '.join(left)}" if left else ""

    def labels(self) -> Counter[str]:
        return Counter(example.label for example in self.examples)


def read_labelled(path: Path, wanted: Wanted, say: Say) -> Listing:
    """Every text that has something in it and a label."""
    listing = Listing(path)
    rows = _rows(path, wanted, say)
    for place, text, label, marked in rows:
        if not isinstance(text, str) or not text.strip():
            listing.empty += 1
            continue
        if len(text) > MAX_CHARACTERS:
            raise UserError(
                f"{place}: a text of {len(text):,} characters, and at most {MAX_CHARACTERS:,} are read: shorten it"
            )
        name = _label(label)
        if not name:
            listing.unlabelled += 1
            continue
        text = one_line(text)
        listing.examples.append(Labelled(text, name, _rationale(text, marked, place)))
    if not listing.examples:
        why = listing.sentence() or f"{path} has no texts"
        raise UserError(f"{why}: none with a label is left; give a file with some")
    return listing


def one_line(text: str) -> str:
    """Unicode NFC on one line, without white space at the ends: as a line of standard input is read."""
    return unicodedata.normalize("NFC", re.sub(r"[\r\n\x0b\x0c\x85\u2028\u2029]+", " ", text)).strip()


def _rows(path: Path, wanted: Wanted, say: Say) -> Iterator[tuple[str, Any, Any, Any]]:
    """Place, text, label and what was marked."""
    if path.is_dir():
        yield from _folders(path, wanted.encoding)
    elif ending_of(path) in ENDINGS:
        table, columns = find_columns(read_table(path, wanted.encoding), wanted, say)
        yield from zip(table.places, *_cells(table, columns), strict=True)
    else:
        yield from _lines(path, wanted.encoding)


def _cells(table: Any, columns: Columns) -> list[Sequence[Any]]:
    nothing = [None] * len(table.rows)
    marked = nothing if columns.rationale is None else table.column(columns.rationale)
    return [table.column(columns.text), table.column(columns.label), marked]


def _folders(path: Path, encoding: str) -> Iterator[tuple[str, str, str, None]]:
    folders = sorted(folder for folder in path.iterdir() if folder.is_dir() and not folder.name.startswith("."))
    found = False
    for folder in folders:
        for file in sorted(folder.rglob("*")):
            if file.is_file() and file.name.lower().removesuffix(".gz").endswith(".txt"):
                found = True
                text = "" if file.stat().st_size == 0 else "\n".join(read_lines(file, encoding))
                yield str(file), text, folder.name, None
    if not found:
        raise UserError(
            f"{path} has no .txt file in a folder for each class: give such a folder, or a table with texts and labels"
        )


def _lines(path: Path, encoding: str) -> Iterator[tuple[str, str, str, None]]:
    """Lines that begin with their label."""
    check_readable(path)
    for number, line in enumerate(read_lines(path, encoding), 1):
        if not line.strip():
            continue
        label, _, text = line.strip().partition("\t" if "\t" in line else " ")
        yield f"{path}, line {number:,}", text, label.removeprefix(_FASTTEXT), None


def _label(value: Any) -> str:
    if value is None or value != value:  # NaN
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return re.sub(r"\s+", " ", str(value)).strip()


def _rationale(text: str, marked: Any, place: str) -> tuple[Span, ...] | None:
    """A part of the text, or a list of [first, end) by words between white space; as parts of the text by characters."""
    if marked is None or marked == "":
        return None
    if isinstance(marked, str):
        part = one_line(marked)
        start = text.find(part)
        return None if start < 0 else ((start, start + len(part)),)
    words = spaced(text)
    try:
        spans = [(words[int(first)][0], words[int(end) - 1][1]) for first, end in marked if int(end) > int(first) >= 0]
    except (TypeError, ValueError, IndexError):
        raise UserError(
            f"{place}: {str(marked)[:60]} are no parts of its {len(words):,} words; write [[first, end], ...], counted from 0"
        ) from None
    return tuple(sorted(spans))
