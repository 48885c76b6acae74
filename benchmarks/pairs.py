"""Batches that look like Multi30k to a clock: random tokens, with the lengths of its sentences in subwords of an 8,000 vocabulary.

source length ~ exp(N(2.595, .312))            English: 14.1 ± 4.6 subwords
target length ~ source length · exp(N(.013, .179))   German, correlated with it as there (.87)
"""

import numpy as np

from saccade.data.text.batching import PairBatch, TokenBatches, collate
from saccade.data.text.shards import TokenPairs
from saccade.data.text.tokenizer import SPECIAL

VOCABULARY = 8000
TOKENS = 2048
LONGEST = 60


def batches(count: int, tokens: int = TOKENS, seed: int = 1) -> list[PairBatch]:
    """So many padded batches of sentences of nearly equal length, the same ones for the same seed."""
    generator = np.random.default_rng(seed)
    pairs = 29_000
    source = np.exp(generator.normal(2.595, 0.312, pairs))
    target = source * np.exp(generator.normal(0.013, 0.179, pairs))
    lengths = np.clip(np.rint(np.stack((source, target), 1)), 2, LONGEST).astype(int)
    tokenised = TokenPairs.from_lists(
        [tuple(generator.integers(len(SPECIAL), VOCABULARY, length).tolist() for length in pair) for pair in lengths]
    )
    epoch = TokenBatches(*tokenised.lengths, tokens_per_batch=tokens, seed=seed).epoch(0)
    return [collate(tokenised, indices) for indices in epoch[:count]]


def useful_tokens(drawn: list[PairBatch]) -> int:
    """Target tokens that are not padding, the end of each sentence among them."""
    return sum(int(batch.target_lengths.sum()) for batch in drawn)
