"""Masks by two numbers or by lengths, against loops."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from saccade.attention import CAUSAL, Band, padding
from saccade.attention.visibility import both

from .cases import SOME

REACH = st.none() | st.integers(0, 6)


@given(before=REACH, after=REACH, queries=st.integers(0, 6), keys=st.integers(0, 7), first=st.integers(0, 5))
@SOME
def test_a_band_is_the_keys_from_before_to_after_the_query(before, after, queries, keys, first):
    mask = Band(before, after).visible(queries, keys, first)
    assert mask.dtype == torch.bool
    assert mask.shape == (queries, keys)
    for q in range(queries):
        for k in range(keys):
            position = first + q
            expected = (before is None or k >= position - before) and (after is None or k <= position + after)
            assert mask[q, k].item() == expected


def test_causal_is_the_lower_triangle():
    assert torch.equal(CAUSAL.visible(5, 5), torch.ones(5, 5).tril().bool())


def test_causal_for_one_step_sees_all_that_came_before():
    assert CAUSAL.visible(1, 4, first_query=3).tolist() == [[True, True, True, True]]
    assert CAUSAL.visible(1, 4, first_query=2).tolist() == [[True, True, True, False]]


@pytest.mark.parametrize(("side", "band"), [("before", {"before": -1}), ("after", {"before": 2, "after": -3})])
def test_a_band_that_reaches_a_negative_distance_is_refused(side, band):
    with pytest.raises(ValueError, match=rf"{side} must be an integer, 0 or more.*got -\d"):
        Band(**band)


def test_padding_shows_the_first_keys_of_each_sequence():
    mask = padding(torch.tensor([2, 0, 3]))
    assert mask.tolist() == [[[True, True, False]], [[False, False, False]], [[True, True, True]]]


def test_padding_to_a_given_length():
    assert padding(torch.tensor([1, 2]), longest=4).shape == (2, 1, 4)
    assert padding(torch.empty(0, dtype=torch.long), longest=4).shape == (0, 1, 4)


def test_both_is_what_both_masks_show_and_none_hides_nothing():
    first, second = torch.rand(3, 1, 4) < 0.5, torch.rand(2, 4) < 0.5
    assert torch.equal(both(first, second), first & second)
    assert both(first, None) is first
    assert both(None, second) is second
    assert both(None, None) is None
