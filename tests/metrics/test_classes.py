"""Every figure is scikit-learn's."""

import json

import numpy as np
import pytest
from sklearn import metrics

from saccade.metrics.classes import score_classes


def a_judgement(images: int, classes: int, seed: int = 0, right: float = 2.0):
    generator = np.random.default_rng(seed)
    truth = generator.integers(0, classes, images)
    logits = generator.normal(size=(images, classes)).astype(np.float32)
    logits[np.arange(images), truth] += right
    shifted = logits - logits.max(1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(1, keepdims=True)), truth


def names(count: int) -> list[str]:
    return [f"class {index}" for index in range(count)]


@pytest.mark.parametrize(("images", "classes"), [(500, 10), (40, 7), (30, 2), (1, 3), (5, 20)])
def test_scores_are_scikit_learns(images, classes):
    log_probabilities, truth = a_judgement(images, classes)
    predicted = log_probabilities.argmax(1)
    scores = score_classes(log_probabilities, truth, names(classes))
    everyone = list(range(classes))
    assert scores.images == images
    assert scores.accuracy == pytest.approx(100 * metrics.accuracy_score(truth, predicted))
    assert scores.error == pytest.approx(100 - scores.accuracy)
    assert scores.f1 == pytest.approx(100 * metrics.f1_score(truth, predicted, average="macro", zero_division=0))
    np.testing.assert_array_equal(scores.confusion, metrics.confusion_matrix(truth, predicted, labels=everyone))
    probabilities = np.exp(log_probabilities.astype(np.float64))
    assert scores.cross_entropy == pytest.approx(
        metrics.log_loss(truth, probabilities / probabilities.sum(1, keepdims=True), labels=everyone), rel=1e-4
    )
    if classes > 5:
        top5 = metrics.top_k_accuracy_score(truth, log_probabilities, k=5, labels=everyone)
        assert scores.top5 == pytest.approx(100 * top5)
    else:
        assert scores.top5 is None


def test_each_class_is_scikit_learns():
    log_probabilities, truth = a_judgement(60, 8, right=1.0)
    scores = score_classes(log_probabilities, truth, names(8))
    expected = metrics.precision_recall_fscore_support(
        truth, log_probabilities.argmax(1), labels=range(8), zero_division=0
    )
    for (name, count, *shares), label, *theirs in zip(scores.by_class(), names(8), *expected, strict=True):
        assert name == label
        assert count == theirs[3]
        assert shares == pytest.approx([100 * share for share in theirs[:3]])


def test_a_model_that_says_the_same_of_all_classes_is_not_among_the_best_five():
    scores = score_classes(np.full((10, 20), np.log(0.05)), np.arange(10), names(20))
    assert scores.top5 == 0


def test_the_most_frequent_mistakes_come_first():
    truth = np.array([0, 0, 0, 1, 1, 2])
    predicted = np.array([1, 1, 0, 2, 1, 2])
    scores = score_classes(np.log(np.eye(3)[predicted] + 1e-6), truth, ["cat", "dog", "bird"])
    assert scores.worst() == [("cat", "dog", 2), ("dog", "bird", 1)]
    assert ("cat taken for dog", "2") in scores.rows()
    perfect = score_classes(np.log(np.eye(3) + 1e-6), np.arange(3), ["cat", "dog", "bird"])
    assert perfect.worst() == []
    assert perfect.accuracy == perfect.f1 == 100


def test_mistakes_are_listed_the_surest_first():
    shares = np.array([[0.4, 0.6, 0.0], [0.9, 0.05, 0.05], [0.1, 0.2, 0.7], [0.05, 0.8, 0.15]]) + 1e-9
    scores = score_classes(np.log(shares), np.array([0, 0, 2, 2]), ["cat", "dog", "bird"], ["a", "b", "c", "d\te"])
    assert [line.split("\t") for line in scores.mistake_lines()] == [
        ["number", "file", "truth", "taken for", "probability", "of the truth"],
        ["3", "d\\te", "bird", "dog", "0.8000", "0.1500"],
        ["0", "a", "cat", "dog", "0.6000", "0.4000"],
    ]


def test_tables_and_json_hold_every_class():
    scores = score_classes(*a_judgement(50, 6), names(6))
    assert [heading for heading, _ in scores.columns()] == ["class", "images", "precision %", "recall %", "F1 %"]
    assert all(len(cells) == 6 for _, cells in scores.columns())
    assert next(iter(scores.compared().items())) == ("accuracy %", scores.accuracy)
    assert scores.compared()["top-5 %"] == scores.top5
    values = json.loads(json.dumps(scores.to_dict()))
    assert values["accuracy"] == scores.accuracy
    assert values["top5"] == scores.top5
    assert values["by_class"][3]["class"] == "class 3"
    assert sum(row["images"] for row in values["by_class"]) == 50
    assert sum(map(sum, values["confusion"])) == 50
    assert "top5" not in score_classes(*a_judgement(50, 5), names(5)).to_dict()
