"""ROUGE of summaries (Lin 2004): how much of a reference's words, pairs of words and longest common sequence are in a summary.

Settings are fixed, so that figures compare: lower case, words of [a-z0-9]+, no stemming, the F1 of one reference, the mean over texts;
equal to the package rouge-score with use_stemmer=False.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

_WORDS = re.compile("[a-z0-9]+")


@dataclass(frozen=True)
class Rouge:
    """Percent."""

    rouge1: float
    rouge2: float
    rouge_l: float

    def rows(self) -> list[tuple[str, str]]:
        return [
            ("ROUGE-1", f"{self.rouge1:.1f}"),
            ("ROUGE-2", f"{self.rouge2:.1f}"),
            ("ROUGE-L", f"{self.rouge_l:.1f}"),
        ]


def words_of(text: str) -> list[str]:
    return _WORDS.findall(text.lower())


def rouge(summaries: Sequence[str], references: Sequence[str]) -> Rouge:
    pairs = [(words_of(summary), words_of(reference)) for summary, reference in zip(summaries, references, strict=True)]

    def mean(scores: list[float]) -> float:
        return 100 * sum(scores) / max(len(scores), 1)

    return Rouge(
        mean([_overlap(*pair, length=1) for pair in pairs]),
        mean([_overlap(*pair, length=2) for pair in pairs]),
        mean([_f1(_common_sequence(*pair), *map(len, pair)) for pair in pairs]),
    )


def _overlap(summary: Sequence[str], reference: Sequence[str], length: int) -> float:
    def runs(words: Sequence[str]) -> Counter[tuple[str, ...]]:
        return Counter(tuple(words[start : start + length]) for start in range(len(words) - length + 1))

    own, theirs = runs(summary), runs(reference)
    return _f1(sum((own & theirs).values()), own.total(), theirs.total())


def _f1(common: int, own: int, theirs: int) -> float:
    return 2 * common / (own + theirs) if common else 0.0


def _common_sequence(first: Sequence[str], second: Sequence[str]) -> int:
    """The length of the longest sequence of words that both have in this order."""
    best = [0] * (len(second) + 1)
    for word in first:
        before = 0
        for place, other in enumerate(second, start=1):
            best[place], before = (before + 1 if word == other else max(best[place], best[place - 1])), best[place]
    return best[-1]
