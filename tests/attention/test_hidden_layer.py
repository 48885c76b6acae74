"""The hidden layer of the additive scores by exponentials and over many steps, against torch's tanh and its gradient of the same loop."""

import pytest
import torch

from saccade.attention import Additive, Attend, Perceptron
from saccade.attention.hidden_layer import TanhOfSums

SCORES = pytest.mark.parametrize("score", [Additive, Perceptron], ids=lambda kind: kind.name)
STEPS = 4


@pytest.mark.parametrize(("dtype", "error"), [(torch.float64, 1e-14), (torch.float32, 1e-6), (torch.bfloat16, 1e-2)])
@pytest.mark.parametrize("size", [0.01, 1.0, 10.0])
def test_exponentials_give_torchs_tanh(dtype, error, size):
    torch.manual_seed(0)
    query, key = (size * torch.randn(2, length, 5, dtype=dtype) for length in (3, 4))
    expected = torch.tanh(query[:, :, None] + key[:, None])
    torch.testing.assert_close(TanhOfSums(key)(query), expected, atol=error, rtol=0)
    out = torch.empty_like(expected)
    assert TanhOfSums(key)(query, out=out) is out
    torch.testing.assert_close(out, expected, atol=error, rtol=0)


@pytest.mark.parametrize("huge", [30.0, 100.0, 1e30, torch.inf, -torch.inf, torch.nan])
@pytest.mark.parametrize("where", ["query", "key", "both"])
def test_what_has_no_exponential_is_still_tanh(huge, where):
    """Two huge numbers of opposite signs: their sum may be small."""
    query, key = torch.tensor([[0.5, -0.25]]), torch.tensor([[-0.5, 1.0], [2.0, 0.0]])
    if where != "key":
        query[0, 0] = huge
    if where != "query":
        key[0, 0] = 0.125 - huge
    torch.testing.assert_close(
        TanhOfSums(key)(query), torch.tanh(query[:, None] + key[None]), atol=1e-6, rtol=0, equal_nan=True
    )


def made(kind):
    torch.manual_seed(0)
    score = kind(5, 3, hidden=4).double()
    start = torch.randn(2, 1, 5, dtype=torch.float64, requires_grad=True)
    key = torch.randn(2, 6, 3, dtype=torch.float64, requires_grad=True)
    return score, start, key


def loop(look, start):
    """A recurrence: where to look next depends on what was seen."""
    query, seen = start, []
    for _ in range(STEPS):
        seen.append(look(query))
        query = torch.tanh(query * seen[-1].sum(-1, keepdim=True)) + start
    return torch.cat(seen, 1)  # (B, steps, K)


def plainly(score, start, key):
    prepared = score.prepare(key)
    return loop(lambda query: score(query, prepared), start)


def over_steps(score, start, key):
    return loop(score.over_steps(score.prepare(key)), start)


def equal(found, expected):
    for mine, other in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-12, rtol=0)


@SCORES
def test_steps_equal_torchs_own_gradient(score):
    score, start, key = made(score)
    leaves = [start, key, *score.parameters()]
    mixture = torch.randn(2, STEPS, 6, dtype=torch.float64)
    ours, theirs = over_steps(score, start, key), plainly(score, start, key)
    equal([ours], [theirs])
    for retained in (True, False):
        equal(*(torch.autograd.grad((way * mixture).sum(), leaves, retain_graph=retained) for way in (ours, theirs)))


@SCORES
@pytest.mark.parametrize("wanted", ["start", "key", "v", "key and v"])
def test_a_pass_may_ask_for_some_gradients_only(score, wanted):
    score, start, key = made(score)
    leaves = [{"start": start, "key": key, "v": score.v}[name] for name in wanted.split(" and ")]
    ours, theirs = over_steps(score, start, key), plainly(score, start, key)
    for retained in (True, True, False):
        equal(*(torch.autograd.grad(way.sum(), leaves, retain_graph=retained) for way in (ours, theirs)))


@SCORES
@pytest.mark.parametrize("frozen", ["key", "v", "everything but the query", "everything"])
def test_what_is_frozen_stays_so(score, frozen):
    score, start, key = made(score)
    key.requires_grad_(frozen == "v")
    if frozen.startswith("everything"):
        score.requires_grad_(False)
    score.v.requires_grad_(frozen == "key")
    start.requires_grad_(frozen != "everything")
    leaves = [leaf for leaf in (start, key, *score.parameters()) if leaf.requires_grad]
    ours, theirs = over_steps(score, start, key), plainly(score, start, key)
    equal([ours], [theirs])
    if leaves:
        equal(*(torch.autograd.grad(way.sum(), leaves) for way in (ours, theirs)))


@SCORES
def test_steps_without_gradient(score):
    score, start, key = made(score)
    with torch.no_grad():
        equal([over_steps(score, start, key)], [plainly(score, start, key)])


@SCORES
def test_heads_have_steps_too(score):
    torch.manual_seed(0)
    score = score(5, heads=3).double()
    query, key = (torch.randn(2, 3, length, 5, dtype=torch.float64) for length in (1, 6))
    prepared = score.prepare(key)
    equal([score.over_steps(prepared)(query)], [score(query, prepared)])


@SCORES
def test_a_score_that_somebody_watches_is_called(score):
    score, start, key = made(score)
    calls = []
    score.register_forward_hook(lambda *_: calls.append(1))
    over_steps(score, start, key)
    assert len(calls) == STEPS


@SCORES
def test_a_memory_over_steps_is_asked_as_any_other(score):
    score, start, key = made(score)
    attend = Attend(score)
    visible = torch.tensor([True, True, False, True, True, True])

    def attended(memory):
        return loop(lambda query: attend.recall(query, memory, visible=visible).context, start)

    leaves = [start, key, *score.parameters()]
    ours, theirs = attended(attend.remember(key).over_steps()), attended(attend.remember(key))
    equal([ours], [theirs])
    equal(*(torch.autograd.grad(way.sum(), leaves) for way in (ours, theirs)))
