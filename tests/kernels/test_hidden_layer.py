"""The hidden layer of the additive scores by exponentials and over many steps, against torch's tanh and its gradient of the same loop."""

import gc
import weakref
from functools import partial

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from saccade.attention import Additive, Attend, Band, Perceptron
from saccade.attention.routes import scores_over_steps
from saccade.kernels import compiled, hidden_layer
from saccade.kernels.hidden_layer import TanhOfSums

SCORES = pytest.mark.parametrize("score", [Additive, Perceptron], ids=lambda kind: kind.name)
STEPS = 4


@pytest.fixture(autouse=True)
def _however_little(monkeypatch):
    monkeypatch.setattr(hidden_layer, "FEWEST", 0)


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


@pytest.mark.parametrize("huge", [22.0, 23.0, 30.0, 44.0, 45.0, 100.0, 1e30, torch.inf, -torch.inf, torch.nan])
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
    return loop(scores_over_steps(score, score.prepare(key)), start)


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
    query, key = (torch.randn(2, 3, length, 5, dtype=torch.float64, requires_grad=True) for length in (1, 6))
    ours, theirs = scores_over_steps(score, score.prepare(key))(query), score(query, score.prepare(key))
    equal([ours], [theirs])
    equal(*(torch.autograd.grad(way.sum(), [query, key, *score.parameters()]) for way in (ours, theirs)))


@SCORES
@pytest.mark.parametrize("keys", [(1, 6, 3), (6, 3)])
def test_keys_may_be_shared_by_the_batch(score, keys):
    score, start, _ = made(score)
    key = torch.randn(keys, dtype=torch.float64, requires_grad=True)
    ours, theirs = over_steps(score, start, key), plainly(score, start, key)
    equal([ours], [theirs])
    equal(*(torch.autograd.grad(way.sum(), [start, key, *score.parameters()]) for way in (ours, theirs)))


@SCORES
@pytest.mark.parametrize("queries", [0, 1, 3])
def test_a_step_may_have_any_number_of_queries(score, queries):
    score, _, key = made(score)
    query = torch.randn(2, queries, 5, dtype=torch.float64, requires_grad=True)
    ours, theirs = scores_over_steps(score, score.prepare(key))(query), score(query, score.prepare(key))
    equal([ours], [theirs])
    equal(*(torch.autograd.grad(way.sum(), [query, key, *score.parameters()]) for way in (ours, theirs)))


@SCORES
def test_passes_that_ask_for_different_gradients_are_told_apart(score):
    score, start, key = made(score)
    ours, theirs = over_steps(score, start, key).sum(), plainly(score, start, key).sum()
    for leaves in ([start], [key, score.v], [score.v], [start, key]):
        equal(*(torch.autograd.grad(way, leaves, retain_graph=True) for way in (ours, theirs)))


@SCORES
def test_passes_inside_of_each_other_are_told_apart(score):
    score, start, key = made(score)
    prepared = score.prepare(key).detach().requires_grad_()
    leaves = [start, prepared, score.v]

    def by(make):
        look = make(prepared)
        first = look(start)
        second = checkpoint(look, start * first.sum(), use_reentrant=True)
        for leaf in leaves:
            leaf.grad = None
        look(start * second.sum()).sum().backward()
        return [leaf.grad.clone() for leaf in leaves]

    equal(by(partial(scores_over_steps, score)), by(lambda prepared: lambda query: score(query, prepared)))


@SCORES
def test_a_pass_that_does_not_come_to_the_keys_leaves_nothing_behind(score, monkeypatch):
    kept = []
    begin = hidden_layer._Gradients.__init__

    def watched(self, *arguments):
        kept.append(weakref.ref(self))
        begin(self, *arguments)

    monkeypatch.setattr(hidden_layer._Gradients, "__init__", watched)
    score, start, key = made(score)
    scores = over_steps(score, start, key).sum()
    torch.autograd.grad(scores, [start], retain_graph=True)
    gc.collect()
    assert kept
    assert not any(each() for each in kept)


@SCORES
def test_a_memory_asked_without_gradients_first_has_them_later(score):
    score, start, key = made(score)
    attend = Attend(score)
    memory = attend.remember(key).over_steps()
    with torch.no_grad():
        attend.recall(start, memory)
    ours = attend.recall(start, memory).context.square().sum()
    theirs = attend.recall(start, attend.remember(key)).context.square().sum()
    equal(*(torch.autograd.grad(way, [start, key, *score.parameters()]) for way in (ours, theirs)))


class Sharp(Additive):
    def forward(self, query, prepared):
        return 5 * super().forward(query, prepared)


class Shifted(Perceptron):
    def project_query(self, query):
        return query @ self.query_weight + 1


