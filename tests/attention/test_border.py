"""Wrong arguments are refused with a clear message, on every route, before anything is computed."""

import re

import numpy as np
import pytest
import torch

from saccade.attention import (
    CAUSAL,
    Additive,
    Attend,
    Band,
    Dot,
    Hard,
    Learned,
    LocalMonotonic,
    LocalPredictive,
    LocalSelfAttention2d,
    MultiHead,
    RelativeBias,
    ScaledDot,
    Sinusoidal,
    padding,
)

X = torch.randn(2, 3, 8)


def refused(words):
    return pytest.raises(ValueError, match=words)


def test_as_many_values_as_keys_are_wanted():
    with pytest.raises(ValueError, match="every key needs a value; got 3 keys and 2 values"):
        Attend(Dot(4))(torch.randn(1, 2, 4), torch.randn(1, 3, 4), torch.randn(1, 2, 4))
    with pytest.raises(ValueError, match="every key needs a value; got 3 keys and 2 values"):
        MultiHead(8, heads=2)(torch.randn(1, 2, 8), torch.randn(1, 3, 8), torch.randn(1, 2, 8))


@pytest.mark.parametrize("length", [5, 300])  # by the explicit route and by faster ones
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8])
def test_a_mask_of_numbers_is_refused_and_bias_is_named(length, dtype):
    x = torch.randn(2, length, 32)
    for attend in (MultiHead(32, heads=2), lambda x, **how: Attend(ScaledDot(32))(x, x, **how)):
        with pytest.raises(ValueError, match=rf"must be boolean.*got {dtype}: .*mask > 0.*bias"):
            attend(x, visible=torch.ones(2, 1, length, dtype=dtype))


@pytest.mark.parametrize("shape", [(2, 5), (2, 4, 5), (3, 1, 5), (2, 1, 3, 5), (2, 3, 4)])
def test_a_mask_that_does_not_broadcast_to_the_scores_is_refused_with_both_shapes(shape):
    query, key, visible = torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.ones(shape, dtype=torch.bool)
    with pytest.raises(
        ValueError, match=rf"\(2, 3, 5\) with queries and keys last; got {re.escape(str(shape))}: .*\(batch, 1, keys\)"
    ):
        Attend(Dot(4))(query, key, visible=visible)


def test_a_mask_of_keys_for_heads_is_told_with_an_axis_for_them():
    with refused(r"got \(2, 1, 7\): a mask of keys alone is \(batch, 1, 1, keys\)"):
        Attend(Dot(4))(torch.randn(2, 3, 5, 4), torch.randn(2, 3, 7, 4), visible=padding(torch.tensor([2, 7])))


@pytest.mark.parametrize("bias", [torch.ones(3, 3).bool(), torch.ones(3, 3).long(), 0.5])
def test_a_bias_that_is_no_tensor_of_numbers_is_refused_and_visible_is_named(bias):
    with refused(r"added to the scores; got .*: pass a mask as visible"):
        MultiHead(8, heads=2)(X, bias=bias)


def test_a_mask_is_no_bias_beside_relative_positions_either():
    with refused("pass a mask as visible"):
        MultiHead(8, heads=2, relative=RelativeBias(2))(X, bias=torch.ones(3, 3).bool())


def test_a_bias_is_for_a_sentence_as_a_mask_is_and_for_a_head_with_four_axes():
    layer, bias = MultiHead(8, heads=2), torch.randn(2, 3, 3)
    together = layer(X, bias=bias).context
    for b in range(2):
        torch.testing.assert_close(layer(X[b : b + 1], bias=bias[b]).context[0], together[b])
    assert not torch.allclose(layer(X, bias=bias[None]).context, together)
    with refused(r"bias must broadcast .*got \(4, 1, 3, 3\): one for each head is \(1, heads"):
        layer(X, bias=torch.randn(4, 3, 3))
    with refused(r"bias must broadcast to the scores, \(2, 3, 3\) .*got \(3, 2, 3, 3\)"):
        Attend(Dot(8))(X, X, bias=torch.randn(3, 2, 3, 3))


def test_a_query_without_an_axis_of_queries_is_refused():
    attend = Attend(Dot(8))
    with refused(r"got \(2, 8\) for keys \(2, 3, 8\): .*query\[:, None\], .*query\[None\]"):
        attend(X[:, 0], X)
    with refused(r"query\[:, None\]"):
        attend.recall(X[:, 0], attend.remember(X))


def test_queries_without_a_batch_ask_every_batch():
    shared = torch.randn(4, 8)
    torch.testing.assert_close(Attend(Dot(8))(shared, X).context, Attend(Dot(8))(shared.expand(2, 4, 8), X).context)


def test_what_was_put_in_the_place_of_a_part_is_used():
    layer, plain = MultiHead(8, heads=2), MultiHead(8, heads=2)
    plain.load_state_dict(layer.state_dict())
    layer.key = torch.nn.Sequential(layer.key)
    torch.testing.assert_close(layer(X).context, plain(X).context)


def test_whole_numbers_of_numpy_are_whole_numbers():
    two = np.int64(2)
    assert Band(two, 0) == Band(2, 0)
    assert LocalMonotonic(two).reach == 2
    assert MultiHead(8, two)(X).context.shape == X.shape


def test_queries_and_keys_of_different_batches_are_refused():
    with refused(r"same batch; got \(2, 3, 8\), \(5, 3, 8\) and \(5, 3, 8\)"):
        Attend(Dot(8))(X, torch.randn(5, 3, 8))


