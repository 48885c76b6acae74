"""The C kernels for sentences against torch's attention in double precision."""

from itertools import accumulate
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.kernels import compiled, sentences
from saccade.kernels.sentences import Kernel

TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}
MANY = settings(max_examples=60, deadline=None, derandomize=True)

needs_kernel = pytest.mark.skipif(compiled.kernels() is None, reason="the kernel was not compiled, or has no AVX2")
either_kernel = pytest.mark.parametrize("kernel", Kernel)


def rows(count, heads, features):
    return torch.randn(count, heads, features, requires_grad=True)


def one_by_one(query, key, value, query_lengths, key_lengths, visible, causal, scale):
    """Torch's attention in double precision, a sentence at a time."""
    contexts, first, first_key = [], 0, 0
    for queries, keys in zip(query_lengths, key_lengths, strict=True):
        q, k, v = (
            each[start : start + length].double().transpose(0, 1)
            for each, start, length in ((query, first, queries), (key, first_key, keys), (value, first_key, keys))
        )
        mask = torch.ones(queries, keys, dtype=torch.bool)
        if visible is not None:
            mask = mask & visible[first_key : first_key + keys]
        if causal:
            mask = mask.tril()
        scores = (q @ k.transpose(1, 2) * scale).masked_fill(~mask, -torch.inf)
        weights = torch.softmax(scores, -1).nan_to_num(0.0).masked_fill(~mask, 0.0)
        contexts.append((weights @ v).transpose(0, 1))
        first, first_key = first + queries, first_key + keys
    return torch.cat(contexts)


def starts(lengths):
    return torch.tensor([0, *accumulate(lengths)])


@needs_kernel
@either_kernel
@MANY
@given(
    lengths=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=6),
    heads=st.integers(1, 3),
    units=st.sampled_from([1, 2, 3, 5]),
    causal=st.booleans(),
    hides=st.booleans(),
)
def test_sentences_of_any_lengths_get_what_torch_gives_each(kernel, lengths, heads, units, causal, hides):
    features = units * kernel.unit
    queries = [first for first, _ in lengths]
    keys = queries if causal else [second for _, second in lengths]
    query, key, value = (rows(sum(each), heads, features) for each in (queries, keys, keys))
    visible = torch.rand(sum(keys)) < 0.7 if hides else None
    expected = one_by_one(query, key, value, queries, keys, visible, causal, 0.3)
    gradient = torch.randn(expected.shape)
    found = sentences.attend_rows(kernel, query, key, value, starts(queries), starts(keys), visible, causal, 0.3)
    gradients = torch.autograd.grad(found, (query, key, value), gradient)
    torch.testing.assert_close(found.double(), expected, **TOLERANCE)
    for ours, theirs in zip(gradients, torch.autograd.grad(expected, (query, key, value), gradient), strict=True):
        torch.testing.assert_close(ours, theirs, **TOLERANCE)


@needs_kernel
@either_kernel
def test_more_threads_than_sentences_change_nothing(kernel):
    query = rows(700, 2, 64)  # enough for threads to be worth starting
    at = starts([300, 400])
    expected = sentences.attend_rows(kernel, query, query, query, at, at)
    with patch.object(torch, "get_num_threads", lambda: 1000):
        assert torch.equal(sentences.attend_rows(kernel, query, query, query, at, at), expected)


@needs_kernel
@either_kernel
def test_who_sees_nothing_gets_zeros_and_finite_gradients(kernel):
    query, key, value = rows(3, 1, 16), rows(4, 1, 16), rows(4, 1, 16)
    at, keys_at = starts([3]), starts([4])
    context = sentences.attend_rows(kernel, query, key, value, at, keys_at, torch.zeros(4, dtype=torch.bool))
    assert torch.equal(context, torch.zeros_like(context))
    for gradient in torch.autograd.grad(context.sum(), (query, key, value)):
        assert torch.equal(gradient, torch.zeros_like(gradient))


@needs_kernel
@either_kernel
def test_a_sentence_without_keys_and_one_without_queries_get_nothing_and_disturb_nobody(kernel):
    query, key, value = rows(5, 2, 16), rows(4, 2, 16), rows(4, 2, 16)
    context = sentences.attend_rows(kernel, query, key, value, starts([2, 0, 3]), starts([0, 1, 3]))
    assert torch.equal(context[:2], torch.zeros(2, 2, 16))
    alone = sentences.attend_rows(kernel, query[2:], key[1:], value[1:], starts([3]), starts([3]))
    assert torch.equal(context[2:], alone)
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(context.sum(), (query, key, value)))


