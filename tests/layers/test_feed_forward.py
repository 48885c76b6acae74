"""The feed-forward layer is its formula, whatever its parts are replaced by."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from saccade.layers.feed_forward import feed_forward


def test_it_is_the_published_formula() -> None:
    layer, x = feed_forward(8, 24, "relu", 0.5).eval(), torch.randn(2, 3, 8)
    torch.testing.assert_close(layer(x), layer.contract(F.relu(layer.expand(x))))


def test_gated_is_the_published_formula() -> None:
    layer, x = feed_forward(8, 24, "gated", 0.5).eval(), torch.randn(2, 3, 8)
    torch.testing.assert_close(layer(x), layer.contract(F.silu(layer.gate(x)) * layer.expand(x)))


@pytest.mark.parametrize("part", [nn.Linear(8, 24, bias=False), nn.Sequential(nn.Linear(8, 24))])
def test_a_replaced_part_is_used(part: nn.Module) -> None:
    layer, x = feed_forward(8, 24, "relu", 0.0), torch.randn(3, 8)
    layer.expand = part  # type: ignore[assignment]
    torch.testing.assert_close(layer(x), layer.contract(F.relu(part(x))))


def test_a_dropped_unit_gives_its_weights_no_gradient() -> None:
    layer = feed_forward(4, 2000, "relu", 0.5)
    with torch.no_grad():
        layer.expand.weight.fill_(1.0)  # every unit is positive: only dropout silences one
    layer(torch.ones(1, 4)).sum().backward()
    assert layer.expand.weight.grad is not None
    silent = (layer.expand.weight.grad.abs().sum(1) == 0).float().mean().item()
    assert silent == pytest.approx(0.5, abs=0.05)