@pytest.mark.parametrize("band", [True, "causal", 3, torch.ones(3, 3).bool()])
def test_what_is_no_band_is_refused(band):
    with refused("band must be a Band, such as CAUSAL"):
        MultiHead(8, heads=2)(X, band=band)


NO_TENSORS = [
    (CAUSAL, "as band"),
    ([[True]], "convert it to a tensor"),
    (np.ones((3, 3), bool), "convert it to a tensor"),
]


@pytest.mark.parametrize(("visible", "hint"), NO_TENSORS)
def test_a_mask_that_is_no_tensor_is_refused(visible, hint):
    with refused(f"(?s)visible must be a boolean tensor.*{hint}"):
        MultiHead(8, heads=2)(X, visible=visible)


def test_a_mask_on_another_device_is_refused():
    with refused("visible is on meta and the queries are on cpu"):
        Attend(Dot(8))(X, X, visible=torch.ones(3, 3, dtype=torch.bool, device="meta"))


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (torch.randn(3, 8), r"got \(3, 8\): one sequence is query\[None\]"),
        (torch.randn(2, 3, 9), r"got \(2, 3, 9\)$"),
        (np.zeros((2, 3, 8)), "got ndarray$"),
    ],
)
def test_a_layer_with_heads_says_what_its_input_is(query, words):
    with refused(rf"^query must be (a tensor )?\(batch, length, 8\); {words}"):
        MultiHead(8, heads=2)(query)


def test_a_layer_with_heads_says_what_its_keys_and_values_are():
    layer = MultiHead(8, heads=2, key_size=5, value_size=6)
    with refused(r"key must be \(batch, length, 5\); got \(2, 3, 8\)"):
        layer(X, X, torch.randn(2, 3, 6))
    with refused(r"value must be \(batch, length, 6\); got \(2, 3, 5\)"):
        layer(X, torch.randn(2, 3, 5))


NO_LENGTHS = [torch.ones(2, 9).long(), torch.ones(2).bool(), torch.tensor([2.5, 1.0]), torch.tensor(3)]


@pytest.mark.parametrize("lengths", NO_LENGTHS)
def test_padding_takes_lengths_and_no_mask(lengths):
    with refused(r"the length of each sequence, integers \(batch,\); got .*mask.bool\(\)\[:, None\]"):
        padding(lengths, 9)


def test_padding_takes_lengths_of_a_list():
    assert torch.equal(padding([2, 3], 4), padding(torch.tensor([2, 3]), 4))
    assert padding([], 4).shape == (0, 1, 4)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Attend("dot"), "score must be an instance with its sizes, such as .*got 'dot'"),
        (lambda: Attend(ScaledDot), "such as ScaledDot"),
        (lambda: Attend(Dot(4), "hard"), "selection must be an instance, such as Hard.*got 'hard'"),
        (lambda: Attend(Dot(4), Hard), "selection must be an instance"),
        (lambda: Attend(Dot(4), dropout=2.0), "from 0 to 1; got 2.0"),
        (lambda: MultiHead(8, 2, dropout=-0.5), "from 0 to 1; got -0.5"),
        (lambda: Attend(Dot(4), route="fuse"), "'fuse' is not a route: choose explicit, fused, .*or None"),
        (lambda: MultiHead(8, 2, score="dot"), "score must be a class .* such as ScaledDot or Additive; got 'dot'"),
        (lambda: MultiHead(8, 2.0), "got size 8 and 2.0 heads"),
        (lambda: MultiHead(0, 2), "got size 0 and 2 heads"),
        (lambda: MultiHead(8, 4, relative=RelativeBias(1)), "for 1 heads; this layer has 4"),
        (lambda: Additive(16, hidden=0), "at least one unit; got 0"),
        (lambda: Dot(0), "at least one feature"),
        (lambda: RelativeBias(2, 32, farthest=8), "nearest 8 distances have a bucket each, .*got 8"),
        (lambda: RelativeBias(2, buckets=2), "multiple of 2, with at least 2 per side; got 2"),
        (lambda: RelativeBias(2, buckets=5), "multiple of 2.*got 5"),
        (lambda: RelativeBias(2, buckets=1, both_ways=False), "at least 2 per side; got 1"),
        (lambda: Band(2.5, 0), "an integer, 0 or more, or None for no limit; got 2.5"),
        (lambda: LocalMonotonic(2.5), "an integer, 0 or more; got 2.5"),
    ],
)
def test_what_cannot_be_made_is_refused_when_it_is_made(make, words):
    with refused(words):
        make()


def local_over(image):
    return LocalSelfAttention2d(3, 8, kernel_size=3, heads=2)(image)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Attend(Dot(8))(X, X, first_query=-3), "0 or more; got -3"),
        (lambda: Learned(8, 20)(5, -3), "positions count from 0; got -3"),
        (lambda: Sinusoidal(8)(5, -3), "positions count from 0; got -3"),
        (lambda: MultiHead(8, 2, selection=LocalPredictive(8))(X), r"queries of size 8 \(of one head\); got 4"),
        (lambda: local_over(torch.randn(1, 4, 5, 5)), r"3 channels, .*got torch.float32 \(1, 4, 5, 5\)"),
        (lambda: local_over(torch.randn(3, 5, 5)), r"got torch.float32 \(3, 5, 5\)"),
        (lambda: local_over(torch.zeros(1, 3, 5, 5).byte()), "must be floats .*got torch.uint8"),
    ],
)
def test_what_cannot_be_computed_is_said(call, words):
    with refused(words):
        call()