@pytest.mark.parametrize("kind", [Sharp, Shifted])
def test_a_score_of_ones_own_is_asked_as_it_was_written(kind):
    score, start, key = made(kind)
    equal([over_steps(score, start, key)], [plainly(score, start, key)])


def test_little_is_not_worth_it(monkeypatch):
    monkeypatch.setattr(hidden_layer, "over_steps", None)
    score, start, key = made(Additive)
    monkeypatch.setattr(hidden_layer, "FEWEST", 2 * 6 * 4 + 1)
    equal([over_steps(score, start, key)], [plainly(score, start, key)])
    monkeypatch.setattr(hidden_layer, "FEWEST", 2 * 6 * 4)
    with pytest.raises(TypeError):
        over_steps(score, start, key)


@pytest.mark.parametrize("route", ["chunked", "blockwise"])
def test_half_precision_by_autocast(route):
    attend = Attend(Additive(8), route=route)
    x = torch.randn(2, 16, 8, requires_grad=True)
    band = Band(before=2, after=2) if route == "blockwise" else None
    with torch.autocast("cpu", torch.bfloat16):
        context = attend(x, x, band=band).context
        expected = Attend(attend.score, route="explicit")(x, x, band=band).context
    torch.testing.assert_close(context, expected, atol=0.05, rtol=0)
    context.float().sum().backward()
    assert x.grad.isfinite().all()


def test_chunks_work_on_other_devices():
    """Shapes only: what mixes devices fails there as it would on a GPU."""
    attend = Attend(Additive(8).to("meta"), route="chunked")
    x = torch.randn(2, 16, 8, device="meta", requires_grad=True)
    attend(x, x).context.sum().backward()
    assert x.grad.shape == x.shape


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


# Compiled


needs_kernel = pytest.mark.skipif(compiled.kernels() is None, reason="nothing was compiled here")


def scored(query, key, v):
    """The plain formula in double precision."""
    query, key, v = (each.double() for each in (query, key, v))
    return (torch.tanh(query[..., None, :] + key[..., None, :, :]) * v[..., None, None, :]).sum(-1)


@needs_kernel
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("heads", [None, 3])
@pytest.mark.parametrize(("queries", "keys", "size"), [(1, 1, 8), (1, 7, 24), (5, 3, 16)])
def test_the_compiled_layer_gives_tanh_and_its_gradients(queries, keys, size, heads, threads, monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    leading = (2,) if heads is None else (2, heads)
    query = torch.randn(*leading, queries, size, requires_grad=True)
    key = torch.randn(size, *leading, keys).movedim(0, -1).requires_grad_()  # of any layout
    v = torch.randn(*leading[1:], size, requires_grad=True)
    found, expected = hidden_layer.scores(query, key, v, 1), scored(query, key, v)
    assert TanhOfSums(key.detach()).exponentials(query.detach(), v.detach()) is not None
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=1e-5)
    gradient = torch.randn(found.shape)
    gradient[..., 0] = 0  # as of a key that nobody may see
    for ours, theirs in zip(
        torch.autograd.grad(found, (query, key, v), gradient),
        torch.autograd.grad(expected, (query, key, v), gradient),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@needs_kernel
@SCORES
def test_compiled_steps_are_torchs_loop(score):
    torch.manual_seed(0)
    made_of = score(16, 16, hidden=16)
    start, key = torch.randn(2, 1, 16, requires_grad=True), torch.randn(2, 6, 16, requires_grad=True)
    grow = torch.randn(6, 16)

    def walked(look):
        query, seen = start, []
        for _ in range(STEPS):
            seen.append(look(query))
            query = query + seen[-1] @ grow
        return torch.stack(seen)

    prepared = made_of.prepare(key)
    wanted = [start, key, *made_of.parameters()]
    answers = []
    for look in (scores_over_steps(made_of, prepared), lambda query: made_of(query, prepared)):
        seen = walked(look)
        answers.append((seen, *torch.autograd.grad(seen.square().sum(), wanted, retain_graph=True)))
    for ours, theirs in zip(*answers, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


@needs_kernel
def test_what_has_no_exponential_is_not_compiled():
    key, v = torch.randn(2, 3, 8), torch.randn(8)
    sums = TanhOfSums(key)
    assert sums.exponentials(torch.randn(2, 1, 8), v) is not None
    assert sums.exponentials(torch.full((2, 1, 8), 50.0), v) is None
    assert sums.exponentials(torch.randn(2, 1, 8).double(), v) is None
    assert sums.exponentials(torch.randn(1, 1, 8), v) is None  # keys of others
    assert TanhOfSums(key[..., :4]).exponentials(torch.randn(2, 1, 4), v[:4]) is None
    assert TanhOfSums(50 * key).exponentials(torch.randn(2, 1, 8), v) is None
