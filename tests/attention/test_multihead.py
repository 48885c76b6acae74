"""Many heads, against loops, torch's own layer, and its own step-by-step decoding."""

from functools import partial

import pytest
import torch
from torch import nn

from saccade.attention import (
    CAUSAL,
    Additive,
    Band,
    Location,
    MultiHead,
    RelativeBias,
    Rotary,
    all_scores,
    padding,
    record_attention,
)

from . import reference
from .cases import EXACT, HEADS, SCORES, SELECTIONS, draw, make_selection

SINGLE = {"rtol": 1e-5, "atol": 1e-5}


def tolerance_of(dtype):
    return EXACT if dtype == torch.float64 else SINGLE


def shake(module):
    """Biases start at 0, which would hide a bias that is not used."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return module


@pytest.mark.parametrize("name", SCORES)
def test_many_heads_are_their_equations_for_every_score(name):
    layer = shake(MultiHead(6, 2, key_size=4, value_size=5, score=all_scores()[name]).double())
    query, key, value = draw(2, None, 3, 6), draw(2, None, 4, 4), draw(2, None, 4, 5)
    visible = torch.tensor([[1, 1, 0, 1], [0, 1, 1, 1], [0, 0, 0, 0]], dtype=torch.bool)
    context = layer(query, key, value, visible=visible).context
    parameters = {n: p.detach().numpy() for n, p in layer.named_parameters()}
    own = {n.removeprefix("score."): p for n, p in parameters.items() if n.startswith("score.")}
    for b in range(2):
        rows = (t[b].numpy() for t in (query, key, value))
        expected = reference.multihead(name, *rows, parameters, own, 2, visible.numpy())
        torch.testing.assert_close(context[b], torch.from_numpy(expected), **EXACT)


# torch.nn.MultiheadAttention


def both_layers(dtype, **options):
    theirs = shake(nn.MultiheadAttention(8, 2, batch_first=True, dtype=dtype, **options))
    ours = MultiHead.from_torch(theirs)
    assert {p.dtype for p in ours.parameters()} == {dtype}
    return theirs, ours


def projections(theirs):
    """Torch's three input projections, whichever way it stores them."""
    if theirs.in_proj_weight is not None:
        return [theirs.in_proj_weight]
    return [theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight]


def gradients_by(output, tensors):
    """One row of gradients per projection, also where torch keeps all three in one matrix."""
    mixture = torch.cos(torch.arange(output.numel(), dtype=output.dtype)).reshape(output.shape)
    found = torch.autograd.grad((output * mixture).sum(), tensors, retain_graph=True)
    return [part for gradient in found for part in (gradient.chunk(3) if gradient.shape == (24, 8) else [gradient])]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("sizes", [{}, {"kdim": 5}, {"kdim": 5, "vdim": 3}, {"vdim": 6}])
def test_a_layer_from_torch_is_the_same_layer_forward_and_backward(sizes, bias, dtype):
    theirs, ours = both_layers(dtype, bias=bias, **sizes)
    query = draw(3, None, 4, 8, dtype).requires_grad_()
    key = draw(3, None, 6, sizes.get("kdim", 8), dtype).requires_grad_()
    value = draw(3, None, 6, sizes.get("vdim", 8), dtype).requires_grad_()
    visible = padding(torch.tensor([6, 2, 4]))

    expected, expected_weights = theirs(
        query, key, value, key_padding_mask=~visible.squeeze(1), average_attn_weights=False
    )
    with record_attention(ours) as maps:
        found = ours(query, key, value, visible=visible).context
    torch.testing.assert_close(found, expected, **tolerance_of(dtype))
    torch.testing.assert_close(maps[""][0], expected_weights.detach(), **tolerance_of(dtype))

    inputs = (query, key, value)
    their_layer = (*projections(theirs), theirs.out_proj.weight)
    our_layer = [projection.weight for projection in (ours.query, ours.key, ours.value, ours.output)]
    expected_gradients = gradients_by(expected, (*inputs, *their_layer))
    for gradient, expected_gradient in zip(gradients_by(found, (*inputs, *our_layer)), expected_gradients, strict=True):
        torch.testing.assert_close(gradient, expected_gradient, **tolerance_of(dtype))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("length", [7, 150])