@needs_kernel
@either_kernel
def test_no_sentence_gives_none(kernel):
    none = rows(0, 2, 16)
    assert sentences.attend_rows(kernel, none, none, none, starts([]), starts([])).shape == (0, 2, 16)


def strange(bits):
    """A float of these bits."""
    return torch.tensor([bits], dtype=torch.int32).view(torch.float32)


@needs_kernel
@either_kernel
@pytest.mark.parametrize("which", [0, 1, 2], ids=["query", "key", "value"])
@pytest.mark.parametrize(
    "bad",
    [torch.tensor(torch.nan), strange(0x7FC00001), strange(0x7FFFFFFF)],
    ids=["nan", "with a payload", "of a GPU"],
)
def test_what_is_no_number_spoils_its_own_sentence_only_and_is_not_hidden(kernel, which, bad):
    inputs = [torch.randn(12, 1, 16) for _ in range(3)]
    spoilt = [each.clone() for each in inputs]
    spoilt[which][1] = bad
    at = starts([3, 9])
    context = sentences.attend_rows(kernel, *spoilt, at, at)
    assert context[1].isnan().all()  # its own query; of a key or a value, everybody's
    assert context[:3].isnan().all() or which == 0
    assert torch.equal(context[3:], sentences.attend_rows(kernel, *inputs, at, at)[3:])


@needs_kernel
@either_kernel
def test_what_is_infinite_is_not_hidden_either(kernel):
    query = torch.randn(3, 1, 16)
    query[1] = torch.inf
    assert not sentences.attend_rows(kernel, query, query, query, starts([3]), starts([3])).isfinite().all()


@needs_kernel
@either_kernel
def test_large_scores_neither_overflow_nor_lose_their_order(kernel):
    query = torch.full((1, 1, 16), 1e4)
    key = torch.stack([torch.full((1, 16), 1e4), torch.full((1, 16), -1e4), torch.full((1, 16), 9.9e3)])
    value = torch.arange(1.0, 4.0)[:, None, None].expand(3, 1, 16).contiguous()
    context = sentences.attend_rows(kernel, query, key, value, starts([1]), starts([3]))
    assert torch.equal(context, torch.ones(1, 1, 16))


@needs_kernel
def test_many_thousand_keys_are_summed_without_losing_digits():
    query, key = torch.zeros(96, 1, 16), torch.zeros(50_000, 1, 16)
    value = torch.rand(50_000, 1, 16)
    found = sentences.attend_rows(Kernel.LONG, query, key, value, starts([96]), starts([50_000]))
    torch.testing.assert_close(found[0].double(), value.double().mean(0), rtol=2e-6, atol=0)


@needs_kernel
@either_kernel
def test_a_mask_may_change_after_it_was_read(kernel):
    query, visible = rows(6, 1, 16), torch.tensor([1, 0, 1, 1, 0, 1], dtype=torch.bool)
    at = starts([6])
    gradients = []
    for changes in (False, True):
        mask = visible.clone()
        context = sentences.attend_rows(kernel, query, query, query, at, at, mask)
        if changes:
            mask.fill_(True)
        gradients += torch.autograd.grad(context.square().sum(), query)
    assert torch.equal(*gradients)


@needs_kernel
def test_the_answer_for_short_sentences_may_be_written_over():
    query = rows(6, 1, 16)
    context = sentences.attend_rows(Kernel.SHORT, query, query, query, starts([6]), starts([6]))
    context.mul_(2).sum().backward()
    assert query.grad.isfinite().all()


