"""Word alignments from soft attention, and their error against gold alignments.

Och and Ney 2003, "A Systematic Comparison of Various Statistical Alignment Models". With the predicted links A, the
links S that annotators are sure of and the links P that they find possible (S is part of P):

    AER = 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|)

A link is (source index, target index), both counted from 0; targets are the queries of a map and sources its keys.

Axis legend: Q target words (queries), K source words (keys).
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import numpy as np
from numpy.typing import ArrayLike

from saccade.errors import UserError

Link = tuple[int, int]
Links = AbstractSet[Link]


def hard_alignment(weights: ArrayLike, threshold: float = 0.0, reverse: ArrayLike | None = None) -> set[Link]:
    """Link every target word to the source word it attends to most, from weights (Q, K).

    A word whose largest weight is 0 or below `threshold` stays unlinked. `reverse`, weights (K, Q) of the opposite
    direction, keeps only links that both directions have: from a model trained in the opposite direction, or `weights.T`
    to require that the two words choose each other.
    """
    array = np.asarray(weights, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] == 0:
        raise UserError(
            f"an alignment needs weights (targets, sources) of one head, but their shape is {array.shape}: "
            "take `.averaged().weights[0]` of a map"
        )
    best = array.argmax(axis=1)
    links = {
        (int(source), target)
        for target, source in enumerate(best)
        if array[target, source] > 0 and array[target, source] >= threshold
    }
    if reverse is None:
        return links
    backward = np.asarray(reverse)
    if backward.shape != array.T.shape:
        raise UserError(f"the reverse weights have shape {backward.shape}; weights {array.shape} need {array.T.shape}")
    return links & {(source, target) for target, source in hard_alignment(backward, threshold)}


def alignment_error_rate(predicted: Links, sure: Links, possible: Links | None = None) -> float:
    """AER of one sentence pair, 0 for perfect and 1 for nothing right. Sure links are always possible too."""
    return corpus_alignment_error_rate([predicted], [sure], None if possible is None else [possible])


def corpus_alignment_error_rate(
    predicted: Sequence[Links], sure: Sequence[Links], possible: Sequence[Links] | None = None
) -> float:
    """AER of a corpus: the counts are summed over sentences before dividing, so long sentences weigh more."""
    possible = sure if possible is None else possible
    if not len(predicted) == len(sure) == len(possible):
        raise UserError(
            f"{len(predicted)} predicted, {len(sure)} sure and {len(possible)} possible alignments: "
            "give one of each per sentence pair"
        )
    agreed = total = 0
    for links, certain, allowed in zip(predicted, sure, possible, strict=True):
        agreed += len(links & certain) + len(links & (allowed | certain))
        total += len(links) + len(certain)
    return 1 - agreed / total if total else 0.0
