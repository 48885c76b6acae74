"""The kernels for sentences against torch's own in double precision, padded and packed, and what happens where they do not fit."""

import shutil
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import forward_ad
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from saccade.attention import (
    CAUSAL,
    Attend,
    Band,
    Cosine,
    Dot,
    General,
    Hard,
    MultiHead,
    Packing,
    Perceptron,
    Route,
    ScaledDot,
    compiled,
    padding,
    routes,
    sentence_kernels,
    sentences,
)
from saccade.attention.lookup import Lookup
from saccade.attention.sentence_kernels import Kernel

TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}
MANY = settings(max_examples=60, deadline=None, derandomize=True)

needs_kernel = pytest.mark.skipif(compiled.kernels() is None, reason="the kernel was not compiled, or has no AVX2")
either_kernel = pytest.mark.parametrize("kernel", Kernel)


def test_the_kernel_is_there_wherever_a_compiler_is():
    capability = torch.backends.cpu.get_cpu_capability()
    if shutil.which("cc") and capability.startswith("AVX"):
        assert compiled.kernels() is not None
        assert bool(compiled.wide_kernels()) is (capability == "AVX512")


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
    return Packing(torch.tensor(lengths)).starts


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
    found = sentence_kernels.attend(kernel, query, key, value, starts(queries), starts(keys), visible, causal, 0.3)
    gradients = torch.autograd.grad(found, (query, key, value), gradient)
    torch.testing.assert_close(found.double(), expected, **TOLERANCE)
    for ours, theirs in zip(gradients, torch.autograd.grad(expected, (query, key, value), gradient), strict=True):
        torch.testing.assert_close(ours, theirs, **TOLERANCE)


@needs_kernel
@either_kernel
def test_more_threads_than_sentences_change_nothing(kernel):
    query = rows(700, 2, 64)  # enough for threads to be worth starting
    at = starts([300, 400])
    expected = sentence_kernels.attend(kernel, query, query, query, at, at)
    with patch.object(torch, "get_num_threads", lambda: 1000):
        assert torch.equal(sentence_kernels.attend(kernel, query, query, query, at, at), expected)


@needs_kernel
@either_kernel
def test_who_sees_nothing_gets_zeros_and_finite_gradients(kernel):
    query, key, value = rows(3, 1, 16), rows(4, 1, 16), rows(4, 1, 16)
    at, keys_at = starts([3]), starts([4])
    context = sentence_kernels.attend(kernel, query, key, value, at, keys_at, torch.zeros(4, dtype=torch.bool))
    assert torch.equal(context, torch.zeros_like(context))
    for gradient in torch.autograd.grad(context.sum(), (query, key, value)):
        assert torch.equal(gradient, torch.zeros_like(gradient))


@needs_kernel
@either_kernel
def test_a_sentence_without_keys_and_one_without_queries_get_nothing_and_disturb_nobody(kernel):
    query, key, value = rows(5, 2, 16), rows(4, 2, 16), rows(4, 2, 16)
    context = sentence_kernels.attend(kernel, query, key, value, starts([2, 0, 3]), starts([0, 1, 3]))
    assert torch.equal(context[:2], torch.zeros(2, 2, 16))
    alone = sentence_kernels.attend(kernel, query[2:], key[1:], value[1:], starts([3]), starts([3]))
    assert torch.equal(context[2:], alone)
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(context.sum(), (query, key, value)))


@needs_kernel
@either_kernel
def test_no_sentence_gives_none(kernel):
    none = rows(0, 2, 16)
    assert sentence_kernels.attend(kernel, none, none, none, starts([]), starts([])).shape == (0, 2, 16)


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
    context = sentence_kernels.attend(kernel, *spoilt, at, at)
    assert context[1].isnan().all()  # its own query; of a key or a value, everybody's
    assert context[:3].isnan().all() or which == 0
    assert torch.equal(context[3:], sentence_kernels.attend(kernel, *inputs, at, at)[3:])


@needs_kernel
@either_kernel
def test_what_is_infinite_is_not_hidden_either(kernel):
    query = torch.randn(3, 1, 16)
    query[1] = torch.inf
    assert not sentence_kernels.attend(kernel, query, query, query, starts([3]), starts([3])).isfinite().all()


