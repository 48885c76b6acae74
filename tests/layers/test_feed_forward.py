"""The hand-written gradient of the feed-forward layer beside torch's own, with the same units dropped."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.attention import compiled
from saccade.layers import dropout as dropouts
from saccade.layers.dropout import Dropout, _Dropped, add_dropped, draw_kept, rectify_and_drop_
from saccade.layers.feed_forward import FeedForward, _learns_on_a_cpu, _RectifiedFeedForward, feed_forward


def gradients(layer: FeedForward, x: Tensor, answer: Tensor) -> list[Tensor]:
    layer.zero_grad()
    x = x.detach().requires_grad_()
    torch.manual_seed(3)
    layer(x).backward(answer)
    assert x.grad is not None
    return [x.grad, *(parameter.grad.clone() for parameter in layer.parameters())]  # type: ignore[union-attr]


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.9])
@pytest.mark.parametrize("shape", [(5, 8), (3, 4, 8), (2, 3, 4, 8)])
def test_gradients_are_those_of_the_modules(rate: float, shape: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    layer = feed_forward(8, 24, "relu", rate).double()
    x, answer = torch.randn(shape, dtype=torch.float64), torch.randn(shape, dtype=torch.float64)
    torch.manual_seed(3)
    ours = layer(x)
    by_hand = gradients(layer, x, answer)
    calls: list[int] = []
    layer.contract.register_forward_hook(lambda *_: calls.append(1))  # whoever hooks a part gets the modules' way
    torch.manual_seed(3)
    torch.testing.assert_close(ours, layer(x))
    for mine, theirs in zip(by_hand, gradients(layer, x, answer), strict=True):
        torch.testing.assert_close(mine, theirs)
    assert len(calls) == 2


def test_torch_finds_the_same_gradient_by_differences() -> None:
    torch.manual_seed(1)
    inputs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((3, 4), (6, 4), 6, (4, 6), 4)]
    assert torch.autograd.gradcheck(lambda *tensors: _RectifiedFeedForward.apply(*tensors, 0.0), inputs)


def test_it_is_the_published_formula() -> None:
    layer = feed_forward(8, 24, "relu", 0.5).eval()
    x = torch.randn(2, 3, 8)
    torch.testing.assert_close(layer(x), layer.contract(F.relu(layer.expand(x))))


def test_hidden_layer_is_held_once() -> None:
    layer = feed_forward(8, 1024, "relu", 0.1)
    held: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: held.append(tensor.numel()) or tensor, lambda t: t):
        layer(torch.randn(4, 8, requires_grad=True))
    assert held.count(4 * 1024) == 1


@pytest.mark.parametrize("rate", [0.001, 0.1, 0.5, 0.999])
def test_dropout_keeps_its_share_and_the_mean(rate: float) -> None:
    torch.manual_seed(1)
    kept, scale = draw_kept(torch.empty(1000, 333), rate)
    assert set(kept.unique().tolist()) <= {0.0, 1.0}
    assert scale * kept.mean().item() == pytest.approx(1, abs=0.06)
    assert kept.mean().item() == pytest.approx(1 - rate, abs=0.004)


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.999])
def test_what_is_dropped_is_a_share_of_all_places(
    rate: float, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_compiled:
        monkeypatch.setattr(compiled, "kernels", lambda: None)
    torch.manual_seed(1)
    dropout, x = Dropout(rate), torch.ones(1001, 333, requires_grad=True)
    dropped = dropout(x)
    assert dropped.mean().item() == pytest.approx(1, abs=0.06)
    kept = (dropped > 0).float()
    assert kept.mean().item() == pytest.approx(1 - rate, abs=0.004)
    assert len(dropped.unique()) == 2
    spread = 4 * (rate * (1 - rate) / 333) ** 0.5 + 0.01  # no row and no column has another chance than others
    assert (kept.mean(1) - kept.mean()).abs().mean() < spread
    assert (kept.mean(0) - kept.mean()).abs().mean() < spread
    torch.testing.assert_close(torch.autograd.grad(dropped.sum(), x)[0], dropped)
    assert not torch.equal(dropout(x), dropped)


@pytest.mark.skipif(compiled.kernels() is None, reason="nothing was compiled here")
@pytest.mark.parametrize("count", [1, 7, 8, 9, 70_001])
def test_compiled_dropout_follows_from_its_seed_alone(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x, to = torch.randn(count), torch.randn(count)
    answers = []
    for threads in (1, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        answers.append(_Dropped.apply(x, to, 7, 0.25))
    assert torch.equal(*answers)
    kept = (answers[0] != to).float()
    torch.testing.assert_close(answers[0], to + x * kept * 4 / 3)
    assert torch.equal(_Dropped.apply(torch.ones(count), None, 7, 0.25) > 0, kept > 0)
    rectified = x.clone()
    monkeypatch.setattr(dropouts, "_drawn_seed", lambda: 7)
    assert rectify_and_drop_(rectified, 0.25) == pytest.approx(4 / 3)
    assert torch.equal(rectified, x.relu() * kept)


@pytest.mark.skipif(compiled.kernels() is None, reason="nothing was compiled here")
def test_compiled_dropout_can_be_differentiated_twice() -> None:
    x = torch.randn(4, 9, requires_grad=True)
    y = _Dropped.apply(x, None, 3, 0.5)
    (first,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close(second, 8.0 * (y != 0))


def test_added_is_a_sum_with_what_dropout_gives() -> None:
    dropout, x, to = Dropout(0.3), torch.randn(7, 9, requires_grad=True), torch.randn(7, 9, requires_grad=True)
    answer = torch.randn(7, 9)
    torch.manual_seed(2)
    expected = to + dropout(x)
    torch.manual_seed(2)
    got = add_dropped(to, x, dropout)
    torch.testing.assert_close(got, expected)
    theirs = torch.autograd.grad(expected, (x, to), answer)
    torch.testing.assert_close(torch.autograd.grad(got, (x, to), answer), theirs)
    assert torch.equal(add_dropped(to, x, dropout.eval()), to + x)
    assert torch.equal(add_dropped(to, x, nn.Identity()), to + x)
    mixed = add_dropped(to.double(), x, dropout.train())
    assert mixed.dtype == torch.float64
    assert torch.autograd.grad(mixed.sum(), x)[0].dtype == torch.float32


def test_a_hook_on_dropout_is_called() -> None:
    dropout, calls = Dropout(0.3), []
    dropout.register_forward_hook(lambda *_: calls.append(1))
    add_dropped(torch.ones(2, 2), torch.ones(2, 2), dropout)
    assert calls == [1]


class Adapted(nn.Linear):
    """A linear layer with something learned beside it, as fine-tuning libraries put in place of a plain one."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.beside = nn.Parameter(torch.ones(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.beside


