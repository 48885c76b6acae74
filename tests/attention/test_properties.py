"""What holds for every score and every selection, with and without heads: a new class is covered as soon as it has a name."""

import itertools
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from saccade.attention import CAUSAL, Attend, Band, MultiHead, all_scores, padding, record_attention

from .cases import (
    BY_POSITION,
    EXACT,
    FEW,
    HEADS,
    SCORES,
    SELECTIONS,
    draw,
    fitting_routes,
    leading,
    make_attend,
    make_score,
    make_selection,
    some_visible,
    weights_of,
)

LENGTH = st.integers(1, 7)
BATCH = st.integers(1, 3)
MODE = st.booleans()
every_score = pytest.mark.parametrize("score", SCORES)
every_selection = pytest.mark.parametrize("selection", SELECTIONS)
every_number_of_heads = pytest.mark.parametrize("heads", HEADS)


# Weights


@every_score
@every_selection
@every_number_of_heads
@given(batch=BATCH, queries=LENGTH, keys=LENGTH, training=MODE)
@FEW
def test_weights_are_shares_and_hidden_keys_get_exactly_none(score, selection, heads, batch, queries, keys, training):
    attend = make_attend(score, selection, heads=heads).double().train(training)
    visible = some_visible(*leading(batch, heads), queries, keys)
    weights = weights_of(attend, draw(batch, heads, queries), draw(batch, heads, keys), visible=visible)
    assert weights.shape == (*leading(batch, heads), queries, keys)
    assert (weights >= 0).all()
    assert torch.equal(weights[~visible], torch.zeros(int((~visible).sum()), dtype=torch.float64))
    total = weights.sum(-1)
    if selection == "local-p":  # the Gaussian after the softmax takes some away, and Luong does not give it back
        assert (total <= 1 + 1e-12).all()
    elif selection == "local-m":  # a mask may hide the whole window
        assert torch.logical_or((total - 1).abs() < 1e-12, total == 0).all()
    else:
        torch.testing.assert_close(total, torch.ones_like(total), **EXACT)


@every_score
@every_selection
@every_number_of_heads
def test_with_nothing_hidden_rows_sum_to_one(score, selection, heads):
    attend = make_attend(score, selection, heads=heads).double()
    total = weights_of(attend, draw(2, heads, 9), draw(2, heads, 5)).sum(-1)
    if selection == "local-p":
        assert (total < 1).all()
        assert (total > 0).all()
    else:
        torch.testing.assert_close(total, torch.ones_like(total), **EXACT)


@every_score
@every_selection
@every_number_of_heads
def test_the_context_does_not_depend_on_what_hidden_keys_and_values_are(score, selection, heads):
    attend = make_attend(score, selection, heads=heads).double().eval()
    query, key, value = draw(2, heads, 3), draw(2, heads, 6), draw(2, heads, 6)
    visible = torch.arange(6) < 4
    changed = key.clone(), value.clone()
    for tensor in changed:
        tensor[..., 4:, :] = 1e6
    expected = attend(query, key, value, visible=visible)
    assert torch.equal(attend(query, *changed, visible=visible).context, expected.context)


@every_score
@every_selection
@every_number_of_heads
@pytest.mark.parametrize("training", [True, False])
def test_a_row_that_sees_nothing_gives_zero_with_finite_gradients_on_every_route(score, selection, heads, training):
    attend = make_attend(score, selection, heads=heads).double().train(training)
    inputs = [draw(2, heads, 5).requires_grad_() for _ in range(3)]
    visible = padding(torch.tensor([0, 3]), longest=5).view(2, *[1] * (1 if heads is None else 2), 5)
    how = {"visible": visible, "band": Band(1, 1)}
    for route in fitting_routes(attend, *inputs, **how):
        attend.route = route
        context, log_prob = attend(*inputs, **how)
        assert torch.equal(context[0], torch.zeros_like(context[0]))
        loss = context.sum() + context.pow(2).sum() + log_prob.sum()
        wanted = (*inputs, *attend.parameters())
        found = torch.autograd.grad(loss, wanted, allow_unused=True)
        assert all(gradient is None or gradient.isfinite().all() for gradient in found)
        assert found[2][1].abs().max() > 0