@needs_kernel
@either_kernel
def test_large_scores_neither_overflow_nor_lose_their_order(kernel):
    query = torch.full((1, 1, 16), 1e4)
    key = torch.stack([torch.full((1, 16), 1e4), torch.full((1, 16), -1e4), torch.full((1, 16), 9.9e3)])
    value = torch.arange(1.0, 4.0)[:, None, None].expand(3, 1, 16).contiguous()
    context = sentence_kernels.attend(kernel, query, key, value, starts([1]), starts([3]))
    assert torch.equal(context, torch.ones(1, 1, 16))


@needs_kernel
def test_many_thousand_keys_are_summed_without_losing_digits():
    query, key = torch.zeros(96, 1, 16), torch.zeros(50_000, 1, 16)
    value = torch.rand(50_000, 1, 16)
    found = sentence_kernels.attend(Kernel.LONG, query, key, value, starts([96]), starts([50_000]))
    torch.testing.assert_close(found[0].double(), value.double().mean(0), rtol=2e-6, atol=0)


@needs_kernel
@either_kernel
def test_a_mask_may_change_after_it_was_read(kernel):
    query, visible = rows(6, 1, 16), torch.tensor([1, 0, 1, 1, 0, 1], dtype=torch.bool)
    at = starts([6])
    gradients = []
    for changes in (False, True):
        mask = visible.clone()
        context = sentence_kernels.attend(kernel, query, query, query, at, at, mask)
        if changes:
            mask.fill_(True)
        gradients += torch.autograd.grad(context.square().sum(), query)
    assert torch.equal(*gradients)


@needs_kernel
def test_the_answer_for_short_sentences_may_be_written_over():
    query = rows(6, 1, 16)
    context = sentence_kernels.attend(Kernel.SHORT, query, query, query, starts([6]), starts([6]))
    context.mul_(2).sum().backward()
    assert query.grad.isfinite().all()


