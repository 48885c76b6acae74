"""R-Drop (Liang et al. 2021, https://arxiv.org/abs/2106.14448): the same words read twice with different dropout must be predicted alike.

    loss = CE(p) + CE(q) + w · ½ (KL(p‖q) + KL(q‖p))        p, q = softmax(h Wᵀ + b) of the two readings

Axis legend: N tokens, D features, 2 readings.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.attention.routes import HAS_KERNELS

if HAS_KERNELS:
    from saccade.kernels import consistency as kernel


def consistent_cross_entropy(
    hidden: Tensor, layer: nn.Linear, targets: Tensor, label_smoothing: float, weight: float
) -> tuple[Tensor, Tensor]:
    """Of two readings (2N, D), one after the other, of the same words (2N,): the loss summed over both, and the plain negative
    log-likelihood of each token (2N,), which carries no gradient."""
    with torch.autocast(hidden.device.type, enabled=False):
        hidden = hidden.to(layer.weight.dtype)
        if HAS_KERNELS:
            pairs, words = hidden.unflatten(0, (2, -1)), targets[: len(targets) // 2]
            total, nll = kernel.consistent_cross_entropy(
                pairs, layer.weight, layer.bias, words, label_smoothing, weight
            )
            return total, nll.flatten()
        logits = layer(hidden)  # (2N, V)
        log_p, log_q = logits.log_softmax(-1).chunk(2)
        divergence = ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum()  # KL(p‖q) + KL(q‖p)
        total = F.cross_entropy(logits, targets, reduction="sum", label_smoothing=label_smoothing)
        return total + weight / 2 * divergence, F.cross_entropy(logits.detach(), targets, reduction="none")