@pytest.mark.parametrize("part", [Adapted(8, 24), nn.Linear(8, 24, bias=False), nn.Sequential(nn.Linear(8, 24))])
def test_parts_put_in_place_of_its_own_are_used(part: nn.Module) -> None:
    layer, x = feed_forward(8, 24, "relu", 0.0), torch.randn(3, 8)
    layer.expand = part  # type: ignore[assignment]
    answer = layer(x)
    torch.testing.assert_close(answer, layer.contract(F.relu(part(x))))
    answer.sum().backward()
    assert all(parameter.grad is not None for parameter in part.parameters())


def test_another_dropout_is_used() -> None:
    layer = feed_forward(8, 24, "relu", 0.5)
    layer.dropout = nn.Dropout(1.0)  # type: ignore[assignment]
    assert torch.equal(layer(torch.randn(3, 8)), layer.contract.bias.expand(3, 8))


def test_what_is_frozen_gets_no_gradient_and_the_rest_the_same() -> None:
    torch.manual_seed(1)
    layer, x, answer = feed_forward(8, 24, "relu", 0.0), torch.randn(5, 8), torch.randn(5, 8)
    whole = gradients(layer, x, answer)[1:]
    for frozen, parameter in enumerate(layer.parameters()):
        layer.zero_grad()
        parameter.requires_grad_(False)
        layer(x).backward(answer)
        for number, (other, expected) in enumerate(zip(layer.parameters(), whole, strict=True)):
            assert (other.grad is None) == (number == frozen)
            if other.grad is not None:
                torch.testing.assert_close(other.grad, expected)
        parameter.requires_grad_(True)


def test_in_evaluation_it_can_be_differentiated_twice_and_over_examples() -> None:
    layer = feed_forward(4, 8, "relu", 0.5).eval()
    x = torch.randn(3, 4, requires_grad=True)
    (first,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
    assert torch.autograd.grad(first.sum(), x)[0].isfinite().all()
    assert torch.func.vmap(torch.func.grad(lambda row: layer(row).sum()))(x.detach()).shape == (3, 4)


def test_under_autocast_the_modules_decide() -> None:
    layer, calls = feed_forward(4, 8, "relu", 0.0), []
    applied = _RectifiedFeedForward.apply
    try:
        _RectifiedFeedForward.apply = lambda *inputs: calls.append(1) or applied(*inputs)  # type: ignore[method-assign]
        layer(torch.randn(2, 4))
        with torch.autocast("cpu", torch.bfloat16, enabled=True), torch.no_grad():
            assert not _learns_on_a_cpu(torch.randn(2, 4))
        with torch.autocast("cpu", torch.bfloat16, enabled=True):
            assert not _learns_on_a_cpu(torch.randn(2, 4))
    finally:
        _RectifiedFeedForward.apply = applied  # type: ignore[method-assign]
    assert calls == [1]


def test_a_dropped_unit_tells_its_weights_nothing() -> None:
    layer = feed_forward(4, 2000, "relu", 0.5)
    with torch.no_grad():
        layer.expand.weight.fill_(1.0)  # every unit is positive: only dropout silences one
    torch.manual_seed(4)
    layer(torch.ones(1, 4)).sum().backward()
    assert layer.expand.weight.grad is not None
    silent = (layer.expand.weight.grad.abs().sum(1) == 0).float().mean().item()
    assert silent == pytest.approx(0.5, abs=0.05)
