import random

import pytest

from saccade.metrics.rouge import rouge

WORDS = [
    "the",
    "cat",
    "sat",
    "on",
    "a",
    "mat",
    "with",
    "2",
    "red-hats",
    "U.S.",
    "Café",
    "it's",
    "--",
    "¶",
    "end.",
    "The",
]


def test_equal_to_the_package_rouge_score():
    scorer = pytest.importorskip("rouge_score.rouge_scorer", reason="rouge-score is not installed").RougeScorer(
        ["rouge1", "rouge2", "rougeL"], use_stemmer=False
    )
    draw = random.Random(1)
    pairs = [[" ".join(draw.choices(WORDS, k=draw.randint(0, 14))) for _ in range(2)] for _ in range(200)]
    expected = [scorer.score(reference, summary) for summary, reference in pairs]
    found = rouge(*zip(*pairs, strict=True))
    for name, value in (("rouge1", found.rouge1), ("rouge2", found.rouge2), ("rougeL", found.rouge_l)):
        assert value == pytest.approx(100 * sum(row[name].fmeasure for row in expected) / len(pairs), abs=1e-9)


def test_by_hand():
    found = rouge(["The cat sat."], ["a cat sat down"])
    assert found.rouge1 == pytest.approx(100 * 2 * 2 / 7)
    assert found.rouge2 == pytest.approx(100 * 2 * 1 / 5)
    assert found.rouge_l == pytest.approx(100 * 2 * 2 / 7)
    assert rouge([""], ["cat"]).rouge1 == 0
