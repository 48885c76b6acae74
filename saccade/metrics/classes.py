"""Scores of a classifier: accuracy, top-5, F1 of every class, and the confusion matrix.

The expected calibration error (Guo 2017) is how far the probability of an answer is from how often such answers are right, a mean over
15 bins of probability.

Of a class: precision is the share of correct ones among the predictions of the class, recall among the images of the class, and
F1 = 2 · precision · recall / (precision + recall). The class mean of F1 ("macro") counts rare classes as much as frequent ones; a class
that neither occurs nor is ever predicted is left out of it, as in scikit-learn.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saccade.printable import spreadsheet_cell


@dataclass(frozen=True)
class Mistake:
    number: int  # among the images that were evaluated
    name: str  # of its file
    truth: str
    taken_for: str
    probability: float  # of the prediction
    of_truth: float  # the probability of the true class


@dataclass(frozen=True)
class ClassScores:
    images: int
    accuracy: float  # percent
    cross_entropy: float  # nats an image
    f1: float  # percent, mean over classes
    top5: float | None  # percent; only where there are more than five classes
    classes: tuple[str, ...]
    confusion: tuple[tuple[int, ...], ...]  # [truth][prediction]: how many images
    mistakes: tuple[Mistake, ...]  # most confident first
    left_out: int = 0  # images that could not be read
    paths: int = 1  # sampled for each image by a glimpse network; 1: the most probable path
    calibration: float = 0.0  # percent: the expected calibration error
    unit: str = "images"  # what was classified

    @property
    def error(self) -> float:
        return 100 - self.accuracy

    def rows(self) -> list[tuple[str, str]]:
        """Names and values, formatted."""
        shown = [
            (self.unit, f"{self.images:,}"),
            ("accuracy", f"{self.accuracy:.2f} %"),
            ("error", f"{self.error:.2f} %"),
            ("F1, mean of classes", f"{self.f1:.2f} %"),
            ("cross-entropy", f"{self.cross_entropy:.4f}"),
            ("calibration error", f"{self.calibration:.2f} %"),
        ]
        if self.top5 is not None:
            shown.insert(3, ("top-5 accuracy", f"{self.top5:.2f} %"))
        if self.left_out:
            shown.insert(1, ("left out, as they cannot be read", f"{self.left_out:,}"))
        if self.paths > 1:
            shown.insert(1, ("drawn paths an image", f"{self.paths:,}"))
        return shown + [(f"{truth} taken for {other}", f"{count:,}") for truth, other, count in self.worst()]

    def columns(self) -> list[tuple[str, list[str]]]:
        """The table of classes: a heading and a cell per class for each column."""
        names, counts, *shares = zip(*self.by_class(), strict=True)
        table = [("class", list(names)), (self.unit, [f"{count:,}" for count in counts])]
        for heading, column in zip(("precision %", "recall %", "F1 %"), shares, strict=True):
            table.append((heading, [f"{share:.1f}" for share in column]))
        return table

    def by_class(self) -> list[tuple[str, int, float, float, float]]:
        """Each class with its images, precision, recall and F1 (percent)."""
        precision, recall, f1 = (100 * share for share in _precision_recall_f1(np.array(self.confusion)))
        counts = np.array(self.confusion).sum(1)
        return [
            (name, int(counts[row]), float(precision[row]), float(recall[row]), float(f1[row]))
            for row, name in enumerate(self.classes)
        ]

    def worst(self, count: int = 3) -> list[tuple[str, str, int]]:
        """The most frequent mistakes: truth, prediction, how often."""
        matrix = np.array(self.confusion)
        np.fill_diagonal(matrix, 0)
        order = np.argsort(-matrix, axis=None, kind="stable")[:count]
        pairs = [divmod(int(place), len(matrix)) for place in order]
        return [(self.classes[t], self.classes[p], int(matrix[t, p])) for t, p in pairs if matrix[t, p]]

    def mistake_lines(self) -> list[str]:
        """Every mistake, tab-separated under a line of headings; `saccade look RUN test:7` draws number 7 of a run's test set."""
        what = "file" if self.unit == "images" else "what"
        lines = [f"number\t{what}\ttruth\ttaken for\tprobability\tof the truth"]
        for mistake in self.mistakes:
            words = map(spreadsheet_cell, (mistake.name, mistake.truth, mistake.taken_for))
            shares = (f"{share:.4f}" for share in (mistake.probability, mistake.of_truth))
            lines.append("\t".join([str(mistake.number), *words, *shares]))
        return lines

    def compared(self) -> dict[str, float]:
        """The figures that models are compared by, the most important one first."""
        shown = {"accuracy %": self.accuracy, "F1 %": self.f1, "cross-entropy": self.cross_entropy}
        return shown if self.top5 is None else shown | {"top-5 %": self.top5}

    def to_dict(self) -> dict[str, Any]:
        values: dict[str, Any] = {
            self.unit: self.images,
            "left_out": self.left_out,
            "paths": self.paths,
            "accuracy": self.accuracy,
            "error": self.error,
            "f1": self.f1,
            "cross_entropy": self.cross_entropy,
            "calibration": self.calibration,
            "classes": list(self.classes),
            "confusion": [list(row) for row in self.confusion],
        }
        names = ("class", self.unit, "precision", "recall", "f1")
        values["by_class"] = [dict(zip(names, row, strict=True)) for row in self.by_class()]
        return values if self.top5 is None else {**values, "top5": self.top5}