def test_causal_self_attention_is_that_of_torch_whose_masks_are_the_other_way_round(length, dtype):
    theirs, ours = both_layers(dtype)
    x = draw(2, None, length, 8, dtype).requires_grad_()
    hidden = torch.ones(length, length, dtype=torch.bool).triu(1)  # torch: True = may not be looked at
    visible = padding(torch.tensor([length, length // 2]))
    for padded in (False, True):
        ignored = ~visible.squeeze(1) if padded else None
        expected, _ = theirs(x, x, x, attn_mask=hidden, key_padding_mask=ignored, need_weights=False)
        shown = visible if padded else None
        for how in ({"band": CAUSAL, "visible": shown}, {"visible": ~hidden & visible if padded else ~hidden}):
            found = ours(x, **how).context
            torch.testing.assert_close(found, expected, **tolerance_of(dtype))
            for one, other in zip(gradients_by(found, [x]), gradients_by(expected, [x]), strict=True):
                torch.testing.assert_close(one, other, **tolerance_of(dtype))


def test_an_additive_mask_of_torch_is_a_bias_here():
    theirs, ours = both_layers(torch.float64)
    x, bias = draw(2, None, 5, 8), torch.randn(5, 5, dtype=torch.float64)
    torch.testing.assert_close(ours(x, bias=bias).context, theirs(x, x, x, attn_mask=bias)[0], **EXACT)


def test_from_torch_keeps_dropout_and_mode():
    theirs = nn.MultiheadAttention(8, 2, dropout=0.3).eval()
    ours = MultiHead.from_torch(theirs)
    assert ours.dropout == 0.3
    assert not ours.training
    assert MultiHead.from_torch(theirs.train()).training


def test_from_torch_copies_the_weights():
    theirs, ours = both_layers(torch.float32)
    before = ours.query.weight.clone()
    theirs.in_proj_weight.data.zero_()
    assert torch.equal(ours.query.weight, before)


@pytest.mark.parametrize("option", ["add_bias_kv", "add_zero_attn"])
def test_keys_that_torch_makes_up_are_refused(option):
    with pytest.raises(ValueError, match="keys that are not in its input"):
        MultiHead.from_torch(nn.MultiheadAttention(8, 2, **{option: True}))


# One step at a time


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("options", ["plain", "rotary", "relative"])
def test_cached_decoding_is_the_whole_causal_layer(name, options):
    positions = {
        "plain": {},
        "rotary": {"rotary": Rotary(4)},
        "relative": {"relative": RelativeBias(2, buckets=8, farthest=16, both_ways=False)},
    }[options]
    layer = shake(MultiHead(8, 2, score=all_scores()[name], **positions).double())
    x = draw(2, None, 7, 8)
    whole = layer(x, band=CAUSAL).context
    memory, steps = None, []
    for t in range(7):
        now = x[:, t : t + 1]
        memory = layer.remember(now, first_key=t) if memory is None else memory.then(layer.remember(now, first_key=t))
        steps.append(layer.recall(now, memory, band=CAUSAL, first_query=t).context)
    torch.testing.assert_close(torch.cat(steps, dim=1), whole, **EXACT)


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("heads", HEADS)
def test_cached_decoding_is_the_whole_for_every_selection(selection, heads):
    layer = MultiHead(8, 2, selection=make_selection(selection, 4, heads), rotary=Rotary(4)).double().eval()
    x = draw(2, None, 6, 8)
    whole = layer(x, band=CAUSAL).context
    memory = layer.remember(x[:, :2])
    steps = [layer.recall(x[:, :2], memory, band=CAUSAL).context]
    for t in range(2, 6):
        memory = memory.then(layer.remember(x[:, t : t + 1], first_key=t))
        steps.append(layer.recall(x[:, t : t + 1], memory, band=CAUSAL, first_query=t).context)
    torch.testing.assert_close(torch.cat(steps, dim=1), whole, **EXACT)


def test_a_sliding_window_decodes_step_by_step_as_the_whole():
    layer = MultiHead(8, 2, rotary=Rotary(4)).double()
    x = draw(2, None, 9, 8)
    band = Band(before=2, after=0)
    whole, memory = layer(x, band=band).context, layer.remember(x)
    for t in range(9):
        step = layer.recall(x[:, t : t + 1], memory, band=band, first_query=t).context
        torch.testing.assert_close(step[:, 0], whole[:, t], **EXACT)


def test_beams_take_rows_of_a_memory():
    layer = MultiHead(8, 2).double()
    query, source = draw(4, None, 1, 8), draw(2, None, 5, 8)
    rows = torch.tensor([0, 1, 1, 0])
    found = layer.recall(query, layer.remember(source).rows(rows)).context
    torch.testing.assert_close(found, layer(query, source[rows]).context, **EXACT)


# Masks and sizes


def test_masks_of_two_three_and_four_axes_mean_the_same():
    layer = MultiHead(8, 2).double()
    x, visible = draw(3, None, 5, 8), torch.rand(5, 5) < 0.6
    expected = layer(x, visible=visible).context
    for mask in (visible.expand(3, 5, 5), visible.expand(3, 2, 5, 5), visible.view(1, 1, 5, 5)):
        torch.testing.assert_close(layer(x, visible=mask).context, expected, **EXACT)


def test_a_mask_for_each_example_is_not_taken_for_one_for_each_head():
    layer = MultiHead(8, 2).double()
    x, visible = draw(2, None, 5, 8), torch.rand(2, 5, 5) < 0.6
    together = layer(x, visible=visible).context
    for b in range(2):
        torch.testing.assert_close(layer(x[b : b + 1], visible=visible[b]).context[0], together[b], **EXACT)


def test_relative_and_given_biases_add_up():
    relative = RelativeBias(2)
    layer, plain = MultiHead(8, 2, relative=relative).double(), MultiHead(8, 2).double()
    plain.load_state_dict({n: p for n, p in layer.state_dict().items() if not n.startswith("relative")})
    x, bias = draw(2, None, 5, 8), torch.randn(5, 5, dtype=torch.float64)
    expected = plain(x, bias=(bias + relative(5, 5))[None]).context
    torch.testing.assert_close(layer(x, bias=bias).context, expected, **EXACT)
    assert not torch.allclose(layer(x).context, expected)


@pytest.mark.parametrize(("size", "heads"), [(8, 3), (8, 0), (2, 4), (8, -2)])
def test_heads_that_do_not_divide_the_size_are_refused(size, heads):
    with pytest.raises(ValueError, match=f"multiple of heads; got size {size} and {heads} heads"):
        MultiHead(size, heads)


def test_rotary_positions_of_another_head_size_are_refused():
    with pytest.raises(ValueError, match="heads of size 2 and got vectors of size 4"):
        MultiHead(8, 2, rotary=Rotary(2))(torch.randn(1, 3, 8))


def test_a_score_may_come_with_options():
    layer = MultiHead(8, 2, score=partial(Location, longest=3))
    assert layer.score.weight.shape == (2, 4, 3)
    assert MultiHead(8, 2, score=partial(Additive, hidden=7)).score.hidden == 7
    with pytest.raises(ValueError, match="at most 3 positions"):
        layer(torch.randn(1, 4, 8))


def test_projections_start_like_xavier_with_no_bias():
    layer = MultiHead(64, 4)
    for projection in (layer.query, layer.key, layer.value, layer.output):
        assert projection.bias.abs().max() == 0
        assert projection.weight.std().item() == pytest.approx((2 / 128) ** 0.5, rel=0.1)
    assert MultiHead(8, 2, bias=False).query.bias is None


def test_what_is_frozen_in_torchs_layer_is_frozen_here():
    theirs = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    theirs.in_proj_weight.requires_grad_(False)
    theirs.out_proj.bias.requires_grad_(False)
    learns = {name: each.requires_grad for name, each in MultiHead.from_torch(theirs).named_parameters()}
    frozen = {"query.weight", "key.weight", "value.weight", "output.bias"}
    assert {name for name, each in learns.items() if not each} == frozen
