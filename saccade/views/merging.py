"""Weights between subwords to weights between words.

A model looks from subword to subword; a person asks about words. Each side is merged by what its numbers mean:

- keys are summed: the attention that a query pays to a word is the attention it pays to all of the word's pieces;
- queries are averaged: each piece of a written word pays attention 1 in total, and so must the whole word. A sum would
  let long words count more than short ones.

So a row that summed to 1 between subwords sums to 1 between words (Clark et al. 2019, "What Does BERT Look At?",
merge the same way).

Axis legend: Q query tokens, K key tokens, V words on the query side, W words on the key side.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from saccade.errors import UserError


def merge_words(weights: ArrayLike, query_groups: Sequence[int], key_groups: Sequence[int]) -> NDArray[np.float32]:
    """Weights (..., Q, K) between tokens as weights (..., V, W) between words.

    A group list names the word of each token, counted from 0: ["▁un", "believ", "able", "▁cat"] is [0, 0, 0, 1].
    """
    array = np.asarray(weights, dtype=np.float32)
    if array.ndim < 2:
        raise UserError(f"Weights of shape {array.shape} cannot be merged; give them as (..., queries, keys).")
    of_query = _membership("query", query_groups, array.shape[-2])
    of_key = _membership("key", key_groups, array.shape[-1])
    averaging = of_query / of_query.sum(axis=0)
    # (V, Q) @ (..., Q, K) @ (K, W) -> (..., V, W)
    merged: NDArray[np.float32] = (averaging.T @ array @ of_key).astype(np.float32)
    return merged


def _membership(side: str, groups: Sequence[int], tokens: int) -> NDArray[np.float64]:
    """A (tokens, words) matrix with a 1 where a token belongs to a word."""
    if len(groups) != tokens:
        raise UserError(
            f"{len(groups)} word numbers were given for {tokens} {side} tokens; "
            "give the number of its word for each token."
        )
    words = max(groups, default=-1) + 1
    if set(groups) != set(range(words)):
        raise UserError(
            f"The {side} word numbers {sorted(set(groups))} leave gaps; "
            "count words from 0 and give each at least one token."
        )
    return np.eye(words)[list(groups)]
