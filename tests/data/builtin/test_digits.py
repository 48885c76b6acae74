"""Digits written backwards."""

import pytest

from saccade.data.builtin.digits import LONGEST, reversed_digits
from saccade.data.builtin.phrasebook.phrases import Phrase
from saccade.errors import UserError


def test_the_target_is_the_source_backwards_and_aligned_on_the_anti_diagonal():
    for pair in reversed_digits("train", 2_000):
        source, target = pair.source.split(), pair.target.split()
        assert target == source[::-1]
        assert pair.alignment == tuple((i, len(source) - 1 - i) for i in range(len(source)))


def test_lengths_from_one_to_the_longest_are_equally_frequent():
    lengths = [len(pair.source.split()) for pair in reversed_digits("train", 6_000, longest=6)]
    assert set(lengths) == {1, 2, 3, 4, 5, 6}
    assert all(abs(lengths.count(length) / 6_000 - 1 / 6) < 0.04 for length in range(1, 7))


@pytest.mark.parametrize("longest", [1, 2, 10])
def test_no_pair_is_in_two_splits_and_none_is_empty(longest):
    train, valid, test = (
        {pair.source for seed in (1, 2) for pair in reversed_digits(split, 1_000, seed, longest)}
        for split in ("train", "valid", "test")
    )
    assert train
    assert valid
    assert test
    assert not train & valid
    assert not train & test
    assert not valid & test


def test_a_recipe_may_train_on_shorter_ones_than_it_is_tested_on(tmp_path):
    from saccade.data.text.corpus import CorpusConfig, prepare

    corpus = prepare(CorpusConfig(corpus="digits", tokenizer="words", examples=300, digits=4), tmp_path, print)
    assert max(len(source) for source, _ in (corpus.train[index] for index in range(300))) == 4
    assert max(len(phrase.source.split()) for phrase in corpus.test) == LONGEST


def test_the_same_question_gets_the_same_answer_and_more_of_it():
    assert reversed_digits("valid", 50, seed=5) == reversed_digits("valid", 80, seed=5)[:50]
    assert reversed_digits("valid", 50, seed=5) != reversed_digits("valid", 50, seed=6)
    assert isinstance(reversed_digits("test", 1)[0], Phrase)


def test_an_unknown_split_is_named_in_the_error():
    with pytest.raises(UserError, match="'dev'"):
        reversed_digits("dev", 1)
