"""Score, select, sum: one attention against loops, against torch's kernel, and over a memory one step at a time."""

import pytest
import torch
from torch.nn import functional as F

from saccade.attention import CAUSAL, Additive, Attend, Band, Dot, General, Hard, Memory, Route, ScaledDot, routes

from . import reference
from .cases import EXACT, HEADS, MASKS, SCORES, SELECTIONS, draw, gradients, leading, make_attend, weights_of


def mask_by_loops(how, shape):
    """What each query may see, (…, Q, K), from `visible` and `band`, pair by pair."""
    visible = how.get("visible", torch.ones((), dtype=torch.bool)).expand(shape).clone()
    band, first = how.get("band") or Band(), how.get("first_query", 0)
    for q in range(shape[-2]):
        for k in range(shape[-1]):
            too_early = band.before is not None and k < first + q - band.before
            too_late = band.after is not None and k > first + q + band.after
            if too_early or too_late:
                visible[..., q, k] = False
    return visible


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("name", SCORES)
def test_attention_is_its_equations_under_every_kind_of_mask(name, heads, mask):
    attend = make_attend(name, size=3, heads=heads).double()
    query, key, value = draw(2, heads, 3, 3), draw(2, heads, 5, 3), draw(2, heads, 5, 2)
    how = MASKS[mask](2, heads, 3, 5)
    context, log_prob = attend(query, key, value, **how)
    weights = weights_of(attend, query, key, value, **how)
    shape = (*leading(2, heads), 3, 5)
    visible = mask_by_loops(how, shape).flatten(0, -3)
    bias = how.get("bias", torch.zeros((), dtype=torch.float64)).expand(shape).flatten(0, -3)
    for i in range(visible.shape[0]):
        parameters = {n: p.detach().numpy()[i % heads if heads else ...] for n, p in attend.score.named_parameters()}
        rows = [t.flatten(0, -3)[i].numpy() for t in (query, key, value)]
        expected_weights, expected = reference.attend(name, *rows, parameters, visible[i].numpy(), bias[i].numpy())
        torch.testing.assert_close(weights.flatten(0, -3)[i], torch.from_numpy(expected_weights), **EXACT)
        torch.testing.assert_close(context.flatten(0, -3)[i], torch.from_numpy(expected), **EXACT)
    assert log_prob.item() == 0.0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("mask", ["no mask", "causal", "any mask", "bias"])
def test_the_scaled_dot_product_is_that_of_torch_forward_and_backward(mask, dtype):
    tolerance = EXACT if dtype == torch.float64 else {"rtol": 1e-5, "atol": 1e-5}
    attend = Attend(ScaledDot(4), route="explicit").to(dtype)
    inputs = [draw(2, 3, n, 4, dtype).requires_grad_() for n in (5, 6, 6)]
    how = MASKS[mask](2, 3, 5, 6)
    theirs_how = {"is_causal": mask == "causal"}
    if mask == "bias":
        theirs_how["attn_mask"] = how["bias"] = how["bias"].to(dtype)
    if mask == "any mask":
        theirs_how["attn_mask"] = how["visible"]
    ours = attend(*inputs, **how).context
    theirs = F.scaled_dot_product_attention(*inputs, **theirs_how)
    torch.testing.assert_close(ours, theirs, **tolerance)
    for our, their in zip(gradients(ours, inputs, attend), gradients(theirs, inputs, attend), strict=True):
        torch.testing.assert_close(our, their, **tolerance)


def test_values_are_the_keys_unless_given():
    attend = Attend(General(3, 5))
    query, key = torch.randn(2, 4, 3), torch.randn(2, 6, 5)
    assert torch.equal(attend(query, key).context, attend(query, key, key).context)
    assert attend(query, key).context.shape == (2, 4, 5)
    assert attend(query, key, torch.randn(2, 6, 7)).context.shape == (2, 4, 7)


def test_inputs_need_no_batch_axis():
    attend = Attend(Additive(4)).double()
    query, key = draw(3, None, 2), draw(3, None, 5)
    visible = torch.arange(5) < 3
    together = attend(query, key, visible=visible).context
    for b in range(3):
        torch.testing.assert_close(attend(query[b], key[b], visible=visible).context, together[b], **EXACT)


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("name", SCORES)
def test_recalling_step_by_step_is_the_whole_at_once(name, selection):
    attend = make_attend(name, selection).double().eval()
    query, key, value = draw(2, None, 6), draw(2, None, 5), draw(2, None, 5, 3)
    visible = torch.arange(5) < torch.tensor([5, 3])[:, None, None]
    whole = attend(query, key, value, visible=visible).context
    memory = attend.remember(key, value)
    steps = [attend.recall(query[:, t : t + 1], memory, visible=visible, first_query=t).context for t in range(6)]
    torch.testing.assert_close(torch.cat(steps, dim=1), whole, **EXACT)


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("name", SCORES)
def test_a_memory_that_grows_with_the_queries_is_causal_attention(name, selection):
    attend = make_attend(name, selection, heads=2).double().eval()
    x = draw(2, 2, 6)
    whole = attend(x, x, band=CAUSAL).context
    memory, steps = None, []
    for t in range(6):
        now = attend.remember(x[:, :, t : t + 1])
        memory = now if memory is None else memory.then(now)
        steps.append(attend.recall(x[:, :, t : t + 1], memory, band=CAUSAL, first_query=t).context)
    torch.testing.assert_close(torch.cat(steps, dim=2), whole, **EXACT)


