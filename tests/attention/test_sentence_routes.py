"""Attention by the C kernels for sentences: the numbers of the explicit route, and what the kernels leave to others."""

from unittest.mock import patch

import pytest
import torch
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
    Perceptron,
    Route,
    ScaledDot,
    padding,
    routes,
)
from saccade.attention.lookup import Lookup
from saccade.kernels import compiled, sentences
from saccade.kernels.sentences import Kernel

TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}
needs_kernel = pytest.mark.skipif(
    compiled.kernels() is None, reason="the kernels were not compiled, or there is no AVX2"
)
either_route = pytest.mark.parametrize("route", [Route.SHORT, Route.LONG])


def fits(route, score, selection, dropout, lookup):
    try:
        return routes.require_fit(route, score, selection, dropout, lookup) is route
    except ValueError:
        return False


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
@either_route
@pytest.mark.parametrize("how", [{}, {"band": CAUSAL}, {"visible": padding(torch.tensor([7, 2, 5]), 7)}])
def test_what_has_no_heads_is_one_head(route, how):
    inputs = [torch.randn(3, 7, 16) for _ in range(3)]
    expected = Attend(ScaledDot(16), route=Route.EXPLICIT)(*inputs, **how).context
    torch.testing.assert_close(Attend(ScaledDot(16), route=route)(*inputs, **how).context, expected, **TOLERANCE)


@needs_kernel
@either_route
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
    with patch.object(sentences, "attend_rows", wraps=sentences.attend_rows) as attend_rows:
        Attend(ScaledDot(16), route=Route.LONG)(*inputs)
    assert [x.data_ptr() for x in attend_rows.call_args.args[1:4]] == [x.data_ptr() for x in inputs]


@needs_kernel
@either_route
def test_heads_may_stand_in_different_ways(route):
    query, key, value = (torch.randn(2, 3, 150, 16) for _ in range(3))
    expected = Attend(ScaledDot(16), route=Route.EXPLICIT)(query, key, value[:, :1].expand(2, 3, -1, -1)).context
    found = Attend(ScaledDot(16), route=route)(query, side_by_side(key), value[:, :1].expand(2, 3, -1, -1)).context
    torch.testing.assert_close(found, expected, **TOLERANCE)


@needs_kernel
@either_route
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
@either_route
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
@either_route
def test_a_causal_sequence_takes_either_route_with_padding_too(route):
    attend = Attend(ScaledDot(16, heads=2))
    inputs = padded_inputs(queries=7, size=16)
    how = {"band": CAUSAL, "visible": padding(torch.tensor([7, 2, 5]), 7)[:, None]}
    expected = attend(*inputs, **how).context
    attend.route = route
    torch.testing.assert_close(attend(*inputs, **how).context, expected, **TOLERANCE)


@needs_kernel
@either_route
def test_what_a_kernel_cannot_do_is_left_to_others(route):
    scaled = ScaledDot(16, heads=2)

    def can_take(score=scaled, selection=None, dropout=0.0, inputs=None, **how):
        attend = Attend(score, selection)
        query, key, value = padded_inputs(size=16) if inputs is None else inputs
        return fits(route, score, attend.selection, dropout, Lookup(query, score.prepare(key), value, **how))

    assert can_take()
    assert not can_take(Perceptron(16, 16, heads=2))
    assert not can_take(selection=Hard())
    assert not can_take(dropout=0.1)
    assert not can_take(inputs=[x.double() for x in padded_inputs(size=16)])
    assert not can_take(inputs=[x[None] for x in padded_inputs(size=16)])
    assert can_take(inputs=padded_inputs(keys=sentences.LONGEST_SHORT + 1, size=16)) is (route is Route.LONG)
    assert can_take(ScaledDot(8, heads=2), inputs=padded_inputs(size=8)) is (route is Route.SHORT)
    assert not can_take(ScaledDot(4, heads=2), inputs=padded_inputs(size=4))
    assert not can_take(band=CAUSAL)  # five queries, seven keys: which key is whose?
    assert not can_take(band=Band(2, 2))
    assert not can_take(bias=torch.zeros(5, 7))
    assert not can_take(visible=torch.ones(5, 7, dtype=torch.bool))
    assert not can_take(visible=torch.ones(3, 2, 1, 7, dtype=torch.bool))
    assert not can_take(inputs=padded_inputs(batch=1, size=16), visible=torch.ones(3, 1, 1, 7, dtype=torch.bool))
    assert not can_take(
        ScaledDot(16), inputs=[x[:, 0] for x in padded_inputs(size=16)], visible=torch.ones(3, 1, 1, 7).bool()
    )
    assert not can_take(inputs=[x[:, :1] for x in padded_inputs(size=16)])  # the score has two heads
    assert not can_take(inputs=padded_inputs(queries=7, size=16), band=CAUSAL, first_query=1)
    with torch.autocast("cpu", torch.bfloat16):
        assert not can_take()
    with patch.object(compiled, "kernels", lambda: None):
        assert not can_take()


