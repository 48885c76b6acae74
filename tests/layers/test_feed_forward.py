"""The hand-written gradient of the feed-forward layer beside torch's own, with the same units dropped."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.layers.dropout import Dropout, draw_kept
from saccade.layers.feed_forward import FeedForward, _RectifiedFeedForward, feed_forward


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


def test_added_is_a_sum_with_what_dropout_gives() -> None:
    dropout, x, to = Dropout(0.3), torch.randn(7, 9, requires_grad=True), torch.randn(7, 9, requires_grad=True)
    answer = torch.randn(7, 9)
    torch.manual_seed(2)
    expected = to + dropout(x)
    torch.manual_seed(2)
    got = dropout.added(x, to=to)
    torch.testing.assert_close(got, expected)
    theirs = torch.autograd.grad(expected, (x, to), answer)
    torch.testing.assert_close(torch.autograd.grad(got, (x, to), answer), theirs)
    assert torch.equal(dropout.eval().added(x, to=to), to + x)


def test_a_dropped_unit_tells_its_weights_nothing() -> None:
    layer = FeedForward(4, 6, F.relu, 0.5)
    torch.manual_seed(4)
    layer(torch.ones(1, 4)).sum().backward()
    assert isinstance(layer.expand, nn.Linear)
    assert layer.expand.weight.grad is not None
    assert (layer.expand.weight.grad.abs().sum(1) == 0).any()
