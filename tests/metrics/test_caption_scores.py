"""BLEU is that of a plain count, CIDEr-D that of the authors' own scorer, pointing that of a loop over pixels."""

import json
import math
from collections import Counter

import numpy as np
import pytest

from saccade.metrics.captions import cider_d, score_captions
from saccade.metrics.pointing import Pointed, covered, pointed, together

WORDS = ["a", "man", "dog", "runs", "on", "the", "red", "grass", "in", "blue", "water", "jumps", "woman"]


def sentences(images: int, seed: int = 0) -> tuple[list[str], list[list[str]]]:
    generator = np.random.default_rng(seed)

    def one() -> str:
        return " ".join(generator.choice(WORDS, generator.integers(4, 13)))

    return [one() for _ in range(images)], [[one() for _ in range(generator.integers(1, 6))] for _ in range(images)]


def bleu(outputs: list[str], references: list[list[str]], order: int) -> float:
    """Papineni 2002, with the reference of the nearest length (the shorter one of two as near)."""
    logs = 0.0
    for n in range(1, order + 1):
        right = total = 0
        for output, own in zip(outputs, references, strict=True):
            count, allowed = grams(output, n), Counter()
            for reference in own:
                allowed |= grams(reference, n)
            right += sum((count & allowed).values())
            total += sum(count.values())
        logs += math.log(right / total) / order
    written = sum(len(output.split()) for output in outputs)
    wanted = sum(
        min((abs(len(r.split()) - len(o.split())), len(r.split())) for r in own)[1]
        for o, own in zip(outputs, references, strict=True)
    )
    return 100 * math.exp(logs + min(0.0, 1 - wanted / written))


def grams(text: str, n: int) -> Counter:
    words = text.split()
    return Counter(tuple(words[at : at + n]) for at in range(len(words) - n + 1))


def test_bleu_is_that_of_a_plain_count_whatever_the_number_of_references():
    outputs, references = sentences(200)
    scores = score_captions(outputs, references)
    assert scores.bleu == pytest.approx([bleu(outputs, references, order) for order in (1, 2, 3, 4)])
    assert "case:lc" in scores.signature
    assert "tok:none" in scores.signature


def test_cider_is_that_of_the_authors_own_scorer():
    """The figures were computed once by the scorer that the authors published (github.com/vrama91/cider)."""
    outputs = ["a dog runs on the grass", "a man jumps in the blue water"]
    references = [
        ["a dog runs in the grass", "the dog is running"],
        ["a man jumps into blue water", "a man in the water"],
    ]
    assert cider_d(outputs, references) == pytest.approx(2.917123850227811)
    again = ["a dog a dog runs", "water", "the man"]
    wanted = [["a dog runs", "two dogs run by"], ["a man in water", "blue water"], ["the man", "a man"]]
    assert cider_d(again, wanted) == pytest.approx(2.224153945453)


def test_a_perfect_caption_has_ten_and_a_foreign_one_nothing():
    texts = ["a red dog runs fast", "the blue water is cold"]
    assert cider_d(texts, [[text] for text in texts]) == pytest.approx(10)
    assert cider_d(["x y z w v", "q r s t u"], [[text] for text in texts]) == 0


def test_exact_counts_any_reference():
    scores = score_captions(["a b", "a c", ""], [["x", "a b"], ["a b"], ["a"]])
    assert scores.exact == pytest.approx(100 / 3)


def test_scores_are_json_and_rows():
    outputs, references = sentences(5)
    scores = score_captions(outputs, references)
    values = json.loads(json.dumps(scores.to_dict()))
    assert len(values["bleu"]) == 4
    assert "pointing" not in values
    assert [name for name, _ in scores.rows()][:5] == ["images", "BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4"]
    assert next(iter(scores.compared())) == "BLEU-4"


def test_a_cell_is_covered_as_far_as_its_pixels_are():
    generator = np.random.default_rng(0)
    for _ in range(20):
        rows, columns = generator.choice([1, 2, 3, 4, 5, 6], 2)
        top, left = generator.integers(0, 40, 2)
        bottom, right = top + generator.integers(1, 20), left + generator.integers(1, 20)
        pixels = np.zeros((60, 60))
        pixels[top:bottom, left:right] = 1
        expected = [part.mean() for band in np.split(pixels, _cuts(rows)) for part in np.split(band, _cuts(columns), 1)]
        box = (top / 60, left / 60, bottom / 60, right / 60)
        np.testing.assert_allclose(covered([box], rows, columns), expected, atol=1e-9)


def _cuts(parts: int) -> list[int]:
    return [60 // parts * cut for cut in range(1, parts)]


def test_a_word_points_where_its_largest_weight_touches_the_object():
    weights = np.array([[0.7, 0.1, 0.1, 0.1], [0.1, 0.2, 0.1, 0.6]])
    left_top = (0.1, 0.1, 0.4, 0.4)  # inside of the first of 2 × 2 cells: 9 / 25 of its area
    found = pointed(weights, [(0, *left_top), (1, *left_top)], 2, 2)
    assert [each.hit for each in found] == [True, False]
    assert [each.mass for each in found] == pytest.approx([0.7 * 0.36, 0.1 * 0.36])
    assert [each.chance for each in found] == [0.25, 0.25]


def test_several_boxes_of_one_word_are_one_object():
    weights = np.array([[0.1, 0.2, 0.1, 0.6]])
    (only,) = pointed(weights, [(0, 0.0, 0.0, 0.5, 0.5), (0, 0.5, 0.5, 1.0, 1.0)], 2, 2)
    assert only.hit
    assert only.mass == pytest.approx(0.7)
    assert only.chance == 0.5


def test_figures_are_means_over_objects():
    assert together([Pointed(True, 0.5, 0.25), Pointed(False, 0.1, 0.75)]) == pytest.approx((50, 30, 50))
