"""Scores of what was looked at, on numbers computable on paper and against scikit-learn."""

import numpy as np
import pytest
from sklearn.metrics import auc, f1_score, jaccard_score, precision_recall_curve

from saccade.metrics.rationales import auprc, largest, overlap, score_rationales


def words(seed: int, count: int = 40) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    marked = draw.random(count) < 0.3
    marked[0] = True
    return draw.integers(0, 12, count) / 12.0, marked


@pytest.mark.parametrize("seed", range(5))
def test_the_area_is_scikit_learns_also_where_weights_tie(seed):
    weights, marked = words(seed)
    precision, recall, _ = precision_recall_curve(marked, weights)
    assert auprc(weights, marked) == pytest.approx(auc(recall, precision))


@pytest.mark.parametrize("seed", range(3))
def test_overlaps_are_scikit_learns(seed):
    weights, marked = words(seed)
    chosen = largest(weights, 0.25)
    assert chosen.sum() == 10
    assert weights[chosen].min() >= weights[~chosen].max()
    assert overlap(chosen, marked) == pytest.approx((f1_score(marked, chosen), jaccard_score(marked, chosen)))


def test_a_perfect_look_and_one_at_everything_else():
    marked = np.array([False, True, False, False, True])
    assert auprc(marked.astype(float), marked) == 1
    assert auprc(1.0 - marked, marked) < 0.4
    assert overlap(marked, marked) == (1, 1)


def test_erasing_tells_what_a_model_needs():
    """A model that answers by the first word alone: without it the probability falls from 1 to 0, and it alone is enough."""
    marked = [np.array([True, *[False] * 9])] * 4
    first, last = np.linspace(1, 0, 10), np.linspace(0, 1, 10)
    scores = score_rationales(
        {"first": [first] * 4, "last": [last] * 4},
        marked,
        lambda kept: np.array([float(words[0]) for words in kept]),
        gradient="last",
    )
    assert (scores.best.comprehensiveness, scores.best.sufficiency) == (1, 0)
    assert (scores.gradient.comprehensiveness, scores.gradient.sufficiency) == (0, 1)
    assert scores.best.auprc == 1
    assert 0 < scores.random.auprc < 1
    assert scores.verdict().startswith("first (AUPRC 1.000): 0.9")
    assert "above the gradient" in scores.verdict()
    assert dict(scores.rows())["what people marked"] == "10.0 % of the words of 4 texts"
