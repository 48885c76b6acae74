"""R-Drop's loss and gradients against torch's own cross-entropy and divergence."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from saccade.kernels import consistency
from saccade.layers.consistency import consistent_cross_entropy


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weight", [0.0, 5.0])
@pytest.mark.parametrize("chunk", [1, 40, 2**20])
def test_loss_and_gradients_are_torchs(smoothing, weight, chunk, monkeypatch):
    monkeypatch.setattr(consistency, "CHUNK_ELEMENTS", chunk)
    torch.manual_seed(0)
    layer = nn.Linear(6, 11).double()
    hidden = torch.randn(14, 6, dtype=torch.float64, requires_grad=True)
    words = torch.randint(0, 11, (7,)).repeat(2)
    logits = layer(hidden)
    p, q = logits.log_softmax(-1).chunk(2)
    apart = F.kl_div(q, p, log_target=True, reduction="sum") + F.kl_div(p, q, log_target=True, reduction="sum")
    expected = F.cross_entropy(logits, words, label_smoothing=smoothing, reduction="sum") + weight / 2 * apart
    wanted = torch.autograd.grad(expected, (hidden, layer.weight, layer.bias))

    total, nll = consistent_cross_entropy(hidden, layer, words, smoothing, weight)
    torch.testing.assert_close(total, expected)
    torch.testing.assert_close(nll, F.cross_entropy(logits, words, reduction="none"))
    for ours, theirs in zip(torch.autograd.grad(3 * total, (hidden, layer.weight, layer.bias)), wanted, strict=True):
        torch.testing.assert_close(ours, 3 * theirs)


def test_equal_readings_cost_nothing_more():
    layer, hidden, words = nn.Linear(4, 9), torch.randn(5, 4).repeat(2, 1), torch.randint(0, 9, (5,)).repeat(2)
    with_weight, without = (consistent_cross_entropy(hidden, layer, words, 0.1, weight)[0] for weight in (8.0, 0.0))
    torch.testing.assert_close(with_weight, without)