@needs_kernel
def test_many_short_sequences_take_one_kernel_long_ones_the_other_and_few_take_none():
    def chosen(batch, length):
        x = torch.randn(batch, 4, length, 32)
        return routes.choose(ScaledDot(32, heads=4), Attend(ScaledDot(32)).selection, 0.0, Lookup(x, x, x))

    assert chosen(64, 16) is Route.SHORT
    assert chosen(1, 16) is Route.FUSED
    assert chosen(16, sentences.LONGEST_SHORT) is Route.SHORT
    assert chosen(16, sentences.LONGEST_SHORT + 1) is Route.LONG
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
            if fits(Route.SHORT, score, Attend(score).selection, 0.0, Lookup(*padded_inputs(keys=keys, size=size)))
        )

    with patch.object(compiled, "wide_kernels", lambda: {Kernel.SHORT.function: None}):
        assert (longest(32), longest(24)) == (192, 48)
    with patch.object(compiled, "wide_kernels", dict):
        assert (longest(32), longest(24)) == (192, 192)


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


# Gradients by checkpoints, hooks, torch.func and second derivatives


def attended(layer=None):
    layer = MultiHead(32, 2) if layer is None else layer
    return lambda x: layer(x).context


def many(route=Route.SHORT):
    """Enough for a kernel to be taken."""
    batch, length = (64, 16) if route is Route.SHORT else (2, 300)
    return torch.randn(batch, length, 32, requires_grad=True)


@needs_kernel
@either_route
def test_what_is_saved_may_be_put_elsewhere_or_computed_again(route):
    run, x = attended(), many(route)
    (expected,) = torch.autograd.grad(run(x).square().sum(), x)
    (again,) = torch.autograd.grad(checkpoint(run, x, use_reentrant=False).square().sum(), x)
    torch.testing.assert_close(again, expected)
    with torch.autograd.graph.saved_tensors_hooks(torch.clone, torch.clone):
        seen = run(x).square().sum()
    (found,) = torch.autograd.grad(seen, x)
    torch.testing.assert_close(found, expected)


@needs_kernel
@either_route
def test_a_gradient_may_have_a_gradient(route):
    x = many(route)
    layer = MultiHead(32, 2)
    found = []
    for forced in (None, Route.EXPLICIT):
        layer.route = forced
        (first,) = torch.autograd.grad(layer(x, band=CAUSAL).context.square().sum(), x, create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), x)[0])
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-4)


@needs_kernel
@either_route
@pytest.mark.parametrize("examples", [0, 1, 3])
def test_examples_without_projections_have_second_and_batched_gradients_too(route, examples):
    x = torch.randn(examples, 2, 40, 16, requires_grad=True)
    found = []
    for taken in (route, Route.EXPLICIT):
        context = Attend(ScaledDot(16, heads=2), route=taken)(x, x, x).context
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
@either_route
def test_a_graph_of_the_whole_layer_can_be_captured(route):
    layer = MultiHead(32, 2).eval()
    x = many(route).detach()
    captured = torch.export.export(layer, (x,), strict=True)
    torch.testing.assert_close(captured.module()(x).context, layer(x).context, **TOLERANCE)


@needs_kernel
def test_a_mask_of_numbers_is_no_mask():
    query, key, value = padded_inputs()
    lookup = Lookup(query, key, value, visible=torch.ones(1, 7))
    assert not fits(Route.SHORT, ScaledDot(8, heads=2), Attend(ScaledDot(8)).selection, 0.0, lookup)
