"""Questions and contexts as tensors, in windows: a context of any length is read a piece at a time.

The different words of a batch stand once in a table of forms; texts hold their numbers. So what depends on a word alone (its vector, its
letters) is computed once for each.

Axis legend: B windows of the batch, Q longest question, C longest context, U different words, L letters. Position 0 of an answer is "no
answer"; position i is word i - 1 of the window.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from saccade.data.questions.exercises import Span
from saccade.data.questions.words import Cut, Lexicon, sentence_numbers

NO_ANSWER = (0, 0)


@dataclass(frozen=True)
class Window:
    """Some words of a context, with the question. `spans` are the right answers in it, in positions; [NO_ANSWER] where it has none."""

    question: Cut
    context: Cut
    first: int  # word of the context
    last: int
    spans: tuple[tuple[int, int], ...] = ()

    def __len__(self) -> int:
        return self.last - self.first


@dataclass(frozen=True)
class QuestionBatch:
    forms: Tensor  # (U,) numbers of different words; the first is padding
    letters: Tensor  # (U, L)
    question: Tensor  # (B, Q) rows of forms
    question_lengths: Tensor  # (B,)
    question_shared: Tensor  # (B, Q, 2) whether the context has the word: in this spelling, in any case
    context: Tensor  # (B, C)
    context_lengths: Tensor  # (B,)
    context_shared: Tensor  # (B, C, 2) whether the question has it
    sentences: Tensor  # (B, C) the number of each word's sentence
    rows: Tensor  # (A,) the window of each right answer
    starts: Tensor  # (A,) positions
    ends: Tensor  # (A,)

    def __len__(self) -> int:
        return len(self.question)

    def to(self, device: torch.device | str) -> "QuestionBatch":
        return QuestionBatch(**{field.name: getattr(self, field.name).to(device) for field in fields(self)})


def windows(question: Cut, context: Cut, size: int, stride: int, spans: Sequence[Span] | None = None) -> list[Window]:
    """The windows over a context, with the right answers where their characters are given."""
    firsts = range(0, max(1, len(context) - size + stride), stride) if len(context) > size else range(1)
    words = None if spans is None else [_words_of(span, context) for span in spans]
    made = []
    for first in firsts:
        last = min(first + size, len(context))
        inside: tuple[tuple[int, int], ...] = (NO_ANSWER,)
        if words is not None:
            inside = tuple((a - first + 1, b - first + 1) for a, b in words if first <= a and b < last) or inside
        made.append(Window(question, context, first, last, inside))
    return made


def _words_of(span: Span, context: Cut) -> tuple[int, int]:
    """The first and the last word that a span of characters touches."""
    start, end = span
    first = int(np.searchsorted(np.array(context.ends), start, "right"))
    last = int(np.searchsorted(np.array(context.starts), end, "left")) - 1
    return first, max(first, last)


def collate(chosen: Sequence[Window], lexicon: Lexicon) -> QuestionBatch:
    places: dict[str, int] = {"": 0}
    questions = [[places.setdefault(word, len(places)) for word in window.question.words] for window in chosen]
    pieces = [window.context.words[window.first : window.last] for window in chosen]
    contexts = [[places.setdefault(word, len(places)) for word in piece] for piece in pieces]
    numbers, letters = lexicon.spell(list(places))
    numbers[0] = 0
    shared = [_shared(window.question.words, piece) for window, piece in zip(chosen, pieces, strict=True)]
    sentences = [
        sentence_numbers(
            piece, *(getattr(window.context, side)[window.first : window.last] for side in ("starts", "ends"))
        )
        for window, piece in zip(chosen, pieces, strict=True)
    ]
    right = [(row, *span) for row, window in enumerate(chosen) for span in window.spans]
    return QuestionBatch(
        forms=torch.from_numpy(numbers),
        letters=torch.from_numpy(letters),
        question=_padded(questions),
        question_lengths=_lengths(questions),
        question_shared=_padded([own for own, _ in shared]).float(),
        context=_padded(contexts),
        context_lengths=_lengths(contexts),
        context_shared=_padded([own for _, own in shared]).float(),
        sentences=_padded(sentences),
        rows=torch.tensor([row for row, _, _ in right], dtype=torch.int64),
        starts=torch.tensor([start for _, start, _ in right], dtype=torch.int64),
        ends=torch.tensor([end for _, _, end in right], dtype=torch.int64),
    )


Marks = list[tuple[bool, bool]]


def _shared(question: Sequence[str], context: Sequence[str]) -> tuple[Marks, Marks]:
    """For each word of both whether the other has it: in this spelling, in any case."""

    def marks(words: Sequence[str], others: Sequence[str]) -> Marks:
        exact, lower = {*others}, {other.lower() for other in others}
        return [(word in exact, word.lower() in lower) for word in words]

    return marks(question, context), marks(context, question)


def _padded(rows: Sequence[Sequence[int]] | Sequence[Marks]) -> Tensor:
    longest = max(1, max(map(len, rows), default=0))
    inner = next((np.shape(row[0]) for row in rows if len(row)), ())
    padded = np.zeros((len(rows), longest, *inner), np.int64)
    for place, row in zip(padded, rows, strict=True):
        if len(row):
            place[: len(row)] = row
    return torch.from_numpy(padded)


def _lengths(rows: Sequence[Sequence[int]]) -> Tensor:
    return torch.tensor([len(row) for row in rows], dtype=torch.int64)