# Order


def other_order(length):
    return torch.roll(torch.arange(length), 2).flip(0)


BY_CONTENT = [pair for pair in itertools.product(SCORES, SELECTIONS) if not set(pair) & BY_POSITION]
every_pair_by_content = pytest.mark.parametrize(("score", "selection"), BY_CONTENT)


@every_pair_by_content
@every_number_of_heads
def test_moving_the_keys_moves_their_weights_and_leaves_the_context(score, selection, heads):
    attend = make_attend(score, selection, heads=heads).double().eval()
    query, key, value = draw(2, heads, 3), draw(2, heads, 6), draw(2, heads, 6)
    visible = some_visible(*leading(2, heads), 3, 6)
    order = other_order(6)
    moved = key[..., order, :], value[..., order, :]
    weights = weights_of(attend, query, key, value, visible=visible)
    torch.testing.assert_close(
        weights_of(attend, query, *moved, visible=visible[..., order]), weights[..., order], **EXACT
    )
    context = attend(query, key, value, visible=visible).context
    torch.testing.assert_close(attend(query, *moved, visible=visible[..., order]).context, context, **EXACT)


@every_pair_by_content
@every_number_of_heads
def test_self_attention_over_a_moved_sequence_is_moved(score, selection, heads):
    attend = make_attend(score, selection, heads=heads).double().eval()
    x, order = draw(2, heads, 6), other_order(6)
    moved = x[..., order, :]
    torch.testing.assert_close(attend(moved, moved).context, attend(x, x).context[..., order, :], **EXACT)


@pytest.mark.parametrize("score", [name for name in SCORES if name not in BY_POSITION])
def test_many_heads_are_equivariant_too(score):
    layer = MultiHead(8, 2, score=all_scores()[score]).double()
    x, order = draw(2, None, 6, 8), other_order(6)
    torch.testing.assert_close(layer(x[:, order]).context, layer(x).context[:, order], **EXACT)


@pytest.mark.parametrize("name", sorted(BY_POSITION))
def test_those_left_out_really_look_at_the_position(name):
    score, selection = (name, "soft") if name == "location" else ("dot", name)
    attend = make_attend(score, selection).double().eval()
    query, key, order = draw(1, None, 3), draw(1, None, 9), other_order(9)
    weights, moved = weights_of(attend, query, key), weights_of(attend, query, key[:, order])
    assert not torch.allclose(moved, weights[..., order])
    if name == "location":  # no key enters its score: the weights stay where they were
        assert torch.equal(moved, weights)
    else:  # the window stays where it was, whatever stands in it
        assert torch.equal(moved > 0, weights > 0)


@every_score
@every_selection
@every_number_of_heads
def test_causal_outputs_do_not_change_with_the_future(score, selection, heads):
    attend = make_attend(score, selection, heads=heads).double().eval()
    x = draw(2, heads, 7)
    for now in (0, 3, 5):
        changed = x.clone()
        changed[..., now + 1 :, :] = draw(2, heads, 6 - now) * 10
        before, after = attend(x, x, band=CAUSAL).context, attend(changed, changed, band=CAUSAL).context
        assert torch.equal(after[..., : now + 1, :], before[..., : now + 1, :])
        assert not torch.equal(after, before)


@pytest.mark.parametrize("selection", [name for name in SELECTIONS if name not in BY_POSITION])
@every_number_of_heads
def test_weights_of_concat_do_not_depend_on_the_query(selection, heads):
    attend = make_attend("concat", selection, heads=heads).double().eval()
    key = draw(2, heads, 5)
    first, second = weights_of(attend, draw(2, heads, 4), key), weights_of(attend, draw(2, heads, 4), key)
    torch.testing.assert_close(first, second, **EXACT)


# Watching


