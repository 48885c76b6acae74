"""R-Drop (Liang et al. 2021, https://arxiv.org/abs/2106.14448): the same words read twice with other dropout must be predicted alike.

    loss = CE(p) + CE(q) + w · ½ (KL(p‖q) + KL(q‖p))        p, q = softmax(h Wᵀ + b) of the two readings

As in cross_entropy.py, gradients are computed chunk by chunk on the way forward, and no chunk's logits are kept. With a = log p - log q:

    ∂ KL(p‖q) / ∂ logits of p = p (a - KL(p‖q))              ∂ KL(q‖p) / ∂ logits of p = p - q

Axis legend: N tokens, D features, V vocabulary, 2 readings.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from saccade.layers.cross_entropy import CHUNK_ELEMENTS


def consistent_cross_entropy(
    hidden: Tensor, layer: nn.Linear, targets: Tensor, label_smoothing: float, weight: float
) -> tuple[Tensor, Tensor]:
    """Of two readings (2N, D), one after the other, of the same words (2N,): the loss summed over both, and the plain negative
    log-likelihood of each token (2N,), which carries no gradient."""
    with torch.autocast(hidden.device.type, enabled=False):
        pairs = hidden.to(layer.weight.dtype).unflatten(0, (2, -1))
        total, nll = _ConsistentCrossEntropy.apply(
            pairs, layer.weight, layer.bias, targets[: pairs.shape[1]], label_smoothing, weight
        )
    return total, nll.flatten()


class _ConsistentCrossEntropy(Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, smoothing: float, consistency: float
    ) -> tuple[Tensor, Tensor]:
        words, count = len(weight), hidden.shape[1]
        rows = max(1, CHUNK_ELEMENTS // (2 * words))
        nll, total = hidden.new_empty(2, count), hidden.new_zeros(())
        gradients = torch.empty_like(hidden), torch.zeros_like(weight), torch.zeros_like(bias)
        for start in range(0, count, rows):
            chunk = slice(start, start + rows)
            h, target = hidden[:, chunk], targets[chunk].expand(2, -1)[..., None]  # (2, rows, D), (2, rows, 1)
            logits = torch.addmm(bias, h.flatten(0, 1), weight.t()).unflatten(0, (2, -1))  # (2, rows, V)
            log_p = logits.sub_(logits.logsumexp(-1, keepdim=True))
            p = log_p.exp()
            target_log_p = log_p.gather(-1, target)
            nll[:, chunk] = -target_log_p.squeeze(-1)
            total -= (1 - smoothing) * target_log_p.sum() + smoothing * log_p.mean(-1).sum()
            apart = torch.stack((log_p[0] - log_p[1], log_p[1] - log_p[0]), out=logits)  # a and -a
            divergence = (p * apart).sum(-1, keepdim=True)  # KL(p‖q) and KL(q‖p), (2, rows, 1)
            total += consistency / 2 * divergence.sum()
            gradient = apart.sub_(divergence).mul_(p).mul_(consistency / 2)
            gradient.add_(p, alpha=1 + consistency / 2).sub_(p.flip(0), alpha=consistency / 2).sub_(smoothing / words)
            gradient.scatter_add_(-1, target, gradient.new_full((1, 1, 1), smoothing - 1).expand_as(target))
            flat = gradient.flatten(0, 1)
            gradients[0][:, chunk] = (flat @ weight).unflatten(0, (2, -1))
            gradients[1].addmm_(flat.t(), h.flatten(0, 1))
            gradients[2].add_(flat.sum(0))
        ctx.save_for_backward(*gradients)
        ctx.mark_non_differentiable(nll)
        return total, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, total: Tensor, nll: Tensor) -> tuple[Tensor | None, ...]:
        return *(gradient * total for gradient in ctx.saved_tensors), None, None, None
