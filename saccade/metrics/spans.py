"""Scores of answers that are spans of a text: exact match and F1 over words, as SQuAD counts them (Rajpurkar et al. 2016).

Before they are compared, answers are put in lower case, without punctuation and the articles a, an and the. Of several references the
best one counts. Where there is no answer, an empty one is right and any other is wrong.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def plain(answer: str) -> str:
    """As it is compared."""
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_PUNCTUATION)).split())


def exact_match(answer: str, references: Sequence[str]) -> float:
    return max(float(plain(answer) == plain(reference)) for reference in references or [""])


def f1(answer: str, references: Sequence[str]) -> float:
    """The harmonic mean of precision and recall over words."""
    return max(_overlap(plain(answer).split(), plain(reference).split()) for reference in references or [""])


def _overlap(answer: Sequence[str], reference: Sequence[str]) -> float:
    if not answer or not reference:
        return float(answer == reference)
    common = sum((Counter(answer) & Counter(reference)).values())
    return 2 * common / (len(answer) + len(reference))


@dataclass(frozen=True)
class FactScores:
    """How an attention meets the sentences that the answer follows from."""

    name: str
    mass: float  # percent of its weight that is on them
    strongest: float  # percent of questions whose strongest sentence is one of them


@dataclass(frozen=True)
class SpanScores:
    questions: int
    exact: float  # percent
    f1: float
    no_answer: float | None = None  # percent right of the questions without an answer
    answered: float | None = None  # F1 of those with one, where there are both
    facts: tuple[FactScores, ...] = ()

    def rows(self) -> list[tuple[str, str]]:
        shown = [
            ("questions", f"{self.questions:,}"),
            ("exact match", f"{self.exact:.1f} %"),
            ("F1", f"{self.f1:.1f} %"),
        ]
        if self.no_answer is not None:
            shown.append(("right where there is no answer", f"{self.no_answer:.1f} %"))
        if self.answered is not None:
            shown.append(("F1 where there is one", f"{self.answered:.1f} %"))
        return shown

    def columns(self) -> list[tuple[str, list[str]]]:
        if not self.facts:
            return []
        return [
            ("attention", [score.name for score in self.facts]),
            ("weight on supporting facts %", [f"{score.mass:.1f}" for score in self.facts]),
            ("strongest sentence is one %", [f"{score.strongest:.1f}" for score in self.facts]),
        ]

    def compared(self) -> dict[str, float]:
        best = {"strongest fact %": max(score.strongest for score in self.facts)} if self.facts else {}
        return {"F1": self.f1, "exact %": self.exact, **best}

    def to_dict(self) -> dict[str, Any]:
        values = asdict(self)
        values["facts"] = [asdict(score) for score in self.facts]
        return {name: value for name, value in values.items() if value is not None}


def score_spans(
    answers: Sequence[str], references: Sequence[Sequence[str]], facts: Sequence[FactScores] = ()
) -> SpanScores:
    """`references` of each question; none where there is no answer, and then "" is the right one."""
    pairs = list(zip(answers, references, strict=True))
    right = [(bool(wanted), exact_match(answer, wanted), f1(answer, wanted)) for answer, wanted in pairs]
    with_answer = [row for row in right if row[0]]
    without = [row for row in right if not row[0]]
    return SpanScores(
        len(right),
        _percent([exact for _, exact, _ in right]),
        _percent([score for *_, score in right]),
        _percent([exact for _, exact, _ in without]) if without else None,
        _percent([score for *_, score in with_answer]) if without and with_answer else None,
        tuple(facts),
    )


def _percent(values: Sequence[float]) -> float:
    return 100 * sum(values) / max(len(values), 1)
