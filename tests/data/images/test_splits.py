"""Every image comes once an epoch, on any number of processes, in an order that the seed decides."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from saccade.data.images.files import Listing
from saccade.data.images.splits import batches, cut, split_listings


@settings(max_examples=30, deadline=None)
@given(labels=st.lists(st.sampled_from("abc"), max_size=60), share=st.floats(0, 0.9), seed=st.integers(0, 3))
def test_cutting_takes_a_share_of_every_class_and_loses_nothing(labels, share, seed):
    part, rest = cut(range(len(labels)), labels, share, np.random.default_rng(seed))
    assert sorted([*part, *rest]) == list(range(len(labels)))
    assert part == sorted(part)
    for label in set(labels):
        count, taken = labels.count(label), sum(labels[index] == label for index in part)
        assert taken == (max(round(share * count), 1) if count > 1 else round(share))


@settings(max_examples=40, deadline=None)
@given(count=st.integers(1, 300), batch=st.integers(1, 70), world=st.integers(1, 4), number=st.integers(0, 3))
def test_every_image_comes_exactly_once_an_epoch_on_any_number_of_processes(count, batch, world, number):
    alone = batches(count, batch, 5, number)
    assert sorted(np.concatenate(alone)) == list(range(count))
    assert all(1 <= len(part) <= batch for part in alone)
    assert max(map(len, alone)) - min(map(len, alone)) <= 1
    shares = [batches(count, batch, 5, number, (rank, world)) for rank in range(world)]
    for whole, *parts in zip(alone, *shares, strict=True):
        assert sorted(np.concatenate(parts)) == sorted(whole)


def test_epochs_differ_and_come_back_after_a_restart():
    first, second = batches(100, 10, 1, 0), batches(100, 10, 1, 1)
    assert [part.tolist() for part in first] == [part.tolist() for part in batches(100, 10, 1, 0)]
    assert [part.tolist() for part in first] != [part.tolist() for part in second]
    assert [part.tolist() for part in first] != [part.tolist() for part in batches(100, 10, 2, 0)]


@pytest.mark.parametrize(("held_out", "named", "kept"), [(0.1, (), 80), (0.04, (), 92), (0.04, ("test",), 96)])
def test_what_is_not_given_is_cut_from_train_by_the_share_asked_for(held_out, named, kept):
    listings = {name: Listing("here", [""] * 200, ["a", "b"] * 100, Image.open) for name in ("train", *named)}
    splits = split_listings(listings, ["a", "b"], seed=1, held_out=held_out)
    assert {name: len(part) for name, (_, part) in splits.items()} == {
        "train": 2 * kept,
        "valid": 200 * held_out,
        "test": 200 if named else 200 * held_out,
    }
    assert sorted([*splits["train"][1], *splits["valid"][1], *(() if named else splits["test"][1])]) == list(range(200))
