"""Parallel text: sentence pairs from files, normalised and counted.

    report = Report()
    for source, target in read_pairs("train.en.gz", "train.fr.gz", report=report):
        ...
    print(report.sentence())      # kept 28,990 of 29,000 pairs; left out 10 empty

A corpus is two aligned files, or one file of tab-separated columns (source, target), or one of JSON lines with the keys "source"
and "target" (endings .jsonl, .ndjson, .json). Each may be gzipped, whatever it is called. Pairs are read one at a time, so a corpus
may be larger than memory. Nothing is shortened: a pair is kept whole, or left out and counted in the report.
"""

import json
import os
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TypeGuard

from saccade.data.text.lines import check_readable, read_lines
from saccade.errors import UserError

Pair = tuple[str, str]
_JSON = (".jsonl", ".ndjson", ".json")


@dataclass
class Report:
    """What became of the pairs of a corpus. Every stage that leaves pairs out adds to it."""

    read: int = 0
    empty: int = 0
    too_long: int = 0
    max_length: int = 0  # the most tokens a side may have; a pair with more is counted in `too_long`
    held_out: int = 0
    repeated: int = 0  # pairs that share a sentence with a pair that was cut off for validation or test
    in_held_out_files: int = 0  # pairs that also occur in a validation or test file

    @property
    def kept(self) -> int:
        return self.read - self.empty - self.too_long - self.held_out - self.repeated - self.in_held_out_files

    def sentence(self) -> str:
        """As in "kept 28,990 of 29,000 pairs; left out 3 empty, 7 longer than 250 tokens"."""
        parts = [f"kept {self.kept:,} of {self.read:,} pairs"]
        if self.held_out:
            parts.append(f"held out {self.held_out:,} for validation and test")
        left_out = [
            (self.empty, "empty"),
            (self.too_long, f"longer than {self.max_length:,} tokens"),
            (self.repeated, "that repeat a held-out sentence"),
        ]
        if any(count for count, _ in left_out):
            parts.append("left out " + ", ".join(f"{count:,} {reason}" for count, reason in left_out if count))
        return "; ".join(parts)


def normalise(text: str, lowercase: bool = False) -> str:
    """Unicode NFC, so that what looks the same is the same; on one line, without white space at the ends."""
    return unicodedata.normalize("NFC", text.lower() if lowercase else text).strip().replace("\n", " ")


def as_line(text: str) -> str:
    """Without control characters and line separators: a model that spells bytes may write anything."""
    return "".join(" " if unicodedata.category(letter) in ("Cc", "Zl", "Zp") else letter for letter in text).strip()


def counted(number: int, noun: str) -> str:
    """1 pair, 2,000 pairs."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def read_pairs(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str] | None = None,
    *,
    lowercase: bool = False,
    report: Report | None = None,
    columns: tuple[int, int] | None = None,
) -> Iterator[Pair]:
    """The pairs of two aligned files, or of one TSV or JSON-lines file, normalised and without those that have an empty side. `columns` of
    a TSV with more than two are source and target, counted from 1.

    A missing file is reported at once, everything else when its line is reached.
    """
    paths = [Path(path) for path in (source, target) if path is not None]
    for path in paths:
        check_readable(path)
    return _kept_pairs(paths, lowercase, Report() if report is None else report, columns)


def every_pair(source: str | os.PathLike[str], target: str | os.PathLike[str] | None = None) -> list[Pair]:
    """The pairs of such files, one for every line, including empty ones."""
    paths = [Path(path) for path in (source, target) if path is not None]
    for path in paths:
        check_readable(path)
    return [(normalise(one), normalise(other)) for one, other in _pairs_in(paths)]


def _kept_pairs(paths: list[Path], lowercase: bool, report: Report, columns: tuple[int, int] | None) -> Iterator[Pair]:
    kept = 0
    for source, target in _pairs_in(paths, columns):
        report.read += 1
        pair = normalise(source, lowercase), normalise(target, lowercase)
        if all(pair):
            kept += 1
            yield pair
        else:
            report.empty += 1
    if not kept:
        files = " and ".join(map(str, paths))
        raise UserError(f"{files}: no pair has text on both sides; give files with some")


def _pairs_in(paths: list[Path], columns: tuple[int, int] | None = None) -> Iterator[Pair]:
    if len(paths) == 2:
        return _aligned_pairs(*paths)
    return _json_pairs(paths[0]) if _ends(paths[0], _JSON) else _tab_pairs(paths[0], columns)


def holds_both_sides(path: Path) -> bool:
    """Whether a file's name says that source and target are in it."""
    return _ends(path, (*_JSON, ".tsv"))


def _ends(path: Path, endings: tuple[str, ...]) -> bool:
    return path.name.lower().removesuffix(".gz").endswith(endings)


def _aligned_pairs(source_path: Path, target_path: Path) -> Iterator[Pair]:
    sources, targets = read_lines(source_path), read_lines(target_path)
    for pairs, (source, target) in enumerate(zip_longest(sources, targets)):
        if source is None or target is None:
            rest = 1 + sum(1 for _ in sources) + sum(1 for _ in targets)
            counts = (pairs, pairs + rest) if source is None else (pairs + rest, pairs)
            raise UserError(
                f"{source_path} has {counts[0]:,} lines and {target_path} has {counts[1]:,}; "
                "line n of one must be the translation of line n of the other, so make them equally long"
            )
        yield source, target


def _tab_pairs(path: Path, columns: tuple[int, int] | None) -> Iterator[Pair]:
    for number, line in enumerate(read_lines(path), 1):
        cells = line.split("\t") if line.strip() else [""] * max(columns or (2,))
        if columns is None and len(cells) != 2:
            raise UserError(
                f"{path}, line {number:,}: {counted(len(cells), 'column')} instead of two, source and target with one tab between them; "
                "correct that line, or give two files as data.source and data.target, or say which ones with data.columns"
            )
        source, target = columns or (1, 2)
        if max(source, target) > len(cells):
            raise UserError(
                f"{path}, line {number:,}: {counted(len(cells), 'column')}, and data.columns asks for number {max(source, target)}: "
                "correct that line, or data.columns"
            )
        yield cells[source - 1], cells[target - 1]


def _json_pairs(path: Path) -> Iterator[Pair]:
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            yield "", ""
            continue
        wanted = 'write one {"source": "...", "target": "..."} per line'
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            problem = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
            raise UserError(f"{path}, line {number:,}: not valid JSON ({problem}); {wanted}") from None
        source, target = (record.get(key) if isinstance(record, dict) else None for key in ("source", "target"))
        if not _is_text(source) or not _is_text(target):
            key = "target" if _is_text(source) else "source"
            raise UserError(f'{path}, line {number:,}: there is no text under the key "{key}"; {wanted}')
        yield source, target


def _is_text(value: object) -> TypeGuard[str]:
    """A string without lone surrogates, which JSON can escape and no encoding can write."""
    return isinstance(value, str) and not any("\ud800" <= character <= "\udfff" for character in value)
