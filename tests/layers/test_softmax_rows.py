"""What the last layer does with its logits: compiled and by torch, against torch's cross-entropy in double precision."""

from unittest.mock import patch

import pytest
import torch
from torch.nn import functional as F

from saccade.attention import compiled
from saccade.layers import softmax_rows

WAYS = {"by torch": softmax_rows._by_torch} | (
    {"compiled": softmax_rows._compiled} if compiled.kernels() is not None else {}
)


def visit(way, logits, bias, targets, smoothing=0.1, with_gradient=True):
    logits, target_logit, nll = logits.clone(), *torch.empty(2, len(logits))
    of_bias = torch.ones_like(bias) if with_gradient else None
    way(softmax_rows.Chunk(logits, bias, targets, target_logit, nll, smoothing, of_bias))
    return logits, target_logit, nll, of_bias


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("words", [1, 7, 8, 9, 100, 8000])
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_loss_and_gradient_are_those_of_cross_entropy(way, words, threads):
    torch.manual_seed(0)
    logits, bias, targets = 5 * torch.randn(13, words), torch.randn(words), torch.randint(0, words, (13,))
    with patch.object(torch, "get_num_threads", lambda: threads):
        gradient, target_logit, nll, of_bias = visit(way, logits, bias, targets)
    exact = (logits.double() + bias.double()).requires_grad_()
    losses = F.cross_entropy(exact, targets, reduction="none")
    torch.testing.assert_close(nll.double(), losses, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(
        target_logit.double(), exact.gather(1, targets[:, None]).squeeze(1), rtol=1e-6, atol=1e-6
    )
    losses.sum().backward()
    expected = exact.grad + 0.1 * F.one_hot(targets, words)  # (1 - ε) of the target's own
    torch.testing.assert_close(gradient.double(), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(of_bias.double(), 1 + expected.sum(0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_without_a_gradient_the_loss_is_the_same(way):
    logits, bias, targets = torch.randn(4, 30), torch.randn(30), torch.tensor([0, 29, 7, 7])
    expected = visit(way, logits, bias, targets)[1:3]
    for found, same in zip(visit(way, logits, bias, targets, with_gradient=False)[1:3], expected, strict=True):
        assert torch.equal(found, same)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_what_is_no_number_is_not_hidden(way):
    logits = torch.randn(3, 20)
    logits[1, 4] = torch.nan
    gradient, _, nll, _ = visit(way, logits, torch.zeros(20), torch.tensor([1, 2, 3]))
    assert nll.isnan().tolist() == [False, True, False]
    assert gradient[1].isnan().all()
    assert gradient[[0, 2]].isfinite().all()


@pytest.mark.skipif("compiled" not in WAYS, reason="nothing was compiled here")
def test_an_improbable_target_has_its_loss_at_once():
    logits = torch.tensor([[300.0, 0.0, -20.0]])
    assert visit(WAYS["compiled"], logits, torch.zeros(3), torch.tensor([2]))[2].item() == pytest.approx(320.0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_precisions_are_left_to_torch(dtype):
    assert not compiled.can_compute(torch.zeros(2, dtype=dtype))


def test_where_nothing_was_compiled_torch_does_it():
    logits, bias, targets = torch.randn(2, 9), torch.zeros(9), torch.tensor([1, 2])
    expected = visit(softmax_rows._by_torch, logits, bias, targets)
    with patch.object(compiled, "kernels", lambda: None):
        for found, same in zip(visit(softmax_rows.visit, logits, bias, targets), expected, strict=True):
            assert torch.equal(found, same)


@pytest.mark.parametrize("targets", [torch.tensor([1, -100]), torch.tensor([1, 20]), torch.tensor([1, 2, 3])])
def test_targets_that_are_no_words_are_refused(targets):
    with pytest.raises((IndexError, RuntimeError)):
        visit(softmax_rows.visit, torch.randn(2, 20), torch.zeros(20), targets)