@needs_kernel
@either_kernel
def test_rows_may_stand_apart_and_heads_in_any_order(kernel):
    wide = torch.randn(6, 2, 48, requires_grad=True)
    query, key, value = wide.split(16, dim=2)  # rows and heads are further apart than they are long
    turned = [each.transpose(0, 1).contiguous().transpose(0, 1) for each in (query, key, value)]
    at = starts([4, 2])
    expected = sentence_kernels.attend(kernel, *(each.contiguous() for each in (query, key, value)), at, at)
    for given_as in ((query, key, value), turned):
        assert torch.equal(sentence_kernels.attend(kernel, *given_as, at, at), expected)
    gradient = torch.randn(2, 6, 16).transpose(0, 1)
    expected.backward(gradient)
    other = wide.grad.clone()
    wide.grad = None
    sentence_kernels.attend(kernel, query, key, value, at, at).backward(gradient)
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
                found = sentence_kernels.attend(
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
    expected = sentence_kernels.attend(Kernel.LONG, query, key, key, at, keys_at)
    torch.testing.assert_close(
        expected.double(), one_by_one(query, key, key, [700], [300], None, False, 1.0), **TOLERANCE
    )
    for threads in (2, 3, 64):
        with patch.object(torch, "get_num_threads", lambda threads=threads: threads):
            assert torch.equal(sentence_kernels.attend(Kernel.LONG, query, key, key, at, keys_at), expected)


# The route


def padded_inputs(batch=3, heads=2, queries=5, keys=7, size=8):
    return (
        torch.randn(batch, heads, queries, size),
        torch.randn(batch, heads, keys, size),
        torch.randn(batch, heads, keys, size),
    )


MASKS = {
    "none": {},
    "padding": {"visible": padding(torch.tensor([7, 2, 5]), 7)[:, None]},
    "the same keys for all": {"visible": torch.tensor([1, 0, 1, 1, 0, 1, 1], dtype=torch.bool)},
    "a batch that sees nothing": {"visible": torch.tensor([True, False, True]).view(3, 1, 1, 1)},
}


def side_by_side(heads):
    """The same numbers, with the heads of a word one after the other in memory, as a projection leaves them."""
    return heads.transpose(1, 2).contiguous().transpose(1, 2)


LAYOUTS = {"heads apart": torch.clone, "heads side by side": side_by_side}


@needs_kernel
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("how", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("score", [Dot, ScaledDot, General, Cosine])
def test_both_routes_give_the_explicit_numbers(score, how, layout):
    torch.manual_seed(1)
    attend = Attend(score(16, 16, heads=2))
    inputs = [layout(each / 2).requires_grad_() for each in padded_inputs(size=16)]
    answers = []
    for route in (Route.EXPLICIT, Route.SHORT, Route.LONG):
        attend.route = route
        context = attend(*inputs, **how).context
        answers.append((context, *torch.autograd.grad(context.square().sum(), [*inputs, *attend.parameters()])))
    for expected, *others in zip(*answers, strict=True):
        for found in others:
            torch.testing.assert_close(found, expected, **TOLERANCE)


@needs_kernel
@pytest.mark.parametrize("route", [Route.SHORT, Route.LONG])
@pytest.mark.parametrize("how", [{}, {"band": CAUSAL}, {"visible": padding(torch.tensor([7, 2, 5]), 7)}])
def test_what_has_no_heads_is_one_head(route, how):
    inputs = [torch.randn(3, 7, 16) for _ in range(3)]
    expected = Attend(ScaledDot(16), route=Route.EXPLICIT)(*inputs, **how).context
    torch.testing.assert_close(Attend(ScaledDot(16), route=route)(*inputs, **how).context, expected, **TOLERANCE)


@needs_kernel
@pytest.mark.parametrize("route", [Route.SHORT, Route.LONG])
@pytest.mark.parametrize(
    "how", [{}, {"band": CAUSAL}, {"visible": torch.arange(150) % 3 > 0}], ids=["all", "causal", "mask"]
)
def test_heads_give_the_same_to_the_last_bit_however_they_stand_in_memory(how, route):
    attend = Attend(ScaledDot(16), route=route)
    answers = []
    for layout in LAYOUTS.values():
        torch.manual_seed(1)
        inputs = [layout(torch.randn(2, 3, 150, 16)).requires_grad_() for _ in range(3)]
        context = attend(*inputs, **how).context
        assert context.stride() == inputs[0].stride()  # nothing was laid out anew
        answers.append((context, *torch.autograd.grad(context.square().sum(), inputs)))
    for first, second in zip(*answers, strict=True):
        assert torch.equal(first, second)


@needs_kernel
def test_heads_that_stand_apart_are_not_copied():
    inputs = [torch.randn(2, 3, 150, 16) for _ in range(3)]
    with patch.object(sentence_kernels, "attend", wraps=sentence_kernels.attend) as attend:
        Attend(ScaledDot(16), route=Route.LONG)(*inputs)
    assert [each.data_ptr() for each in attend.call_args.args[1:4]] == [each.data_ptr() for each in inputs]


@needs_kernel
@pytest.mark.parametrize("route", [Route.SHORT, Route.LONG])
def test_heads_may_stand_in_different_ways(route):
    query, key, value = (torch.randn(2, 3, 150, 16) for _ in range(3))
    expected = Attend(ScaledDot(16), route=Route.EXPLICIT)(query, key, value[:, :1].expand(2, 3, -1, -1)).context
    found = Attend(ScaledDot(16), route=route)(query, side_by_side(key), value[:, :1].expand(2, 3, -1, -1)).context
    torch.testing.assert_close(found, expected, **TOLERANCE)


@needs_kernel
@pytest.mark.parametrize("route", [Route.SHORT, Route.LONG])
def test_no_example_has_no_context(route):
    inputs = [torch.randn(0, 2, 7, 16, requires_grad=True) for _ in range(3)]
    context = Attend(ScaledDot(16), route=route)(*inputs).context
    assert context.shape == (0, 2, 7, 16)
    context.sum().backward()


SPARSE = torch.tensor([[1, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 0], [0, 1, 1], [1, 1, 1], [0, 0, 1]], dtype=torch.bool)
OF_ONE = {
    "a column": SPARSE[:, 0],
    "sequence first": SPARSE[:, 1:2].T[:, None, None],
    "all or nothing": torch.ones(1, 1, 1, 1, dtype=torch.bool),
}


@needs_kernel
@pytest.mark.parametrize("visible", OF_ONE.values(), ids=OF_ONE)
@pytest.mark.parametrize("route", [Route.SHORT, Route.LONG])
def test_a_mask_of_one_example_may_stand_in_memory_as_it_likes(route, visible):
    inputs = padded_inputs(batch=1, size=16)
    expected = Attend(ScaledDot(16, heads=2), route=Route.EXPLICIT)(*inputs, visible=visible).context
    found = Attend(ScaledDot(16, heads=2), route=route)(*inputs, visible=visible).context
    torch.testing.assert_close(found, expected, **TOLERANCE)


@needs_kernel
@pytest.mark.parametrize("shape", [(2, 256, 16), (2, 1, 256, 16)])
def test_heads_of_the_score_are_not_those_of_others(shape):
    inputs = [torch.randn(shape, requires_grad=True) for _ in range(3)]
    attend = Attend(Cosine(16, heads=2))
    context = attend(*inputs).context
    attend.route = Route.EXPLICIT
    torch.testing.assert_close(context, attend(*inputs).context, **TOLERANCE)
    context.sum().backward()


@needs_kernel
@pytest.mark.parametrize("route", [Route.SHORT, Route.LONG])
def test_a_causal_sequence_takes_either_route_with_padding_too(route):
    attend = Attend(ScaledDot(16, heads=2))
    inputs = padded_inputs(queries=7, size=16)
    how = {"band": CAUSAL, "visible": padding(torch.tensor([7, 2, 5]), 7)[:, None]}
    expected = attend(*inputs, **how).context
    attend.route = route
    torch.testing.assert_close(attend(*inputs, **how).context, expected, **TOLERANCE)


@needs_kernel
@either_kernel
def test_what_a_kernel_cannot_do_is_left_to_others(kernel):
    scaled = ScaledDot(16, heads=2)

    def fits(score=scaled, selection=None, dropout=0.0, inputs=None, **how):
        attend = Attend(score, selection)
        query, key, value = padded_inputs(size=16) if inputs is None else inputs
        return sentences.fits(kernel, score, attend.selection, dropout, Lookup(query, score.prepare(key), value, **how))

    assert fits()
    assert not fits(Perceptron(16, 16, heads=2))
    assert not fits(selection=Hard())
    assert not fits(dropout=0.1)
    assert not fits(inputs=[each.double() for each in padded_inputs(size=16)])
    assert not fits(inputs=[each[None] for each in padded_inputs(size=16)])
    assert fits(inputs=padded_inputs(keys=sentences.LONGEST + 1, size=16)) is (kernel is Kernel.LONG)
    assert fits(ScaledDot(8, heads=2), inputs=padded_inputs(size=8)) is (kernel is Kernel.SHORT)
    assert not fits(ScaledDot(4, heads=2), inputs=padded_inputs(size=4))
    assert not fits(band=CAUSAL)  # five queries, seven keys: which key is whose?
    assert not fits(band=Band(2, 2))
    assert not fits(bias=torch.zeros(5, 7))
    assert not fits(visible=torch.ones(5, 7, dtype=torch.bool))
    assert not fits(visible=torch.ones(3, 2, 1, 7, dtype=torch.bool))
    assert not fits(inputs=padded_inputs(batch=1, size=16), visible=torch.ones(3, 1, 1, 7, dtype=torch.bool))
    assert not fits(
        ScaledDot(16), inputs=[x[:, 0] for x in padded_inputs(size=16)], visible=torch.ones(3, 1, 1, 7).bool()
    )
    assert not fits(inputs=[each[:, :1] for each in padded_inputs(size=16)])  # the score has two heads
    assert not fits(inputs=padded_inputs(queries=7, size=16), band=CAUSAL, first_query=1)
    with torch.autocast("cpu", torch.bfloat16):
        assert not fits()
    with patch.object(compiled, "kernels", lambda: None):
        assert not fits()


@needs_kernel
def test_many_short_sequences_take_one_kernel_long_ones_the_other_and_few_take_none():
    def chosen(batch, length):
        x = torch.randn(batch, 4, length, 32)
        return routes.choose(ScaledDot(32, heads=4), Attend(ScaledDot(32)).selection, 0.0, Lookup(x, x, x))

    assert chosen(64, 16) is Route.SHORT
    assert chosen(1, 16) is Route.FUSED
    assert chosen(16, sentences.LONGEST) is Route.SHORT
    assert chosen(16, sentences.LONGEST + 1) is Route.LONG
    assert chosen(1, 1024) is Route.LONG


@needs_kernel
def test_few_queries_over_many_keys_are_left_to_torch():
    def chosen(queries):
        query, key = torch.randn(8, 4, queries, 32), torch.randn(8, 4, 1024, 32)
        return routes.choose(ScaledDot(32, heads=4), Attend(ScaledDot(32)).selection, 0.0, Lookup(query, key, key))

    assert chosen(64) is Route.FUSED
    assert chosen(128) is Route.LONG


@needs_kernel
def test_heads_of_no_whole_lanes_are_left_to_torch_sooner_where_it_has_more_lanes():
    def longest(size):
        score = ScaledDot(size, heads=2)
        return max(
            keys
            for keys in (16, 48, 64, 192, 256)
            if sentences.fits(
                Kernel.SHORT, score, Attend(score).selection, 0.0, Lookup(*padded_inputs(keys=keys, size=size))
            )
        )

    with patch.object(compiled, "wide_kernels", lambda: {Kernel.SHORT.function: None}):
        assert (longest(32), longest(24)) == (192, 48)
    with patch.object(compiled, "wide_kernels", dict):
        assert (longest(32), longest(24)) == (192, 192)


@needs_kernel
@either_kernel
def test_nothing_is_kept_where_no_gradient_will_be_asked_for(kernel):
    query = rows(200, 2, 16)
    at = starts([50, 150])
    expected = sentence_kernels.attend(kernel, query, query, query, at, at, None, True)
    with torch.no_grad(), patch.object(sentence_kernels, "_numbers_kept") as kept:
        assert torch.equal(sentence_kernels.attend(kernel, query, query, query, at, at, None, True), expected)
    assert not kept.called


@needs_kernel
def test_functions_over_functions_still_work():
    layer = MultiHead(16, 2)
    x = torch.randn(64, 16, 16)
    expected = torch.autograd.functional.jacobian(lambda x: layer(x).context.sum(), x)
    found = torch.func.grad(lambda x: layer(x).context.sum())(x)
    torch.testing.assert_close(found, expected, **TOLERANCE)


def test_short_attention_is_torchs_own():
    """The layer as people use it beside torch's function, in single precision."""
    q, k, v = (torch.randn(64, 4, 16, 32) for _ in range(3))
    attend = Attend(ScaledDot(32, heads=4))
    torch.testing.assert_close(attend(q, k, v).context, F.scaled_dot_product_attention(q, k, v), **TOLERANCE)


# Ways back that are not the plain one


def attended(layer=None):
    layer = MultiHead(32, 2) if layer is None else layer
    return lambda x: layer(x).context


def many(kernel=Kernel.SHORT):
    """Enough for a kernel to be taken."""
    batch, length = (64, 16) if kernel is Kernel.SHORT else (2, 300)
    return torch.randn(batch, length, 32, requires_grad=True)


@needs_kernel
@either_kernel
def test_what_is_saved_may_be_put_elsewhere_or_computed_again(kernel):
    run, x = attended(), many(kernel)
    (expected,) = torch.autograd.grad(run(x).square().sum(), x)
    (again,) = torch.autograd.grad(checkpoint(run, x, use_reentrant=False).square().sum(), x)
    torch.testing.assert_close(again, expected)
    with torch.autograd.graph.saved_tensors_hooks(torch.clone, torch.clone):
        seen = run(x).square().sum()
    (found,) = torch.autograd.grad(seen, x)
    torch.testing.assert_close(found, expected)


@needs_kernel
@either_kernel
def test_a_gradient_may_have_a_gradient(kernel):
    x = many(kernel)
    layer = MultiHead(32, 2)
    found = []
    for route in (None, Route.EXPLICIT):
        layer.route = route
        (first,) = torch.autograd.grad(layer(x, band=CAUSAL).context.square().sum(), x, create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), x)[0])
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-4)