@every_score
@every_selection
@every_number_of_heads
@pytest.mark.parametrize("training", [True, False])
def test_being_watched_changes_no_bit(score, selection, heads, training):
    attend = make_attend(score, selection, heads=heads, dropout=0.4).train(training)
    query, key = draw(2, heads, 3, dtype=torch.float32), draw(2, heads, 6, dtype=torch.float32)
    torch.manual_seed(1)
    context, log_prob = attend(query, key)
    torch.manual_seed(1)
    with record_attention(attend) as maps:
        watched, watched_log_prob = attend(query, key)
    assert torch.equal(context, watched)
    assert torch.equal(log_prob, watched_log_prob)
    if not training:
        torch.testing.assert_close(maps[""][0] @ key, watched)


@every_score
def test_being_watched_changes_no_bit_at_lengths_that_take_faster_routes(score):
    attend = Attend(make_score(score, 4))
    x = torch.randn(1, 300, 4)
    for how in ({}, {"band": CAUSAL}, {"band": Band(4, 4)}):
        plain = attend(x, x, **how).context
        with record_attention(attend) as maps:
            assert torch.equal(attend(x, x, **how).context, plain)
        torch.testing.assert_close(maps[""][0] @ x, plain, rtol=1e-4, atol=1e-5)


# Shapes and dtypes


@every_score
@every_selection
@every_number_of_heads
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_result_has_the_dtype_of_the_input(score, selection, heads, dtype):
    attend = make_attend(score, selection, heads=heads).to(dtype)
    query, key = draw(2, heads, 3, dtype=dtype), draw(2, heads, 5, dtype=dtype)
    for visible in (None, some_visible(5)):
        context, log_prob = attend(query, key, visible=visible)
        assert context.dtype == log_prob.dtype == weights_of(attend, query, key, visible=visible).dtype == dtype