def test_rows_of_a_memory_are_those_examples():
    attend = Attend(General(4)).double()
    query, key, value = draw(3, None, 2), draw(3, None, 5), draw(3, None, 5, 2)
    index = torch.tensor([2, 0, 0])
    memory = attend.remember(key, value).rows(index)
    assert isinstance(memory, Memory)
    found = attend.recall(query[index], memory).context
    torch.testing.assert_close(found, attend(query, key, value).context[index], **EXACT)


def test_log_prob_of_a_sample_has_one_number_per_query():
    attend = Attend(Dot(4), Hard()).train()
    context, log_prob = attend(torch.randn(2, 3, 4), torch.randn(2, 5, 4))
    assert context.shape == (2, 3, 4)
    assert log_prob.shape == (2, 3)
    assert (log_prob < 0).all()


def test_dropout_removes_weights_and_scales_the_rest_in_training_only():
    attend = Attend(Dot(4), dropout=0.25)
    query, key = torch.zeros(1, 1, 4), torch.randn(1, 8, 4)
    value = torch.eye(8)[None]  # the context is the weights themselves
    seen = torch.cat([attend(query, key, value).context for _ in range(2000)]).flatten(0, 1)
    assert seen.unique().tolist() == pytest.approx([0.0, 1 / 8 / 0.75])
    assert (seen == 0).float().mean().item() == pytest.approx(0.25, abs=0.02)
    assert torch.equal(attend.eval()(query, key, value).context, torch.full((1, 1, 8), 1 / 8))


def test_queries_and_keys_of_the_wrong_size_are_refused():
    attend = Attend(General(4, 6))
    with pytest.raises(ValueError, match="queries of size 4; got 5"):
        attend(torch.randn(1, 2, 5), torch.randn(1, 3, 6))
    with pytest.raises(ValueError, match="keys of size 6; got 4"):
        attend(torch.randn(1, 2, 4), torch.randn(1, 3, 4))


@pytest.mark.parametrize("shape", [(5,), (1, 5), (3, 5), (3, 1), (2, 1, 5), (2, 3, 5), (1, 1, 1), ()])
def test_a_mask_of_any_shape_that_broadcasts_is_taken(shape):
    query, key, visible = torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.rand(shape) < 0.5
    taken = Attend(Dot(4))(query, key, visible=visible).context
    assert torch.equal(taken, Attend(Dot(4))(query, key, visible=visible.expand(2, 3, 5)).context)


def test_keys_without_a_batch_are_looked_at_by_every_batch():
    query, key = torch.randn(2, 3, 4), torch.randn(5, 4)
    visible = torch.tensor([True, False, True, True, False])
    context = Attend(Dot(4))(query, key, visible=visible).context
    torch.testing.assert_close(context, Attend(Dot(4))(query, key[visible]).context)


@pytest.mark.parametrize("route", ["explicit", "fused"])
def test_a_query_from_whom_a_bias_hides_every_key_gets_nothing(route):
    query, key = torch.randn(2, 3, 4, requires_grad=True), torch.randn(2, 5, 4)
    bias = torch.randn(3, 5)
    bias[1] = -torch.inf
    context = Attend(ScaledDot(4), route=route)(query, key, bias=bias).context
    assert (context[:, 1] == 0).all()
    context.square().sum().backward()
    assert query.grad.isfinite().all()


def test_a_bias_is_cut_with_the_queries_where_they_are_taken_in_parts(monkeypatch):
    monkeypatch.setattr(routes, "SCORES_HELD", 20)
    query, key, bias = torch.randn(2, 7, 4), torch.randn(2, 5, 4), torch.randn(2, 7, 5)
    attend = Attend(Additive(4), route="chunked")
    whole = Attend(attend.score, route="explicit")
    torch.testing.assert_close(attend(query, key, bias=bias).context, whole(query, key, bias=bias).context)


@pytest.mark.parametrize("selection", SELECTIONS)
def test_without_any_key_nothing_is_seen_and_nothing_fails(selection):
    attend = make_attend("dot", selection)
    context, log_prob = attend(torch.randn(2, 3, 4), torch.randn(2, 0, 4))
    assert torch.equal(context, torch.zeros(2, 3, 4))
    assert (log_prob == 0).all()


def test_values_of_a_batch_may_be_seen_by_queries_and_keys_of_none():
    query, key, value = torch.randn(3, 4), torch.randn(5, 4), torch.randn(2, 5, 6)
    visible = torch.rand(2, 3, 5) < 0.7
    together = Attend(Dot(4))(query, key, value, visible=visible).context
    for b in range(2):
        torch.testing.assert_close(together[b], Attend(Dot(4))(query, key, value[b], visible=visible[b]).context)


def test_an_unknown_route_is_refused():
    assert Attend(Dot(4), route="fused").route is Route.FUSED
    with pytest.raises(ValueError, match="quick"):
        Attend(Dot(4), route="quick")
