"""From logits of the first and the last word of an answer, in one window or several, to answers with their probabilities.

    score(i, j) = the largest of start_i + end_j over the windows that hold both        i ≤ j < i + LONGEST_ANSWER
    p(i, j) = softmax over all such spans of the context, and over "no answer" where the model was trained to say so

Raw logits are comparable between windows; probabilities of one window are not. The score of "no answer" is the smallest of the windows: one
window with an answer is enough.

Axis legend: N words of the context, K words of an answer, C words of a window.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from saccade.data.questions.batching import Window

LONGEST_ANSWER = 31  # words: start ≤ end ≤ start + 30
NO_ANSWER = "(no answer)"


@dataclass(frozen=True)
class Candidate:
    """A span of the context, characters [start, end); an empty text is "no answer"."""

    text: str
    probability: float
    start: int
    end: int

    def to_dict(self) -> dict[str, Any]:
        return {"answer": self.text, "probability": self.probability, "start": self.start, "end": self.end}


@dataclass(frozen=True)
class Answered:
    """The likeliest answers to one question, best first."""

    question: str
    candidates: tuple[Candidate, ...]

    @property
    def best(self) -> Candidate:
        return self.candidates[0]

    @property
    def text(self) -> str:
        return self.best.text

    def lines(self) -> list[str]:
        return [f"{' '.join(each.text.split()) or NO_ANSWER}\t{each.probability:.4f}" for each in self.candidates]

    def to_dict(self) -> dict[str, Any]:
        others = [candidate.to_dict() for candidate in self.candidates]
        return {"question": self.question, **self.best.to_dict(), "best": others}


@dataclass(frozen=True)
class SpanProbabilities:
    """Of every span of a context."""

    spans: Tensor  # (N, K) from word i, k words more
    nothing: float  # of "no answer"

    @property
    def first_words(self) -> Tensor:
        """(N,) the probability that the answer begins here."""
        return self.spans.sum(1)

    @property
    def last_words(self) -> Tensor:
        """(N,) that it ends here."""
        ends = self.spans.new_zeros(len(self.spans) + LONGEST_ANSWER)
        for more in range(self.spans.shape[1]):
            ends[more : more + len(self.spans)] += self.spans[:, more]
        return ends[: len(self.spans)]

    def best(self, count: int, context: str, window: Window) -> tuple[Candidate, ...]:
        """The likeliest spans, each text once; `window` is any of the context's."""
        words = window.context
        flat = self.spans.flatten()
        order = flat.topk(min(len(flat), 4 * count + 10)).indices.tolist() if len(flat) else []
        found = [Candidate("", self.nothing, 0, 0)] if self.nothing > 0 else []
        for place in order:
            first, more = divmod(place, self.spans.shape[1])
            probability = float(flat[place])
            if first + more < len(words) and (probability > 0 or not found):
                start, end = words.starts[first], words.ends[first + more]
                found.append(Candidate(context[start:end], probability, start, end))
        unique: dict[str, Candidate] = {}
        for candidate in sorted(found, key=lambda each: -each.probability):
            unique.setdefault(candidate.text, candidate)
        return tuple(unique.values())[:count] or (Candidate("", 1.0, 0, 0),)


def span_probabilities(
    windows: Sequence[Window], starts: Sequence[Tensor], ends: Sequence[Tensor], unanswered: bool
) -> SpanProbabilities:
    """Logits (1 + C,) of each window of one context → probabilities of its spans."""
    count = max(window.last for window in windows)
    scores = torch.full((count, LONGEST_ANSWER), -torch.inf)
    nothing = torch.inf
    for window, start, end in zip(windows, starts, ends, strict=True):
        size = len(window)
        nothing = min(nothing, float(start[0] + end[0]))
        padded = torch.cat((end[1 : 1 + size], end.new_full((LONGEST_ANSWER - 1,), -torch.inf)))
        spans = start[1 : 1 + size, None] + padded.unfold(0, LONGEST_ANSWER, 1)  # (C, K)
        place = scores[window.first : window.last]
        torch.maximum(place, spans, out=place)
    if not unanswered:
        nothing = -torch.inf
    flat = torch.cat((torch.tensor([nothing]), scores.flatten())).double().softmax(0)
    return SpanProbabilities(flat[1:].view_as(scores), float(flat[0]))
