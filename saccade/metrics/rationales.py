"""Did a model look at what people marked as the reason, and does it need what it looked at? After ERASER (DeYoung 2020).

Against what people marked (plausibility), for each text, then the mean over texts:

    token AUPRC    the area under precision and recall of the words, ordered by weight
    F1, IoU        of the words with the largest weights, as many as people mark on average

By erasing (faithfulness), for the class c that the model gives, a mean over several shares k of the words:

    comprehensiveness    p(c | x) - p(c | x without the k largest)      high: it needs them
    sufficiency          p(c | x) - p(c | the k largest alone)          low: they are enough
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Weights = NDArray[np.float64]  # (W,) of the words of a text
Marked = NDArray[np.bool_]  # (W,) which words people marked
SHARES = (0.05, 0.2, 0.5)  # of the words that are erased, or kept


@dataclass(frozen=True)
class Rationale:
    """How well one way of weighing words does."""

    name: str
    auprc: float
    f1: float
    iou: float
    comprehensiveness: float
    sufficiency: float

    def sentence(self) -> str:
        return (
            f"AUPRC {self.auprc:.3f} · F1 {self.f1:.3f} · IoU {self.iou:.3f} · "
            f"comprehensiveness {self.comprehensiveness:+.3f} · sufficiency {self.sufficiency:+.3f}"
        )


@dataclass(frozen=True)
class RationaleScores:
    texts: int
    share: float  # of the words that people marked, the mean over texts
    attentions: tuple[Rationale, ...]
    gradient: Rationale
    random: Rationale  # the mean of some random orders

    @property
    def best(self) -> Rationale:
        """The attention that looks most at what people marked."""
        return max(self.attentions, key=lambda each: each.auprc)

    def rows(self) -> list[tuple[str, str]]:
        every = (*self.attentions, self.gradient, self.random)
        return [
            ("what people marked", f"{100 * self.share:.1f} % of the words of {self.texts:,} texts"),
            *((each.name, each.sentence()) for each in every),
            ("looks at it best", self.verdict()),
        ]

    def verdict(self) -> str:
        """Which attention is best, and how far it is from the gradient and from chance."""
        best, than = self.best, [(self.gradient, "the gradient"), (self.random, "random words")]
        apart = [f"{abs(best.auprc - other.auprc):.3f} {_side(best, other)} {name}" for other, name in than]
        return f"{best.name} (AUPRC {best.auprc:.3f}): {', '.join(apart)}"

    def to_dict(self) -> dict[str, Any]:
        every = (*self.attentions, self.gradient, self.random)
        return {
            "texts": self.texts,
            "share": self.share,
            "weights": [vars(each) for each in every],
            "best": self.best.name,
        }


def _side(best: Rationale, other: Rationale) -> str:
    return "above" if best.auprc >= other.auprc else "below"


def score_rationales(
    weights: Mapping[str, Sequence[Weights]],
    marked: Sequence[Marked],
    probability: Callable[[Sequence[NDArray[np.bool_]]], NDArray[np.float64]],
    gradient: str,
    seeds: int = 3,
) -> RationaleScores:
    """`weights` of the words of every text, by the name of what weighs; `gradient` is the name of the one that is no attention.
    `probability` is that of the class each text was given when only the words that are True are read."""
    share = float(np.mean([words.mean() for words in marked]))
    whole = probability([np.ones(len(words), bool) for words in marked])

    def scored(name: str, of_texts: Sequence[Weights]) -> Rationale:
        best = [largest(each, share) for each in of_texts]
        overlaps = [overlap(chosen, words) for chosen, words in zip(best, marked, strict=True)]
        areas = [auprc(each, words) for each, words in zip(of_texts, marked, strict=True)]
        erased, kept = [], []
        for part in SHARES:
            chosen = [largest(each, part) for each in of_texts]
            erased.append(whole - probability([~words for words in chosen]))
            kept.append(whole - probability(chosen))
        f1, iou = np.mean(overlaps, axis=0)
        return Rationale(
            name, float(np.mean(areas)), float(f1), float(iou), float(np.mean(erased)), float(np.mean(kept))
        )

    by_chance = [scored("random words", _random(marked, seed)) for seed in range(seeds)]
    figures = ("auprc", "f1", "iou", "comprehensiveness", "sufficiency")
    random = Rationale(
        "random words", *(float(np.mean([getattr(each, name) for each in by_chance])) for name in figures)
    )
    attentions = tuple(scored(name, each) for name, each in weights.items() if name != gradient)
    return RationaleScores(len(marked), share, attentions, scored(gradient, weights[gradient]), random)


def auprc(weights: Weights, marked: Marked) -> float:
    """The area under the curve of precision over recall, by trapezoids; words of one weight come together."""
    order = np.argsort(-weights, kind="stable")
    hits, sorted_weights = marked[order].cumsum(), weights[order]
    ends = np.flatnonzero(np.append(np.diff(sorted_weights) != 0, True))  # the last word of each weight
    precision, recall = hits[ends] / (ends + 1), hits[ends] / max(hits[-1], 1)
    before = np.append(1.0, precision[:-1])
    return float(((precision + before) / 2 * np.diff(np.append(0.0, recall))).sum())


def largest(weights: Weights, share: float) -> NDArray[np.bool_]:
    """The words with the largest weights: this share of them, one at least."""
    count = max(1, round(share * len(weights)))
    chosen = np.zeros(len(weights), bool)
    chosen[np.argsort(-weights, kind="stable")[:count]] = True
    return chosen


def overlap(chosen: NDArray[np.bool_], marked: Marked) -> tuple[float, float]:
    """F1 and intersection over union."""
    both, either = int((chosen & marked).sum()), int((chosen | marked).sum())
    return 2 * both / max(int(chosen.sum() + marked.sum()), 1), both / max(either, 1)


def _random(marked: Sequence[Marked], seed: int) -> list[Weights]:
    draw = np.random.default_rng(seed)
    return [draw.random(len(words)) for words in marked]
