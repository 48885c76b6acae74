"""Parallel text: reading sentence pairs from files, cleaning them, and cutting a corpus into train, valid and test.

    report = Report()
    for source, target in read_pairs("train.en.gz", "train.fr.gz", report=report):
        ...
    print(report.sentence())      # kept 28,990 of 29,000 pairs; left out 10 empty

A corpus is two aligned files, or one file of tab-separated columns (source, target), or one of JSON lines with the keys "source"
and "target" (endings .jsonl, .ndjson, .json). Each may be gzipped, whatever it is called. Pairs are read one at a time, so a corpus
may be larger than memory. Nothing is shortened: a pair is kept whole, or left out and counted in the report.
"""

import gzip
import heapq
import io
import json
import os
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import zip_longest
from pathlib import Path
from typing import BinaryIO, TypeGuard, cast

from saccade.errors import UserError

Pair = tuple[str, str]
_JSON = (".jsonl", ".ndjson", ".json")


@dataclass
class Report:
    """What became of the pairs of a corpus. Every stage that leaves pairs out adds to it."""

    read: int = 0
    empty: int = 0
    too_long: int = 0
    longest: int = 0  # the most tokens a side may have; counted in `too_long` if it has more
    held_out: int = 0
    repeated: int = 0
    known: int = 0  # of those read, the ones that stand in named valid or test files, too

    @property
    def kept(self) -> int:
        return self.read - self.empty - self.too_long - self.held_out - self.repeated

    def sentence(self) -> str:
        """For people: "kept 28,990 of 29,000 pairs; left out 3 empty, 7 longer than 250 tokens"."""
        parts = [f"kept {self.kept:,} of {self.read:,} pairs"]
        if self.held_out:
            parts.append(f"held out {self.held_out:,} for validation and test")
        left_out = [
            (self.empty, "empty"),
            (self.too_long, f"longer than {self.longest:,} tokens"),
            (self.repeated, "that repeat a held-out sentence"),
        ]
        if any(count for count, _ in left_out):
            parts.append("left out " + ", ".join(f"{count:,} {reason}" for count, reason in left_out if count))
        return "; ".join(parts)


def counted(number: int, noun: str) -> str:
    """1 pair, 2,000 pairs."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def normalise(text: str, lowercase: bool = False) -> str:
    """One form for what looks the same (Unicode NFC), in one line, without white space at the ends."""
    return unicodedata.normalize("NFC", text.lower() if lowercase else text).strip().replace("\n", " ")


def as_line(text: str) -> str:
    """Without what would break a line or move the cursor: a model that spells bytes may write anything."""
    return "".join(" " if unicodedata.category(letter) in ("Cc", "Zl", "Zp") else letter for letter in text).strip()


def read_pairs(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str] | None = None,
    *,
    lowercase: bool = False,
    report: Report | None = None,
) -> Iterator[Pair]:
    """The pairs of two aligned files, or of one TSV or JSON-lines file, normalised and without those that have an empty side.

    A missing file is reported at once, everything else when its line is reached.
    """
    paths = [Path(path) for path in (source, target) if path is not None]
    for path in paths:
        _check_readable(path)
    return _kept_pairs(paths, lowercase, Report() if report is None else report)


def every_pair(source: str | os.PathLike[str], target: str | os.PathLike[str] | None = None) -> list[Pair]:
    """The pairs of such files, a pair for every line, empty ones too."""
    paths = [Path(path) for path in (source, target) if path is not None]
    for path in paths:
        _check_readable(path)
    return [(normalise(one), normalise(other)) for one, other in _pairs_in(paths)]


def _kept_pairs(paths: list[Path], lowercase: bool, report: Report) -> Iterator[Pair]:
    found = False
    for source, target in _pairs_in(paths):
        report.read += 1
        pair = normalise(source, lowercase), normalise(target, lowercase)
        if all(pair):
            found = True
            yield pair
        else:
            report.empty += 1
    if not found:
        raise UserError(f"No pair with text on both sides was found in {_named(paths)}; give a file with some.")


def _pairs_in(paths: list[Path]) -> Iterator[Pair]:
    if len(paths) == 2:
        return _aligned_pairs(*paths)
    return _json_pairs(paths[0]) if _ends(paths[0], _JSON) else _tab_pairs(paths[0])


def holds_both_sides(path: Path) -> bool:
    """Whether a file's name says that source and target are in it."""
    return _ends(path, (*_JSON, ".tsv"))


