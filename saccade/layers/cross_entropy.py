"""The last layer and its loss in one: cross-entropy with label smoothing over a large vocabulary, without ever holding all logits.

    logits = h Wᵀ + b
    nll = logsumexp(logits) - logits[target]
    loss = (1 - ε) nll + ε (logsumexp(logits) - mean(logits))          as torch.nn.functional.cross_entropy with label_smoothing

The gradient of the logits, softmax - (1 - ε) onehot - ε/V, is known as soon as the loss is. So each chunk of tokens gives its part of the
gradients of h, W and b on the way forward, in the same memory, and its logits are forgotten. What is the same for every word of the
vocabulary, the mean of the logits and - ε/V, never meets the logits: it is computed with the mean of W.

Axis legend: N tokens, D features, V vocabulary.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

CHUNK_ELEMENTS = 2**21  # logits held at once: few enough to stay in a cache, enough rows for a fast matmul


def linear_cross_entropy(
    hidden: Tensor, layer: nn.Linear, targets: Tensor, label_smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    """The smoothed loss summed over all tokens, and the plain negative log-likelihood of each (N,), which carries no gradient."""
    weight, bias = layer.weight, layer.bias
    with torch.autocast(hidden.device.type, enabled=False):  # sums over a vocabulary need the weights' full precision
        hidden = hidden.to(weight.dtype)
        return _LinearCrossEntropy.apply(hidden, weight, bias, targets, label_smoothing, torch.is_grad_enabled())


class _LinearCrossEntropy(Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, smoothing: float, with_gradient: bool
    ) -> tuple[Tensor, Tensor]:
        words = len(weight)
        rows = max(1, CHUNK_ELEMENTS // words)
        target_logit, nll = hidden.new_empty(2, len(hidden))
        new = torch.empty_like if len(hidden) else torch.zeros_like
        gradients = (new(hidden), new(weight), torch.zeros_like(bias)) if with_gradient else None
        held = hidden.new_empty(min(rows, len(hidden)), words)
        for start in range(0, len(hidden), rows):
            chunk = slice(start, start + rows)
            h, target = hidden[chunk], targets[chunk, None]
            logits = torch.mm(h, weight.t(), out=held[: len(h)]).add_(bias)  # (rows, V)
            target_logit[chunk] = logits.gather(1, target).squeeze(1)
            probabilities = torch.softmax(logits, 1, out=logits)
            nll[chunk] = -probabilities.gather(1, target).squeeze(1).log()
            if gradients is not None:
                gradient = probabilities.scatter_add_(
                    1, target, hidden.new_full((1, 1), smoothing - 1).expand_as(target)
                )
                torch.mm(gradient, weight, out=gradients[0][chunk])
                gradients[1].addmm_(gradient.t(), h, beta=float(start > 0))  # with 0 what was there is not even read
                gradients[2].add_(torch.mv(gradient.t(), gradient.new_ones(len(h))))  # a sum, by the faster kernel
        _mend_the_improbable(nll, hidden, weight, bias, targets)
        if gradients is not None:
            add_smoothing(gradients, hidden, weight, smoothing)
            ctx.save_for_backward(*gradients)
        ctx.mark_non_differentiable(nll)
        return smoothed_loss(nll, target_logit, hidden, weight, bias, smoothing), nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, total: Tensor, nll: Tensor) -> tuple[Tensor | None, ...]:
        return *(gradient * total for gradient in ctx.saved_tensors), None, None, None


def smoothed_loss(
    nll: Tensor, target_logit: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor, smoothing: float
) -> Tensor:
    """Summed over tokens, from the negative log-likelihood and the logit of each one's target (N,)."""
    if not smoothing:
        return nll.sum()
    mean_logits = torch.mv(hidden, weight.mean(0)) + bias.mean()  # a mean of products is a product with the mean
    return (1 - smoothing) * nll.sum() + smoothing * (nll + target_logit - mean_logits).sum()


def add_smoothing(gradients: tuple[Tensor, Tensor, Tensor], hidden: Tensor, weight: Tensor, smoothing: float) -> None:
    """What - ε/V in the gradient of every logit adds to those of h, W and b."""
    if smoothing:
        gradients[0].sub_(weight.mean(0), alpha=smoothing)
        gradients[1].sub_(hidden.sum(0), alpha=smoothing / len(weight))
        gradients[2].sub_(len(hidden) * smoothing / len(weight))


def _mend_the_improbable(nll: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> None:
    """A probability too small for its dtype has no logarithm: of such targets, which are rare, the logits are computed again."""
    rare = (nll > -math.log(torch.finfo(nll.dtype).tiny)).nonzero().squeeze(1)
    for some in rare.split(max(1, CHUNK_ELEMENTS // len(weight))):
        logits = torch.addmm(bias, hidden[some], weight.t())
        nll[some] = F.cross_entropy(logits, targets[some], reduction="none")
