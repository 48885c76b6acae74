"""The Transformer's feed-forward layer (Vaswani 2017), and its gated form (Shazeer 2020).

    plain    W₂ dropout(activation(W₁ x + b₁)) + b₂
    gated    W₂ dropout(silu(V x) ∘ (W₁ x + b₁)) + b₂

The hidden layer is the widest in the model, so passes over it are what training can save. With ReLU, a dropped unit is 0 like one that was
negative: the hidden layer, rectified and dropped in place, is all that its gradient needs.

    h = kept ∘ relu(W₁ x + b₁)          y = s W₂ h + b₂                  s = 1 / (1 - rate)
    g_h = (s g_y W₂) ∘ [h > 0]          W₂: s g_yᵀ h     W₁: g_hᵀ x      x: g_h W₁

Axis legend: N tokens, D model size, F hidden units.
"""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F

from saccade.attention.derivatives import first_derivative_only
from saccade.attention.hooks import is_hooked
from saccade.layers.dropout import Dropout, rectify_and_drop_

Activation = Literal["relu", "gelu", "gated"]


class FeedForward(nn.Module):
    """W₂ activation(W₁ x)"""

    def __init__(self, size: int, hidden: int, activation: Callable[[Tensor], Tensor], dropout: float):
        super().__init__()
        self.expand = nn.Linear(size, hidden)
        self.contract = nn.Linear(hidden, size)
        self.activation = activation
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        if self.training and self.activation is F.relu and _learns_on_a_cpu(x) and _is_as_published(self):
            rate = self.dropout.rate if self.dropout.drops else 0.0
            weights = (self.expand.weight, self.expand.bias, self.contract.weight, self.contract.bias)
            return _RectifiedFeedForward.apply(x.flatten(0, -2), *weights, rate).unflatten(0, x.shape[:-1])
        return self.contract(self.dropout(self.activation(self.expand(x))))


class GatedFeedForward(FeedForward):
    """W₂ (silu(V x) ∘ W₁ x)"""

    def __init__(self, size: int, hidden: int, dropout: float):
        super().__init__(size, hidden, F.silu, dropout)
        self.gate = nn.Linear(size, hidden)

    def forward(self, x: Tensor) -> Tensor:
        return self.contract(self.dropout(self.activation(self.gate(x)) * self.expand(x)))


def feed_forward(size: int, hidden: int, activation: Activation, dropout: float) -> FeedForward:
    if activation == "gated":
        return GatedFeedForward(size, hidden, dropout)
    return FeedForward(size, hidden, F.relu if activation == "relu" else F.gelu, dropout)


class _RectifiedFeedForward(Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, expand: Tensor, expand_bias: Tensor, contract: Tensor, contract_bias: Tensor, rate: float
    ) -> Tensor:
        hidden = torch.addmm(expand_bias, x, expand.t())  # (N, F)
        ctx.scale = rectify_and_drop_(hidden, rate)
        ctx.save_for_backward(x, hidden, expand, contract)
        return torch.addmm(contract_bias, hidden, contract.t(), alpha=ctx.scale)

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, hidden, expand, contract = ctx.saved_tensors
        wanted = ctx.needs_input_grad  # frozen weights need no product
        scaled = gradient * ctx.scale
        of_contract = scaled.t() @ hidden if wanted[3] else None
        of_contract_bias = gradient.sum(0) if wanted[4] else None
        if not any(wanted[:3]):
            return None, None, None, of_contract, of_contract_bias, None
        of_hidden = scaled @ contract
        torch.ops.aten.threshold_backward(of_hidden, hidden, 0.0, grad_input=of_hidden)
        of_x = of_hidden @ expand if wanted[0] else None
        of_expand = of_hidden.t() @ x if wanted[1] else None
        return of_x, of_expand, of_hidden.sum(0) if wanted[2] else None, of_contract, of_contract_bias, None


def _learns_on_a_cpu(x: Tensor) -> bool:
    on_cpu = x.device.type == "cpu" and not torch.is_autocast_enabled("cpu")
    return on_cpu and x.dim() > 1 and torch.is_grad_enabled() and not torch.compiler.is_compiling()


def _is_as_published(layer: FeedForward) -> bool:
    """Whether its parts are what they were made as: nobody put others (adapters, quantised ones) in their place or hooks on them."""
    expand, contract, dropout = layer.expand, layer.contract, layer.dropout
    plain = type(expand) is type(contract) is nn.Linear and type(dropout) is Dropout
    return (
        plain
        and expand.bias is not None
        and contract.bias is not None
        and not any(is_hooked(part) for part in (expand, contract, dropout))
    )
