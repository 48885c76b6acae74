"""Five ways to one result: every route that fits gives the explicit numbers, and so does whatever is chosen."""

from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck

from saccade.attention import CAUSAL, Additive, Attend, Band, Dot, Hard, RelativeBias, Route, ScaledDot, padding
from saccade.attention import routes as product
from saccade.attention.blockwise import block_size
from saccade.attention.routes import Lookup, Thresholds

from .cases import (
    EXACT,
    HEADS,
    MASKS,
    SCORES,
    SELECTIONS,
    SOME,
    draw,
    fitting_routes,
    gradients,
    leading,
    make_attend,
)

DOT_PRODUCTS = {"dot", "scaled-dot", "general", "cosine"}
HIDDEN_LAYERS = {"additive", "perceptron"}


def eager_thresholds(chunk_elements=40):
    """Each route is taken as soon as it fits; the smaller the number, the fewer queries in a chunk."""
    limits = Thresholds(1, chunk_elements, block_keys=1, block_share=1.0)
    return patch.dict(product.THRESHOLDS, dict.fromkeys(product.THRESHOLDS, limits))


def compute(attend, route, inputs, how):
    attend.route = route
    context, log_prob = attend(*inputs, **how)
    return context, log_prob, gradients(context, inputs, attend)


def compare_with_explicit(attend, route, inputs, how, **tolerance):
    expected, expected_log_prob, expected_gradients = compute(attend, Route.EXPLICIT, inputs, how)
    context, log_prob, found = compute(attend, route, inputs, how)
    assert context.shape == expected.shape
    torch.testing.assert_close(context, expected, **tolerance)
    torch.testing.assert_close(log_prob, expected_log_prob, **tolerance)
    for gradient, expected_gradient in zip(found, expected_gradients, strict=True):
        assert gradient.isfinite().all()
        torch.testing.assert_close(gradient, expected_gradient, **tolerance)


# Which routes fit


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("name", SCORES)
def test_which_routes_fit_which_score(name, heads):
    attend = make_attend(name, heads=heads).double()
    x = draw(2, heads, 5)
    fitting = {Route.EXPLICIT}
    fitting |= {Route.FUSED} if name in DOT_PRODUCTS else set()
    fitting |= {Route.CHUNKED} if name in HIDDEN_LAYERS else set()
    assert set(fitting_routes(attend, x, x, x)) == fitting
    fitting |= {Route.BLOCKWISE} if name != "location" else set()
    assert set(fitting_routes(attend, x, x, x, band=Band(1, 1))) == fitting


@pytest.mark.parametrize("selection", SELECTIONS)
def test_a_kernel_for_soft_weights_fits_no_other_selection(selection):
    for name in SCORES:
        attend = make_attend(name, selection).double().train()
        x = draw(2, None, 5)
        fitting = fitting_routes(attend, x, x, x, band=Band(1, 1))
        assert (Route.FUSED in fitting) == (selection == "soft" and name in DOT_PRODUCTS)
        assert (Route.BLOCKWISE in fitting) == (selection == "soft" and name != "location")
        samples = selection in ("hard", "straight-through")
        assert (Route.CHUNKED in fitting) == (not samples and name in HIDDEN_LAYERS)


@pytest.mark.parametrize(
    ("attend", "how"),
    [
        (Attend(Dot(4), Hard(), route="fused"), {}),
        (Attend(Dot(4), dropout=0.5, route="fused"), {}),
        (Attend(Additive(4), route="fused"), {}),
        (Attend(Dot(4), route="chunked"), {}),
        (Attend(Dot(4), route="blockwise"), {}),
        (Attend(Dot(4), route="blockwise"), {"band": CAUSAL}),
        (Attend(Dot(4), route="blockwise"), {"band": Band(1, 1), "bias": torch.zeros(5, 5)}),
        (Attend(Dot(4), route="blockwise"), {"band": Band(1, 1), "first_query": 1}),
        (Attend(Dot(4), route="blockwise"), {"band": Band(1, 1), "visible": torch.ones(5, 5, dtype=torch.bool)}),
    ],
)
def test_a_route_that_would_compute_something_else_is_refused(attend, how):
    x = torch.randn(2, 5, 4)
    with pytest.raises(ValueError, match=f"the {attend.route.value} route cannot compute .* use the explicit route"):
        attend(x, x, **how)


# The same numbers


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("name", SCORES)
def test_every_route_that_fits_gives_the_explicit_numbers_and_gradients(name, heads, mask):
    attend = make_attend(name, heads=heads).double()
    inputs = [draw(2, heads, 35).requires_grad_() for _ in range(3)]
    how = MASKS[mask](2, heads, 35, 35)
    with eager_thresholds(chunk_elements=8000):
        for route in fitting_routes(attend, *inputs, **how):
            compare_with_explicit(attend, route, inputs, how, **EXACT)