def test_half_precision_stays_half_and_finite():
    """In a process of its own: there are processors on which low precision ends the process instead of raising an error."""
    script = """
import torch
from saccade.attention import MultiHead, all_scores, all_selections, Attend, CAUSAL, padding
x = torch.randn(2, 6, 8).half()
x[0, 0] = 0
for name, score in all_scores().items():
    visible = padding(torch.tensor([6, 0]))
    for layer in (Attend(score(8)), MultiHead(8, 2, score=score)):
        for how in ({}, {"band": CAUSAL}, {"visible": visible}):
            context = layer.half()(x, x, **how).context
            assert context.dtype == torch.float16, (name, context.dtype)
            assert context.isfinite().all(), (name, how)
for name, selection in all_selections().items():
    chosen = selection(8) if name == "local-p" else selection()
    context = Attend(all_scores()["dot"](8), chosen).half()(x, x, visible=visible).context
    assert context.dtype == torch.float16 and context.isfinite().all(), name
print("done")
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    if ended.returncode < 0:
        pytest.skip(f"this processor cannot compute in half precision (signal {-ended.returncode})")
    assert ended.stdout == "done\n", ended.stderr


@every_score
@every_selection
@every_number_of_heads
@given(batch=BATCH, queries=LENGTH, keys=LENGTH, value_size=st.integers(1, 5), training=MODE)
@FEW
def test_any_batch_and_lengths_give_one_context_per_query(
    score, selection, heads, batch, queries, keys, value_size, training
):
    attend = make_attend(score, selection, heads=heads).train(training)
    query, key, value = (
        draw(batch, heads, length, size, torch.float32)
        for length, size in ((queries, 4), (keys, 4), (keys, value_size))
    )
    context, log_prob = attend(query, key, value)
    assert context.shape == (*leading(batch, heads), queries, value_size)
    assert log_prob.shape in ((), (*leading(batch, heads), queries))
    assert context.isfinite().all()


@every_score
@every_selection
@every_number_of_heads
def test_examples_of_a_batch_do_not_see_each_other(score, selection, heads):
    attend = make_attend(score, selection, heads=heads).double().eval()
    query, key = draw(3, heads, 4), draw(3, heads, 5)
    together = attend(query, key).context
    for b in range(3):
        alone = attend(query[b : b + 1], key[b : b + 1]).context
        torch.testing.assert_close(alone, together[b : b + 1], **EXACT)


@every_score
@every_selection
@every_number_of_heads
def test_an_empty_batch_gives_an_empty_batch(score, selection, heads):
    attend = make_attend(score, selection, heads=heads)
    query, key = draw(0, heads, 3, dtype=torch.float32), draw(0, heads, 5, dtype=torch.float32)
    visible = torch.ones(*leading(0, heads), 3, 5, dtype=torch.bool)
    for how in ({}, {"visible": visible}, {"band": CAUSAL}):
        assert attend(query, key, **how).context.shape == (*leading(0, heads), 3, 4)


@every_score
def test_an_empty_batch_gives_an_empty_batch_on_every_route(score):
    attend = make_attend(score)
    x = torch.randn(0, 6, 4, requires_grad=True)
    how = {"band": Band(1, 1), "visible": padding(torch.empty(0, dtype=torch.long), longest=6)}
    for route in fitting_routes(attend, x, x, x, **how):
        attend.route = route
        context = attend(x, x, **how).context
        assert context.shape == (0, 6, 4)
        context.sum().backward()


@every_score
@every_number_of_heads
def test_one_key_gets_all_the_weight(score, heads):
    attend = make_attend(score, heads=heads).double()
    query, key, value = draw(1, heads, 3), draw(1, heads, 1), draw(1, heads, 1, 2)
    expected = value.expand(*value.shape[:-2], 3, 2)
    torch.testing.assert_close(attend(query, key, value).context, expected, **EXACT)


@every_score
@every_selection
@every_number_of_heads
def test_the_layout_in_memory_does_not_matter(score, selection, heads):
    attend = make_attend(score, selection, heads=heads).double().eval()
    query, key, value = draw(2, heads, 4), draw(2, heads, 6), draw(2, heads, 6)
    visible = some_visible(*leading(2, heads), 4, 6)
    expected = attend(query, key, value, visible=visible).context
    scattered = [tensor.transpose(-1, -2).contiguous().transpose(-1, -2) for tensor in (query, key, value)]
    strided = [torch.stack((tensor, tensor), dim=-1)[..., 0] for tensor in (query, key, value)]
    for inputs in (scattered, strided):
        assert not inputs[0].is_contiguous()
        torch.testing.assert_close(attend(*inputs, visible=visible).context, expected, **EXACT)


@every_score
def test_the_layout_in_memory_does_not_matter_on_any_route(score):
    attend = make_attend(score, heads=2).double()
    x = draw(2, 2, 6)
    scattered = torch.empty(2, 6, 2, 4, dtype=torch.float64).transpose(1, 2)  # as heads split from one projection lie
    scattered.copy_(x)
    for route in fitting_routes(attend, x, x, x, band=Band(1, 1)):
        attend.route = route
        expected = attend(x, x, band=Band(1, 1)).context
        torch.testing.assert_close(attend(scattered, scattered, band=Band(1, 1)).context, expected, **EXACT)


@every_score
@every_selection
def test_calling_a_layer_leaves_nothing_on_it(score, selection):
    attend = make_attend(score, selection)
    before = {name: (list(vars(module)), list(module.state_dict())) for name, module in attend.named_modules()}
    attend(torch.randn(2, 3, 4), torch.randn(2, 5, 4))
    after = {name: (list(vars(module)), list(module.state_dict())) for name, module in attend.named_modules()}
    assert after == before


@every_selection
@every_number_of_heads
def test_every_selection_works_under_many_heads(selection, heads):
    layer = MultiHead(8, 2, selection=make_selection(selection, 4, heads)).train()
    context, log_prob = layer(torch.randn(3, 5, 8), visible=padding(torch.tensor([5, 2, 1]), longest=5))
    assert context.shape == (3, 5, 8)
    assert log_prob.shape in ((), (3, 2, 5))
    context.pow(2).sum().backward()
    assert layer.value.weight.grad.abs().max() > 0
