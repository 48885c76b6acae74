import itertools

import pytest
import torch

from saccade.data.questions.batching import windows
from saccade.data.questions.words import cut
from saccade.tasks.question_answering.answering import LONGEST_ANSWER, span_probabilities

TEXT = " ".join(f"w{number}" for number in range(60))


def logits(window, seed):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(2, 1 + len(window), generator=draw)


def by_hand(several, sides, unanswered):
    """Every span by loops: its best window, then a softmax over all of them."""
    scores = {}
    for window, (start, end) in zip(several, sides, strict=True):
        size = len(window)
        for i, j in itertools.product(range(size), repeat=2):
            if i <= j <= i + 30:
                span = (window.first + i, window.first + j)
                scores[span] = max(scores.get(span, -1e9), float(start[1 + i] + end[1 + j]))
    if unanswered:
        scores[None] = min(float(start[0] + end[0]) for start, end in sides)
    shares = torch.tensor(list(scores.values()), dtype=torch.float64).softmax(0)
    return dict(zip(scores, shares.tolist(), strict=True))


@pytest.mark.parametrize("unanswered", [True, False])
@pytest.mark.parametrize("size", [40, 100])
def test_spans_get_a_softmax_over_all_windows(size, unanswered):
    several = windows(cut("who?"), cut(TEXT), size, 15)
    sides = [logits(window, seed) for seed, window in enumerate(several)]
    found = span_probabilities(several, *zip(*sides, strict=True), unanswered)
    expected = by_hand(several, sides, unanswered)
    for (first, last), share in ((span, share) for span, share in expected.items() if span):
        assert float(found.spans[first, last - first]) == pytest.approx(share, rel=1e-4)
    assert found.nothing == pytest.approx(expected.get(None, 0.0), rel=1e-4)
    assert float(found.spans.sum()) + found.nothing == pytest.approx(1)
    assert float(found.first_words.sum()) == pytest.approx(float(found.last_words.sum()))


def test_an_answer_is_at_most_31_words_and_never_ends_before_it_begins():
    (window,) = windows(cut("who?"), cut(TEXT), 100, 50)
    start, end = torch.full((2, 61), -9.0)
    start[40], end[10] = 9.0, 9.0  # the likeliest pair is no span
    start[3] = end[3 + LONGEST_ANSWER] = 8.0  # and this one is a word too long
    found = span_probabilities([window], [start], [end], unanswered=False)
    for candidate in found.best(20, TEXT, window):
        assert 1 <= len(candidate.text.split()) <= 31
        assert TEXT[candidate.start : candidate.end] == candidate.text


def test_the_same_words_elsewhere_are_one_answer():
    text = "red blue red"
    (window,) = windows(cut("who?"), cut(text), 10, 5)
    found = span_probabilities([window], [torch.zeros(4)], [torch.zeros(4)], unanswered=True)
    texts = [candidate.text for candidate in found.best(10, text, window)]
    assert len(texts) == len(set(texts))
    assert {"", "red", "blue", "red blue", "blue red", "red blue red"} == set(texts)