@needs_kernel
@either_kernel
@pytest.mark.parametrize("examples", [0, 1, 3])
def test_examples_without_projections_have_second_and_batched_gradients_too(kernel, examples):
    route = Route.SHORT if kernel is Kernel.SHORT else Route.LONG
    x = torch.randn(examples, 2, 40, 16, requires_grad=True)
    found = []
    for each in (route, Route.EXPLICIT):
        context = Attend(ScaledDot(16, heads=2), route=each)(x, x, x).context
        (first,) = torch.autograd.grad(context.square().sum(), x, create_graph=True)
        batched = torch.autograd.grad(
            context.sum((0, 1))[:3, 0], x, torch.eye(3), is_grads_batched=True, retain_graph=True
        )
        found.append((*torch.autograd.grad(first.square().sum(), x), *batched))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


@needs_kernel
def test_many_gradients_at_once_and_forward_ones_are_still_to_be_had():
    run, x = attended(), many()
    answer = run(x).sum((1, 2))
    (found,) = torch.autograd.grad(answer, x, torch.eye(64), is_grads_batched=True, retain_graph=True)
    (one,) = torch.autograd.grad(answer, x, torch.eye(64)[3])
    torch.testing.assert_close(found[3], one, rtol=1e-4, atol=1e-5)
    with torch.no_grad(), forward_ad.dual_level(), sdpa_kernel(SDPBackend.MATH):
        run(forward_ad.make_dual(x.detach(), torch.ones_like(x)))