@pytest.mark.parametrize("mask", [m for m in MASKS if "window" not in m])
@pytest.mark.parametrize("name", sorted(DOT_PRODUCTS | HIDDEN_LAYERS))
@pytest.mark.parametrize("lengths", [(1, 7), (7, 1), (9, 4)])
def test_routes_agree_when_there_are_more_or_fewer_queries_than_keys(name, mask, lengths):
    attend = make_attend(name, heads=2).double()
    queries, keys = lengths
    inputs = [draw(2, 2, length).requires_grad_() for length in (queries, keys, keys)]
    how = MASKS[mask](2, 2, queries, keys)
    with eager_thresholds(chunk_elements=200):
        for route in fitting_routes(attend, *inputs, **how):
            compare_with_explicit(attend, route, inputs, how, **EXACT)


@pytest.mark.parametrize("band", [Band(0, 0), Band(1, 0), Band(0, 4), Band(3, 2), Band(40, 0), Band(20, 30)])
@pytest.mark.parametrize("length", [1, 2, 31, 32, 33, 63, 64, 65, 97])
def test_blockwise_at_lengths_around_the_block_size(length, band):
    x = draw(2, None, length).requires_grad_()
    visible = padding(torch.tensor([length, max(1, length // 2)]))
    for name in ("scaled-dot", "additive", "concat"):
        attend = make_attend(name).double()
        for how in ({"band": band}, {"band": band, "visible": visible}):
            compare_with_explicit(attend, Route.BLOCKWISE, [x, x, x], how, **EXACT)


def test_blocks_are_half_as_long_as_the_window_within_limits():
    assert block_size(2, 2) == 32
    assert block_size(50, 49) == 50
    assert block_size(600, 600) == 128


@pytest.mark.parametrize("elements", [1, 4 * 9 * 2, 4 * 9 * 2 * 4, 10**6])
@pytest.mark.parametrize("selection", ["soft", "local-m", "local-p"])
def test_chunks_of_any_size_give_the_same(selection, elements):
    attend = make_attend("additive", selection).double()
    inputs = [draw(2, None, length).requires_grad_() for length in (7, 9, 9)]
    bias = torch.randn(2, 7, 9, dtype=torch.float64)
    how = {"visible": padding(torch.tensor([9, 5])), "band": Band(4, 6), "bias": bias, "first_query": 2}
    with eager_thresholds(elements):
        compare_with_explicit(attend, Route.CHUNKED, inputs, how, **EXACT)


def test_chunks_drop_the_same_weights_backward_as_forward():
    """A chunk is computed again for its gradient: the second time must draw the same random numbers."""
    attend = Attend(Additive(4), dropout=0.5, route="chunked").double()
    query, key, value = (draw(2, None, 6) for _ in range(3))
    value.requires_grad_()
    with eager_thresholds():
        context = attend(query, key, value).context
    (gradient,) = torch.autograd.grad(context.sum(), value)
    # context is linear in the values: with the same weights it is the sum of value · gradient
    torch.testing.assert_close((gradient * value).sum(), context.sum(), **EXACT)


def test_local_predictive_log_prob_and_hard_in_eval_mode_run_in_chunks():
    attend = Attend(Additive(4), Hard()).double().eval()
    inputs = [draw(2, None, 6).requires_grad_() for _ in range(3)]
    with eager_thresholds():
        compare_with_explicit(attend, Route.CHUNKED, inputs, {}, **EXACT)


@pytest.mark.parametrize("name", SCORES)
def test_routes_agree_in_single_precision(name):
    attend = make_attend(name, size=8, heads=2)
    inputs = [draw(2, 2, 40, 8, torch.float32).requires_grad_() for _ in range(3)]
    for how in ({}, {"band": CAUSAL}, {"band": Band(3, 3), "visible": torch.rand(2, 1, 1, 40) < 0.7}):
        for route in fitting_routes(attend, *inputs, **how):
            compare_with_explicit(attend, route, inputs, how, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("gradient", [True, False])
def test_a_bias_of_another_dtype_counts_as_the_same_numbers(gradient):
    attend, fused = Attend(ScaledDot(4), route="explicit"), Attend(ScaledDot(4), route="fused")
    inputs = [draw(2, None, 40).requires_grad_(gradient) for _ in range(3)]
    for how in ({}, {"band": CAUSAL}, {"visible": padding(torch.tensor([40, 7]))}):
        bias = torch.randn(40, 40)
        torch.testing.assert_close(
            fused(*inputs, bias=bias, **how).context, attend(*inputs, bias=bias, **how).context, **EXACT
        )


@pytest.mark.parametrize("name", SCORES)
def test_one_set_of_queries_serves_many_examples_whatever_is_chosen(name):
    attend = make_attend(name).double()
    query, key, value = draw(1, None, 6), draw(3, None, 6), draw(3, None, 6)
    expected = torch.cat([attend(query, key[b : b + 1], value[b : b + 1]).context for b in range(3)])
    with eager_thresholds():
        for how in ({}, {"band": Band(6, 6)}):
            torch.testing.assert_close(attend(query, key, value, **how).context, expected, **EXACT)


# Gradients by differences


@pytest.mark.parametrize("name", ["scaled-dot", "cosine", "additive"])
def test_gradients_of_every_route_agree_with_differences(name):
    attend = make_attend(name, size=2, heads=2).double()
    inputs = tuple(draw(1, 2, 4, 2).requires_grad_() for _ in range(3))
    how = {"band": Band(1, 1), "visible": torch.tensor([True, True, True, False]).view(1, 1, 1, 4)}
    for route in fitting_routes(attend, *inputs, **how):
        attend.route = route
        with eager_thresholds():
            assert gradcheck(lambda *inputs: attend(*inputs, **how).context, inputs)


# Choosing

CHOICES = {
    "score": st.sampled_from(SCORES),
    "selection": st.sampled_from([*SELECTIONS, "soft", "soft", "soft", "soft"]),
    "heads": st.sampled_from(HEADS),
    "mask": st.sampled_from([*MASKS, *[mask for mask in MASKS if "window" in mask]]),
    "batch": st.integers(1, 3),
    "queries": st.integers(1, 40),
    "keys": st.none() | st.integers(1, 40),  # None: as many as queries
    "value_size": st.sampled_from([4, 4, 3]),
    "training": st.booleans(),
    "gradient": st.booleans(),
    "dropout": st.sampled_from([0.0, 0.0, 0.3]),
}


def test_whatever_is_chosen_fits_and_changes_no_number():
    chosen = set()

    @given(**CHOICES)
    @settings(SOME, max_examples=150)
    def check(**choice):
        chosen.add(check_the_choice(**choice))

    check()
    assert chosen == set(Route) - {Route.SHORT, Route.LONG}  # which are for single precision


def check_the_choice(score, selection, heads, mask, batch, queries, keys, value_size, training, gradient, dropout):
    keys = queries if keys is None else keys
    attend = make_attend(score, selection, heads=heads, dropout=dropout).double().train(training)
    sizes = ((queries, 4), (keys, 4), (keys, value_size))
    inputs = [draw(batch, heads, length, size).requires_grad_(gradient) for length, size in sizes]
    how = MASKS[mask](batch, heads, queries, keys)
    with eager_thresholds():
        lookup = Lookup(inputs[0], attend.score.prepare(inputs[1]), inputs[2], **how)
        chosen = product.choose(attend.score, attend.selection, dropout * training, lookup)
        assert chosen in fitting_routes(attend, *inputs, **how)
        attend.dropout = 0.0
        torch.manual_seed(0)
        context, log_prob = attend(*inputs, **how)
        torch.manual_seed(0)
        attend.route = Route.EXPLICIT
        expected, expected_log_prob = attend(*inputs, **how)
    assert context.shape == expected.shape == (*leading(batch, heads), queries, value_size)
    torch.testing.assert_close(context, expected, **EXACT)
    torch.testing.assert_close(log_prob, expected_log_prob, **EXACT)
    return chosen


def choice(attend, length, **how):
    x = torch.randn(1, length, 4)
    return product.choose(attend.score, attend.selection, 0.0, Lookup(x, attend.score.prepare(x), x, **how))


def test_each_route_is_chosen_where_it_pays():
    dot, additive = Attend(Dot(4)), Attend(Additive(4))
    with torch.no_grad():
        assert choice(dot, 6) is Route.EXPLICIT
        assert choice(dot, 300) is Route.FUSED
        assert choice(dot, 600, band=Band(8, 8)) is Route.BLOCKWISE
        assert choice(dot, 600, band=Band(200, 200)) is Route.FUSED
        assert choice(dot, 300, band=CAUSAL) is Route.FUSED
        assert choice(additive, 16) is Route.EXPLICIT
        assert choice(additive, 1000) is Route.CHUNKED
        assert choice(additive, 600, band=Band(8, 8)) is Route.BLOCKWISE


def test_a_learned_bias_gets_its_gradient_at_lengths_where_the_kernel_would_pay():
    attend, relative = Attend(ScaledDot(4, heads=2)), RelativeBias(2)
    x = torch.randn(1, 2, 200, 4)
    attend(x, x, bias=relative(200, 200)).context.pow(2).sum().backward()
    assert relative.table.grad.abs().max() > 0


def test_thresholds_of_an_unlisted_dtype_are_those_of_the_nearest():
    def limits(**kind):
        return product.thresholds(Lookup(*[torch.zeros(1, 1, **kind)] * 3))

    assert limits(dtype=torch.float16) == limits()
    assert limits(device="meta") == limits()


def test_a_lookup_for_some_rows_is_those_rows():
    x = draw(2, None, 6)
    lookup = Lookup(x, x, x, visible=torch.rand(2, 6, 6) < 0.5, band=Band(2, 1), first_query=1)
    part = lookup.rows(2, 5)
    assert torch.equal(part.query, x[:, 2:5])
    assert torch.equal(part.mask(), lookup.mask()[:, 2:5])
