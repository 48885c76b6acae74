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
from torch.nn import functional as F

from saccade.attention.derivatives import first_derivative_only
from saccade.layers.softmax_rows import Chunk, visit

CHUNK_ELEMENTS = 2**22  # logits held at once: enough rows for fast products (docs/results.md)


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
            h = hidden[chunk]
            logits = torch.mm(h, weight.t(), out=held[: len(h)])  # (rows, V)
            of_bias = None if gradients is None else gradients[2]
            visit(Chunk(logits, bias, targets[chunk], target_logit[chunk], nll[chunk], smoothing, of_bias))
            if gradients is not None:
                torch.mm(logits, weight, out=gradients[0][chunk])  # of the loss by now
                gradients[1].addmm_(logits.t(), h, beta=float(start > 0))  # with 0 what was there is not even read
        _mend_the_improbable(nll, hidden, weight, bias, targets)
        if gradients is not None:
            add_smoothing(gradients, hidden, weight, smoothing)
            ctx.save_for_backward(*gradients)
        ctx.mark_non_differentiable(nll)
        return smoothed_loss(nll, target_logit, hidden, weight, bias, smoothing), nll

    @staticmethod
    @first_derivative_only
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