@needs_kernel
@either_kernel
def test_rows_may_stand_apart_and_heads_in_any_order(kernel):
    wide = torch.randn(6, 2, 48, requires_grad=True)
    query, key, value = wide.split(16, dim=2)  # rows and heads are further apart than they are long
    turned = [each.transpose(0, 1).contiguous().transpose(0, 1) for each in (query, key, value)]
    at = starts([4, 2])
    expected = sentences.attend_rows(kernel, *(each.contiguous() for each in (query, key, value)), at, at)
    for given_as in ((query, key, value), turned):
        assert torch.equal(sentences.attend_rows(kernel, *given_as, at, at), expected)
    gradient = torch.randn(2, 6, 16).transpose(0, 1)
    expected.backward(gradient)
    other = wide.grad.clone()
    wide.grad = None
    sentences.attend_rows(kernel, query, key, value, at, at).backward(gradient)
    torch.testing.assert_close(wide.grad, other)


@needs_kernel
@either_kernel
@pytest.mark.parametrize("causal", [False, True], ids=["all keys", "causal"])
@pytest.mark.parametrize("wide", [False, True], ids=["AVX2", "AVX-512"])
@pytest.mark.parametrize("features", [48, 64, 112])
def test_long_sentences_get_what_torch_gives_each_on_every_processor(kernel, features, wide, causal):
    if wide and not compiled.wide_kernels():
        pytest.skip("a processor without AVX-512")
    torch.manual_seed(3)
    queries = [300, 1, 97, 145]
    keys = queries if causal else [333, 200, 1, 96]
    query, key, value = (rows(sum(each), 2, features) for each in (queries, keys, keys))
    visible = torch.rand(sum(keys)) < 0.7
    gradient = torch.randn(query.shape)
    expected = one_by_one(query, key, value, queries, keys, visible, causal, 0.3)
    wanted = (expected, *torch.autograd.grad(expected, (query, key, value), gradient.double()))
    answers = []
    with patch.object(compiled, "wide_kernels", compiled.wide_kernels if wide else dict):
        for threads in (1, 2, 5):
            with patch.object(torch, "get_num_threads", lambda threads=threads: threads):
                found = sentences.attend_rows(
                    kernel, query, key, value, starts(queries), starts(keys), visible, causal, 0.3
                )
                answers.append((found, *torch.autograd.grad(found, (query, key, value), gradient)))
    for theirs, *ours in zip(wanted, *answers, strict=True):
        torch.testing.assert_close(ours[0].double(), theirs.double(), rtol=1e-4, atol=3e-5)  # sums of hundreds
        assert all(torch.equal(ours[0], other) for other in ours)


@needs_kernel
def test_the_queries_of_a_single_head_are_shared_among_threads():
    query, key = rows(700, 1, 32), rows(300, 1, 32)
    at, keys_at = starts([700]), starts([300])
    expected = sentences.attend_rows(Kernel.LONG, query, key, key, at, keys_at)
    torch.testing.assert_close(
        expected.double(), one_by_one(query, key, key, [700], [300], None, False, 1.0), **TOLERANCE
    )
    for threads in (2, 3, 64):
        with patch.object(torch, "get_num_threads", lambda threads=threads: threads):
            assert torch.equal(sentences.attend_rows(Kernel.LONG, query, key, key, at, keys_at), expected)


@needs_kernel
@either_kernel
def test_nothing_is_kept_where_no_gradient_will_be_asked_for(kernel):
    query = rows(200, 2, 16)
    at = starts([50, 150])
    expected = sentences.attend_rows(kernel, query, query, query, at, at, None, True)
    with torch.no_grad(), patch.object(sentences, "_saved_count") as saved_count:
        assert torch.equal(sentences.attend_rows(kernel, query, query, query, at, at, None, True), expected)
    assert not saved_count.called


@needs_kernel
@either_kernel
def test_what_stands_for_itself_keeps_a_negative_scale(kernel):
    query = rows(6, 1, 16)
    at = starts([6])
    expected = one_by_one(query, query, query, [6], [6], None, True, -0.7)
    torch.testing.assert_close(
        sentences.attend_rows(kernel, query, query, query, at, at, None, True, -0.7).double(), expected, **TOLERANCE
    )


@needs_kernel
@either_kernel
def test_a_kernel_itself_refuses_what_it_cannot_read(kernel):
    with pytest.raises(ValueError, match="float32"):
        sentences.attend_rows(kernel, *[torch.randn(2, 1, 16).double()] * 3, starts([2]), starts([2]))
    with pytest.raises(ValueError, match="multiple of"):
        sentences.attend_rows(kernel, *[torch.randn(2, 1, 12)] * 3, starts([2]), starts([2]))