def _ends(path: Path, endings: tuple[str, ...]) -> bool:
    return path.name.lower().removesuffix(".gz").endswith(endings)


def _aligned_pairs(source_path: Path, target_path: Path) -> Iterator[Pair]:
    sources, targets = _lines(source_path), _lines(target_path)
    for pairs, (source, target) in enumerate(zip_longest(sources, targets)):
        if source is None or target is None:
            rest = 1 + sum(1 for _ in sources) + sum(1 for _ in targets)
            counts = (pairs, pairs + rest) if source is None else (pairs + rest, pairs)
            raise UserError(
                f"{source_path} has {counts[0]:,} lines and {target_path} has {counts[1]:,}; "
                "line n of one must be the translation of line n of the other, so make them equally long."
            )
        yield source, target


def _tab_pairs(path: Path) -> Iterator[Pair]:
    for number, line in enumerate(_lines(path), 1):
        columns = line.split("\t") if line.strip() else ["", ""]
        if len(columns) != 2:
            raise UserError(
                f"{path}, line {number:,}: found {counted(len(columns), 'column')} where there must be two, "
                "source and target with one tab between them; mend that line, or give two files as data.source and data.target."
            )
        yield columns[0], columns[1]


def _json_pairs(path: Path) -> Iterator[Pair]:
    for number, line in enumerate(_lines(path), 1):
        if not line.strip():
            yield "", ""
            continue
        wanted = 'write one {"source": "...", "target": "..."} per line.'
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            problem = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
            raise UserError(f"{path}, line {number:,}: this is not JSON ({problem}); {wanted}") from None
        source, target = (record.get(key) if isinstance(record, dict) else None for key in ("source", "target"))
        if not _is_text(source) or not _is_text(target):
            key = "target" if _is_text(source) else "source"
            raise UserError(f'{path}, line {number:,}: there is no text under the key "{key}"; {wanted}')
        yield source, target


def _is_text(value: object) -> TypeGuard[str]:
    """JSON can also escape halves of characters, which no encoding can write: they are not text."""
    return isinstance(value, str) and not any("\ud800" <= character <= "\udfff" for character in value)


def _check_readable(path: Path) -> None:
    if not path.exists():
        raise UserError(f"there is no file {path}: check the path")
    if path.is_dir():
        raise UserError(f"{path} is a directory; give a text file with one sentence per line.")
    if not os.access(path, os.R_OK):
        raise UserError(f"{path} cannot be read (permission denied); give a file that you may read.")


def _lines(path: Path) -> Iterator[str]:
    empty = True
    try:
        with path.open("rb") as raw, _unpacked(raw) as stream:
            for line in decoded_lines(stream, str(path)):
                empty = False
                yield line
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise UserError(f"{path} is a damaged or cut-off gzip file; copy it again.") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); give a file that you may read.") from None
    if empty:
        raise UserError(f"{path} is empty; give a text file with one sentence per line.")


