"""The same sentence in other subwords each time it is seen, so that a small corpus teaches more than its words.

BPE-dropout (Provilkov et al. 2020, https://arxiv.org/abs/1910.13267) leaves out merges at random while a text is encoded. Here the text
is encoded once and kept; a token is taken apart again into the two that were merged into it, each with the same probability, and so are
its parts. That needs no text and no tokenizer in the training loop, and draws from torch's generator, so that a resumed run sees the same.
"""

from typing import Any

import numpy as np
import torch

from saccade.data.text.shards import TokenPairs
from saccade.data.text.tokenizer import Tokenizer, Vocabularies

Array = np.ndarray[Any, np.dtype[Any]]


class ResegmentedPairs:
    """Pairs of which both sides are taken apart anew whenever they are asked for."""

    def __init__(self, pairs: TokenPairs, vocabularies: Vocabularies, chance: float):
        self._pairs = pairs
        self._source = TokenSplitter(vocabularies.source, chance)
        self._target = self._source if vocabularies.joint else TokenSplitter(vocabularies.target, chance)

    def __getitem__(self, index: int) -> tuple[Array, Array]:
        source, target = self._pairs[index]
        return self._source(source), self._target(target)


class TokenSplitter:
    """Splits tokens of one vocabulary with probability `chance`."""

    def __init__(self, tokenizer: Tokenizer, chance: float):
        self._chance = chance
        self._halves = _halves(tokenizer)

    def __call__(self, tokens: Array) -> Array:
        tokens = tokens.astype(np.int64)
        may_split = np.ones(len(tokens), bool)
        while may_split.any():
            drawn = torch.rand(len(tokens)).numpy() < self._chance
            split = drawn & may_split & (self._halves[tokens, 0] >= 0)
            first = np.flatnonzero(split) + np.arange(split.sum())  # where the left halves come to stand
            tokens, halves = np.repeat(tokens, 1 + split), self._halves[tokens[split]]
            tokens[first], tokens[first + 1] = halves[:, 0], halves[:, 1]
            may_split = np.zeros(len(tokens), bool)
            may_split[first] = may_split[first + 1] = True
        return tokens


def _halves(tokenizer: Tokenizer) -> Array:
    """(vocabulary, 2): the two tokens that each one was merged from, or -1, -1."""
    number = {name: token for token, name in enumerate(tokenizer.vocabulary)}
    halves = np.full((len(number), 2), -1, np.int64)
    for left, right in reversed(tokenizer.merges):  # the first merge that gives a token is the one that made it
        halves[number[left + right]] = number[left], number[right]
    return halves