def score_classes(
    log_probabilities: NDArray[np.floating[Any]],
    truth: NDArray[np.integer[Any]],
    classes: Sequence[str],
    names: Sequence[str] | None = None,
    unit: str = "images",
) -> ClassScores:
    """Scores of log-probabilities (images, classes) against the numbers of the true classes (images,); the images have these names."""
    count = len(classes)
    predicted = log_probabilities.argmax(1)
    confusion = np.bincount(truth * count + predicted, minlength=count * count).reshape(count, count)
    own = log_probabilities[np.arange(len(truth)), truth]
    # The rank of the truth: how many classes are likelier. A tie counts against the truth.
    likelier = (log_probabilities >= own[:, None]).sum(1) - 1
    f1 = _precision_recall_f1(confusion)[2]
    occurs = (confusion.sum(0) + confusion.sum(1)) > 0
    return ClassScores(
        images=len(truth),
        accuracy=100 * float(np.mean(predicted == truth)),
        cross_entropy=-float(own.mean(dtype=np.float64)),
        f1=100 * float(f1[occurs].mean()),
        top5=100 * float(np.mean(likelier < 5)) if count > 5 else None,
        classes=tuple(classes),
        confusion=tuple(tuple(int(number) for number in row) for row in confusion),
        mistakes=_mistakes(log_probabilities, truth, classes, names or [""] * len(truth)),
        calibration=100 * calibration_error(np.exp(log_probabilities.max(1)), predicted == truth),
        unit=unit,
    )


def calibration_error(probabilities: NDArray[np.floating[Any]], right: NDArray[np.bool_], bins: int = 15) -> float:
    """Of the probabilities (N,) of answers of which these are right (N,): Σ_b n_b / N · |share right - mean probability|."""
    places = np.clip(np.ceil(probabilities * bins).astype(int) - 1, 0, bins - 1)
    counts = np.bincount(places, minlength=bins)
    gaps = np.bincount(places, probabilities - right, minlength=bins)
    return float(np.abs(gaps).sum() / max(counts.sum(), 1))


def cohen_kappa(confusion: NDArray[np.integer[Any]]) -> float:
    """(observed - chance) / (1 - chance) of a matrix [truth][prediction]: how much better than guessing by frequency (Cohen 1960)."""
    shares = confusion / max(confusion.sum(), 1)
    chance = float(shares.sum(1) @ shares.sum(0))
    return (float(np.trace(shares)) - chance) / (1 - chance) if chance < 1 else 0.0


def _mistakes(
    log_probabilities: NDArray[np.floating[Any]],
    truth: NDArray[np.integer[Any]],
    classes: Sequence[str],
    names: Sequence[str],
) -> tuple[Mistake, ...]:
    predicted = log_probabilities.argmax(1)
    wrong = np.flatnonzero(predicted != truth)
    surest_first = wrong[np.argsort(-log_probabilities[wrong, predicted[wrong]], kind="stable")]
    return tuple(
        Mistake(
            int(image),
            names[image],
            classes[truth[image]],
            classes[predicted[image]],
            float(np.exp(log_probabilities[image, predicted[image]])),
            float(np.exp(log_probabilities[image, truth[image]])),
        )
        for image in surest_first
    )


def _precision_recall_f1(confusion: NDArray[np.integer[Any]]) -> tuple[NDArray[np.float64], ...]:
    """Of each class, between 0 and 1; 0 where the denominator is 0."""
    right = np.diag(confusion).astype(np.float64)
    predicted, true = confusion.sum(0), confusion.sum(1)

    def share(part: NDArray[np.float64], whole: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
        return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)

    return share(right, predicted), share(right, true), share(2 * right, predicted + true)
