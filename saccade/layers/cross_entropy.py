"""The last linear layer and its loss: cross-entropy with label smoothing, as `torch.nn.functional.cross_entropy` has it.

    loss = (1 - ε) nll + ε (logsumexp(logits) - mean(logits))          nll = logsumexp(logits) - logits[target], logits = h Wᵀ + b

Axis legend: N tokens, D features, V vocabulary.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.attention.routes import HAS_KERNELS

if HAS_KERNELS:
    from saccade.kernels import cross_entropy as kernel


def linear_cross_entropy(
    hidden: Tensor, layer: nn.Linear, targets: Tensor, label_smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    """The smoothed loss summed over all tokens, and the plain negative log-likelihood of each (N,), which carries no gradient."""
    with torch.autocast(hidden.device.type, enabled=False):  # sums over a vocabulary need the weights' full precision
        hidden = hidden.to(layer.weight.dtype)
        if HAS_KERNELS:
            bias = layer.weight.new_zeros(layer.out_features) if layer.bias is None else layer.bias
            return kernel.linear_cross_entropy(hidden, layer.weight, bias, targets, label_smoothing)
        logits = layer(hidden)
        total = F.cross_entropy(logits, targets, reduction="sum", label_smoothing=label_smoothing)
        return total, F.cross_entropy(logits.detach(), targets, reduction="none")
