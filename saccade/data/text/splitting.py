"""Cutting held-out pairs from a corpus, so that no sentence of theirs is trained on.

split = split_pairs(lambda report: read_pairs("all.tsv", report=report), seed=1)
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from saccade.data.splits import SplitName
from saccade.data.text.pairs import Pair, Report, counted
from saccade.errors import UserError


@dataclass(frozen=True)
class Split:
    """A corpus cut into parts. `valid` and `test` are small lists, empty where that part was not cut off; `train` is read from the corpus
    again each time."""

    valid: list[Pair]
    test: list[Pair]
    _read: Callable[[Report], Iterator[Pair]]
    _held_out: "_Sentences"

    def train(self, report: Report | None = None) -> Iterator[Pair]:
        """Every pair that shares neither its source nor its target with `valid` or `test`."""
        report = Report() if report is None else report
        held_out = len(self.valid) + len(self.test)
        shared = 0
        for pair in self._read(report):
            if not self._held_out.share_with(pair):
                yield pair
                continue
            shared += 1
            if shared <= held_out:
                report.held_out += 1
            else:
                report.repeated += 1


def split_pairs(
    read: Callable[[Report], Iterator[Pair]],
    seed: int,
    share: float = 0.05,
    largest: int = 2000,
    parts: Sequence[SplitName] = ("valid", "test"),
) -> Split:
    """Cut valid and test, or one of them, from a corpus: each `share` of its different pairs, at least one, at most `largest`.

    No source sentence and no target sentence stands in two parts (case and spacing do not make a sentence another). The rule: pairs are
    ranked by a hash of the seed and their text, so neither their order in the file nor other pairs matter. In that order, pairs are taken
    for valid and then test, skipping any that has a sentence in common with a pair already taken. What is left is train, except for pairs
    that have a sentence in common with those taken: they are left out and counted as repeated.
    """
    count = 0
    ranked = _LowestRanked(1000 + 3 * largest)
    for pair in read(Report()):
        count += 1
        ranked.offer(_rank(pair, seed), pair)
    size = min(largest, max(1, int(ranked.offered * share)))
    held_out = _Sentences()
    taken: list[Pair] = []
    for pair in ranked.pairs():
        if len(taken) < len(parts) * size and not held_out.share_with(pair):
            held_out.add(pair)
            taken.append(pair)
    nothing_left = not ranked.full and all(held_out.share_with(pair) for pair in ranked.pairs())
    if len(taken) < len(parts) or nothing_left:
        raise UserError(
            f"{counted(count, 'pair')} cannot be split into {' and '.join(('train', *parts))}: that takes at least {len(parts) + 1} pairs "
            "with no sentence in common; give more pairs, or files of their own for data.valid_source and data.test_source"
        )
    middle = len(taken) // len(parts) if "valid" in parts else 0
    return Split(taken[:middle], taken[middle:], read, held_out)


@dataclass
class _Sentences:
    """The sentences of some pairs, by side, regardless of case and spacing."""

    sources: set[str] = field(default_factory=set)
    targets: set[str] = field(default_factory=set)

    def add(self, pair: Pair) -> None:
        self.sources.add(_same(pair[0]))
        self.targets.add(_same(pair[1]))

    def share_with(self, pair: Pair) -> bool:
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
        """How many different pairs were offered. Once there are more than are kept, an estimate: ranks are uniform, so the highest one kept
        says which share of all pairs is kept."""
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
