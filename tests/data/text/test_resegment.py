"""Splitting subwords for training: the text stays, the share of tokens taken apart is the one asked for, and a seed decides it."""

import numpy as np
import pytest
import torch

from saccade.data.text.resegment import ResegmentedPairs, TokenSplitter
from saccade.data.text.shards import TokenPairs
from saccade.data.text.tokenizer import Tokenizer, Vocabularies

TEXTS = ["the little boats are sailing to the little island", "an island of boats", "sailing is the little art"] * 5


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(TEXTS, kind="bpe", size=330)


def test_text_stays_and_segmentation_varies(tokenizer: Tokenizer) -> None:
    torch.manual_seed(0)
    splitter = TokenSplitter(tokenizer, 0.4)
    ids = np.array(tokenizer.encode(TEXTS[0]), np.uint16)
    seen = [splitter(ids).tolist() for _ in range(20)]
    assert {tokenizer.decode(tokens) for tokens in seen} == {TEXTS[0]}
    assert len({tuple(tokens) for tokens in seen}) > 10


def test_share_of_tokens_left_whole(tokenizer: Tokenizer) -> None:
    torch.manual_seed(0)
    (island,) = tokenizer.encode(" island")
    kept = np.mean([len(TokenSplitter(tokenizer, 0.3)(np.array([island]))) == 1 for _ in range(1000)])
    assert kept == pytest.approx(0.7, abs=0.05)


def test_halves_are_those_the_engine_merged(tokenizer: Tokenizer) -> None:
    """Certain splitting goes down to single bytes, every one of which is in the vocabulary."""
    splitter = TokenSplitter(tokenizer, 1 - 1e-9)
    assert splitter(np.array(tokenizer.encode("boats"))).tolist() == [tokenizer.encode(letter)[0] for letter in "boats"]


def test_same_seed_same_pairs(tokenizer: Tokenizer) -> None:
    pairs = TokenPairs.from_lists([(tokenizer.encode(TEXTS[0]), tokenizer.encode(TEXTS[1]))])
    split = ResegmentedPairs(pairs, Vocabularies(tokenizer, tokenizer), 0.3)

    def drawn() -> list[list[int]]:
        torch.manual_seed(5)
        return [side.tolist() for side in split[0]]

    assert drawn() == drawn()
