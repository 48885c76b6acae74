import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.errors import UserError
from saccade.views import merge_words


def test_keys_are_summed_and_queries_averaged():
    weights = [
        [0.5, 0.2, 0.3],
        [0.1, 0.3, 0.6],
        [0.2, 0.2, 0.6],
    ]
    # Queries 0 and 1 are one word, keys 1 and 2 are one word.
    np.testing.assert_allclose(merge_words(weights, [0, 0, 1], [0, 1, 1]), [[0.3, 0.7], [0.2, 0.8]], rtol=1e-6)


def test_words_of_one_token_each_change_nothing():
    weights = np.random.default_rng(0).dirichlet(np.ones(4), size=(2, 3)).astype(np.float32)
    np.testing.assert_array_equal(merge_words(weights, [0, 1, 2], [0, 1, 2, 3]), weights)


@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), st.lists(st.integers(1, 3), min_size=1, max_size=4))
def test_rows_still_sum_to_one(query_lengths, key_lengths):
    query_groups = np.repeat(np.arange(len(query_lengths)), query_lengths).tolist()
    key_groups = np.repeat(np.arange(len(key_lengths)), key_lengths).tolist()
    weights = np.random.default_rng(0).dirichlet(np.ones(len(key_groups)), size=(2, len(query_groups)))
    merged = merge_words(weights, query_groups, key_groups)
    assert merged.shape == (2, len(query_lengths), len(key_lengths))
    np.testing.assert_allclose(merged.sum(axis=-1), 1, rtol=1e-5)


def test_merging_equals_a_plain_loop():
    weights = np.random.default_rng(1).random((2, 5, 6))
    query_groups, key_groups = [0, 0, 1, 2, 2], [0, 1, 1, 2, 1, 0]
    expected = np.zeros((2, 3, 3))
    for head in range(2):
        for query, query_word in enumerate(query_groups):
            for key, key_word in enumerate(key_groups):
                expected[head, query_word, key_word] += weights[head, query, key] / query_groups.count(query_word)
    np.testing.assert_allclose(merge_words(weights, query_groups, key_groups), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("queries", "keys", "sentence"),
    [
        ([0], [0, 1], "1 word numbers were given for 2 query tokens"),
        ([0, 1], [0, 1, 2], "3 word numbers were given for 2 key tokens"),
        ([0, 2], [0, 1], "leave gaps"),
        ([-1, 0], [0, 1], "leave gaps"),
    ],
)
def test_groups_that_do_not_fit_are_refused_in_a_sentence(queries, keys, sentence):
    with pytest.raises(UserError, match=sentence):
        merge_words(np.ones((2, 2)) / 2, queries, keys)