@needs_kernel
@either_kernel
def test_a_graph_of_the_whole_layer_can_be_captured(kernel):
    layer = MultiHead(32, 2).eval()
    x = many(kernel).detach()
    captured = torch.export.export(layer, (x,), strict=True)
    torch.testing.assert_close(captured.module()(x).context, layer(x).context, **TOLERANCE)


@needs_kernel
def test_a_library_that_cannot_be_loaded_is_none():
    compiled.kernels.cache_clear()
    with patch.object(compiled.ctypes, "CDLL", side_effect=OSError("wrong architecture")):
        assert compiled.kernels() is None
    compiled.kernels.cache_clear()
    assert compiled.kernels() is not None


@needs_kernel
def test_a_library_of_other_sources_is_none():
    compiled.kernels.cache_clear()
    with patch.object(compiled, "LAYOUT", compiled.LAYOUT + 1):
        assert compiled.kernels() is None
    compiled.kernels.cache_clear()
    assert compiled.kernels() is not None
    assert compiled._of_library("_compiled", lanes=16) == {}


@needs_kernel
def test_a_mask_of_numbers_is_no_mask():
    query, key, value = padded_inputs()
    lookup = Lookup(query, key, value, visible=torch.ones(1, 7))
    assert not sentences.fits(Kernel.SHORT, ScaledDot(8, heads=2), Attend(ScaledDot(8)).selection, 0.0, lookup)


@needs_kernel
@either_kernel
def test_what_stands_for_itself_keeps_a_negative_scale(kernel):
    query = rows(6, 1, 16)
    at = starts([6])
    expected = one_by_one(query, query, query, [6], [6], None, True, -0.7)
    torch.testing.assert_close(
        sentence_kernels.attend(kernel, query, query, query, at, at, None, True, -0.7).double(), expected, **TOLERANCE
    )


@needs_kernel
@either_kernel
def test_a_kernel_itself_refuses_what_it_cannot_read(kernel):
    with pytest.raises(ValueError, match="float32"):
        sentence_kernels.attend(kernel, *[torch.randn(2, 1, 16).double()] * 3, starts([2]), starts([2]))
    with pytest.raises(ValueError, match="multiple of"):
        sentence_kernels.attend(kernel, *[torch.randn(2, 1, 12)] * 3, starts([2]), starts([2]))
