"""Scores of captions: BLEU-1 to 4 against all references (sacreBLEU), CIDEr-D, exact match.

Everything is scored in lower case and without punctuation. CIDEr-D (Vedantam 2015) of a caption c against its m references s_j:

    CIDEr-D(c) = 10 / (4 m) · Σ_n Σ_j exp(-(|c| - |s_j|)² / 2σ²) · min(g_n(c), g_n(s_j)) · g_n(s_j) / (|g_n(c)| |g_n(s_j)|),    σ = 6

where g_n counts n-grams weighted by log(images / images whose references have the n-gram), over the images that are scored. METEOR
is missing: it needs WordNet.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any

from sacrebleu.metrics.bleu import BLEU

from saccade.data.captions.files import plain

_ORDERS = (1, 2, 3, 4)
_SPREAD = 6.0  # σ of CIDEr-D, in words

Gram = tuple[str, ...]
Weights = list[dict[Gram, float]]  # for each length of an n-gram


@dataclass(frozen=True)
class CaptionScores:
    images: int
    bleu: tuple[float, ...]  # BLEU-1 to BLEU-4
    cider: float
    exact: float  # percent that are one of their references, word for word
    signature: str  # of BLEU-4
    perplexity: float | None = None
    pointing: float | None = None  # percent of named objects whose region got the largest weight
    mass: float | None = None  # percent of the weight on the named object
    chance: float | None = None  # percent of `pointing` by a random cell

    def rows(self) -> list[tuple[str, str]]:
        """Names and values, formatted."""
        shown = [("images", f"{self.images:,}")]
        shown += [(f"BLEU-{order}", f"{value:.2f}") for order, value in zip(_ORDERS, self.bleu, strict=True)]
        shown += [("CIDEr-D", f"{self.cider:.3f}"), ("exact", f"{self.exact:.1f} %")]
        if self.perplexity is not None:
            shown.append(("perplexity", f"{self.perplexity:.3f}"))
        named = {"looks at what it names": self.pointing, "weight on it": self.mass, "by chance": self.chance}
        shown += [(name, f"{value:.1f} %") for name, value in named.items() if value is not None]
        return [*shown, ("sacreBLEU signature", self.signature)]

    def columns(self) -> list[tuple[str, list[str]]]:
        """No second table."""
        return []

    def compared(self) -> dict[str, float]:
        """The figures that models are compared by, the most important one first."""
        shown = {"BLEU-4": self.bleu[3], "CIDEr-D": self.cider, "exact %": self.exact}
        more = {"perplexity": self.perplexity, "pointing %": self.pointing}
        return shown | {name: value for name, value in more.items() if value is not None}

    def to_dict(self) -> dict[str, Any]:
        values = {name: value for name, value in asdict(self).items() if value is not None}
        return values | {"bleu": list(self.bleu)}


def score_captions(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> CaptionScores:
    """Corpus scores of one caption for each image against all references of that image, however many it has."""
    captions = [plain(output) for output in outputs]
    truths = [[plain(reference) for reference in own] for own in references]
    bleus = [BLEU(max_ngram_order=order, tokenize="none", lowercase=True, force=True) for order in _ORDERS]
    streams = [list(stream) for stream in zip_longest(*truths, fillvalue="")]  # sacreBLEU leaves empty references out
    scores = tuple(bleu.corpus_score(captions, streams).score for bleu in bleus)
    exact = sum(caption in own for caption, own in zip(captions, truths, strict=True))
    return CaptionScores(
        images=len(captions),
        bleu=scores,
        cider=cider_d(captions, truths),
        exact=100 * exact / max(len(captions), 1),
        signature=str(bleus[-1].get_signature()),
    )


def cider_d(captions: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """The mean over images of CIDEr-D, from 0 to 10."""
    counts = [[_grams(reference) for reference in own] for own in references]
    holders = Counter(gram for own in counts for gram in {gram for reference in own for gram in reference})
    most = math.log(max(len(references), 1))
    rarity = {gram: most - math.log(count) for gram, count in holders.items()}
    total = 0.0
    for caption, own in zip(captions, counts, strict=True):
        weighted = _weighted(_grams(caption), rarity, most)
        likeness = sum(
            _likeness(weighted, _weighted(reference, rarity, most), _words(caption) - n) for reference, n in _sized(own)
        )
        total += 10 * likeness / max(len(own), 1)
    return total / max(len(captions), 1)


def _grams(text: str) -> Counter[Gram]:
    words = text.split()
    return Counter(tuple(words[at : at + n]) for n in _ORDERS for at in range(len(words) - n + 1))


def _words(text: str) -> int:
    return len(text.split())


def _sized(own: Sequence[Counter[Gram]]) -> list[tuple[Counter[Gram], int]]:
    """Each reference with its number of words."""
    return [(grams, sum(count for gram, count in grams.items() if len(gram) == 1)) for grams in own]


def _weighted(counts: Counter[Gram], rarity: dict[Gram, float], unseen: float) -> Weights:
    weights: Weights = [{} for _ in _ORDERS]
    for gram, count in counts.items():
        weights[len(gram) - 1][gram] = count * rarity.get(gram, unseen)
    return weights


def _likeness(caption: Weights, reference: Weights, longer: int) -> float:
    """The mean over n of the clipped cosine, less for a difference in length."""
    total = 0.0
    for own, other in zip(caption, reference, strict=True):
        product = sum(min(weight, other[gram]) * other[gram] for gram, weight in own.items() if gram in other)
        norms = math.hypot(*own.values()) * math.hypot(*other.values())
        total += product / norms if norms else 0.0
    return total / len(_ORDERS) * math.exp(-(longer**2) / (2 * _SPREAD**2))