def decoded_lines(stream: Iterable[bytes], name: str, bad: dict[int, str] | None = None) -> Iterator[str]:
    """Lines of UTF-8 text, with or without a BOM. They end at \\n and nowhere else: other separators of Unicode may stand inside a
    sentence. The \\r of an \\r\\n falls away later, with all white space at the ends. A line that is no such text is an error, or
    empty where `bad` is given, which then says so of its row."""
    for number, line in enumerate(stream, 1):
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        try:
            yield line.removesuffix(b"\n").decode("utf-8")
        except UnicodeDecodeError as error:
            byte = error.object[error.start]
            looks = " (it looks like UTF-16)" if number == 1 and line[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
            what = f"{name}, line {number:,}: byte 0x{byte:02x} is not UTF-8{looks}"
            if bad is None:
                raise UserError(f"{what}; save the file as UTF-8.") from None
            bad[number - 1] = what
            yield ""


def _unpacked(raw: io.BufferedReader) -> BinaryIO:
    if raw.peek(2)[:2] != b"\x1f\x8b":
        return raw
    return io.BufferedReader(cast(io.RawIOBase, gzip.GzipFile(fileobj=raw)))


def _named(paths: list[Path]) -> str:
    return " and ".join(map(str, paths))


@dataclass(frozen=True)
class Split:
    """A corpus cut in three. `valid` and `test` are small lists; `train` is read from the corpus again each time."""

    valid: list[Pair]
    test: list[Pair]
    _read: Callable[[Report], Iterator[Pair]]
    _held: "_Sentences"

    def train(self, report: Report | None = None) -> Iterator[Pair]:
        """Every pair that shares neither its source nor its target with `valid` or `test`."""
        report = Report() if report is None else report
        held_out = len(self.valid) + len(self.test)
        touched = 0
        for pair in self._read(report):
            if not self._held.touched_by(pair):
                yield pair
                continue
            touched += 1
            if touched <= held_out:
                report.held_out += 1
            else:
                report.repeated += 1


def split_pairs(read: Callable[[Report], Iterator[Pair]], seed: int, share: float = 0.05, largest: int = 2000) -> Split:
    """Cut valid and test out of a corpus: each `share` of its different pairs, at least one, at most `largest`.

        split = split_pairs(lambda report: read_pairs("all.tsv", report=report), seed=1)

    No source sentence and no target sentence stands in two of the three parts (case and spacing do not make a sentence another).
    The rule: pairs are ranked by a hash of the seed and their text, so neither their order in the file nor other pairs matter. In
    that order, pairs are taken for valid and then test, passing over any that has a sentence in common with a pair already taken.
    What is left is train, except for pairs that have a sentence in common with those taken: they are left out and counted as repeated.
    """
    count = 0
    ranked = _LowestRanked(1000 + 3 * largest)
    for pair in read(Report()):
        count += 1
        ranked.offer(_rank(pair, seed), pair)
    size = min(largest, max(1, int(ranked.offered * share)))
    held = _Sentences()
    taken: list[Pair] = []
    for pair in ranked.pairs():
        if len(taken) < 2 * size and not held.touched_by(pair):
            held.add(pair)
            taken.append(pair)
    nothing_left = not ranked.full and all(held.touched_by(pair) for pair in ranked.pairs())
    if len(taken) < 2 or nothing_left:
        raise UserError(
            f"{counted(count, 'pair')} cannot be cut into train, valid and test, which takes three that have no sentence in common; "
            "give a larger corpus, or files of your own for valid and test."
        )
    middle = len(taken) // 2
    return Split(taken[:middle], taken[middle:], read, held)


@dataclass
class _Sentences:
    """The sentences of some pairs, by side; case and spacing do not count."""

    sources: set[str] = field(default_factory=set)
    targets: set[str] = field(default_factory=set)

    def add(self, pair: Pair) -> None:
        self.sources.add(_same(pair[0]))
        self.targets.add(_same(pair[1]))

    def touched_by(self, pair: Pair) -> bool:
        return _same(pair[0]) in self.sources or _same(pair[1]) in self.targets


class _LowestRanked:
    """The `size` different pairs of lowest rank in a stream, in memory for `size` pairs."""

    def __init__(self, size: int):
        self._size = size
        self._heap: list[tuple[int, Pair]] = []  # negated, so that the highest rank is on top
        self._ranks: set[int] = set()

    def offer(self, rank: int, pair: Pair) -> None:
        if rank in self._ranks:
            return
        if not self.full:
            heapq.heappush(self._heap, (-rank, pair))
        elif rank < -self._heap[0][0]:
            self._ranks.remove(-heapq.heapreplace(self._heap, (-rank, pair))[0])
        else:
            return
        self._ranks.add(rank)

    @property
    def full(self) -> bool:
        return len(self._heap) == self._size

    @property
    def offered(self) -> int:
        """How many different pairs were offered. Once there are more than are kept, an estimate: ranks are spread evenly, so as many
        of them lie below the highest one kept as its share of all ranks there are."""
        return self._size * _RANKS // -self._heap[0][0] if self.full else len(self._heap)

    def pairs(self) -> list[Pair]:
        return [pair for _, pair in sorted(self._heap, reverse=True)]


_RANKS = 2**128


def _rank(pair: Pair, seed: int) -> int:
    """Between 0 and _RANKS, evenly."""
    text = "\0".join((str(seed), _same(pair[0]), _same(pair[1])))
    return int.from_bytes(blake2b(text.encode(), digest_size=16).digest(), "big")


def _same(text: str) -> str:
    return " ".join(text.casefold().split())
