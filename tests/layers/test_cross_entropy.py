"""The chunked last layer against torch's cross_entropy."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from saccade.kernels import cross_entropy
from saccade.layers.cross_entropy import linear_cross_entropy


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("chunk", [1, 70, 2**20])
def test_equals_torchs_loss_and_gradients(smoothing, chunk, monkeypatch):
    monkeypatch.setattr(cross_entropy, "CHUNK_ELEMENTS", chunk)
    torch.manual_seed(0)
    layer, targets = nn.Linear(5, 11).double(), torch.randint(0, 11, (17,))
    ours, theirs = (
        torch.randn(17, 5, generator=torch.Generator().manual_seed(1)).double().requires_grad_() for _ in "ab"
    )
    total, nll = linear_cross_entropy(ours, layer, targets, smoothing)
    (3 * total).backward()
    got = [ours.grad, *(parameter.grad.clone() for parameter in layer.parameters())]
    layer.zero_grad()
    logits = layer(theirs)
    expected = F.cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing)
    (3 * expected).backward()
    torch.testing.assert_close(total, expected, atol=1e-10, rtol=0)
    torch.testing.assert_close(nll, F.cross_entropy(logits, targets, reduction="none").detach(), atol=1e-10, rtol=0)
    for mine, other in zip(got, [theirs.grad, *(parameter.grad for parameter in layer.parameters())], strict=True):
        torch.testing.assert_close(mine, other, atol=1e-10, rtol=0)
    assert not nll.requires_grad


@pytest.mark.parametrize("words", [2, 15, 17, 1023, 8001, 70_000])
def test_every_size_of_vocabulary_is_normalised_in_its_own_memory(words):
    torch.manual_seed(0)
    layer, hidden, targets = nn.Linear(4, words), 10 * torch.randn(40, 4), torch.randint(0, words, (40,))
    _, nll = linear_cross_entropy(hidden, layer, targets)
    torch.testing.assert_close(nll, F.cross_entropy(layer(hidden), targets, reduction="none").detach())


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_target_whose_probability_is_too_small_to_be_written_down_has_its_loss(smoothing):
    layer, targets = nn.Linear(2, 3), torch.tensor([0, 1, 2, 1])
    layer.weight.data = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]])
    hidden = torch.tensor([[200.0, 0.0], [1.0, 2.0], [-500.0, 500.0], [0.0, 90.0]])  # probabilities from 0.2 to e⁻⁵⁰⁰
    total, nll = linear_cross_entropy(hidden, layer, targets, smoothing)
    torch.testing.assert_close(nll, F.cross_entropy(layer(hidden), targets, reduction="none").detach())
    torch.testing.assert_close(
        total, F.cross_entropy(layer(hidden), targets, reduction="sum", label_smoothing=smoothing)
    )
    assert nll.max() > 150


def test_large_logits_do_not_overflow():
    layer = nn.Linear(2, 3)
    total, _ = linear_cross_entropy(torch.full((4, 2), 1e4), layer, torch.tensor([0, 1, 2, 0]))
    assert total.isfinite()


def test_without_gradient_it_gives_the_same_loss():
    torch.manual_seed(0)
    layer, hidden, targets = nn.Linear(5, 11), torch.randn(6, 5), torch.randint(0, 11, (6,))
    with torch.no_grad():
        quiet, _ = linear_cross_entropy(hidden, layer, targets, 0.1)
    loud, _ = linear_cross_entropy(hidden.requires_grad_(), layer, targets, 0.1)
    assert torch.equal(quiet, loud.detach())
    assert not quiet.requires_grad


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_under_autocast_the_loss_is_that_of_full_precision(dtype):
    """No product in bfloat16 is asked for, which some processors promise and cannot do."""
    torch.manual_seed(0)
    layer, hidden, targets = nn.Linear(5, 11), torch.randn(6, 5).to(dtype).requires_grad_(), torch.randint(0, 11, (6,))
    with torch.autocast("cpu", torch.bfloat16):
        total, _ = linear_cross_entropy(hidden, layer, targets, 0.1)
    total.backward()
    assert total.dtype == torch.float32
    assert hidden.grad.dtype == dtype
    torch.testing.assert_close(total, linear_cross_entropy(hidden.float(), layer, targets, 0.1)[0])


def test_no_tokens_have_no_loss_and_no_gradient():
    layer, hidden = nn.Linear(3, 7), torch.randn(0, 3, requires_grad=True)
    total, nll = linear_cross_entropy(hidden, layer, torch.empty(0, dtype=torch.long), 0.1)
    total.backward()
    assert total.item() == 0
    assert nll.shape == (0,)
    assert layer.weight.grad.abs().sum() == 0
