"""The Transformer's feed-forward layer (Vaswani 2017), and its gated form (Shazeer 2020).

plain    W₂ dropout(activation(W₁ x + b₁)) + b₂
gated    W₂ dropout(silu(V x) ∘ (W₁ x + b₁)) + b₂

Activations: ReLU, GELU (exact, or by a tanh as GPT-2 has it), the square of ReLU (So 2021).
"""

from collections.abc import Callable
from functools import partial
from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

from saccade.attention.routes import HAS_KERNELS
from saccade.layers.dropout import Dropout

if HAS_KERNELS:
    from saccade.kernels import pointwise as kernel

Activation = Literal["relu", "gelu", "gelu-tanh", "relu-squared", "gated"]


class FeedForward(nn.Module):
    """W₂ activation(W₁ x)"""

    def __init__(
        self, size: int, hidden: int, activation: Callable[[Tensor], Tensor], dropout: float, bias: bool = True
    ):
        super().__init__()
        self.expand = nn.Linear(size, hidden, bias=bias)
        self.contract = nn.Linear(hidden, size, bias=bias)
        self.activation = activation
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.contract(self.dropout(self.activation(self.expand(x))))


class GatedFeedForward(FeedForward):
    """W₂ (silu(V x) ∘ W₁ x)"""

    def __init__(self, size: int, hidden: int, dropout: float, bias: bool = True):
        super().__init__(size, hidden, F.silu, dropout, bias)
        self.gate = nn.Linear(size, hidden, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.contract(self.dropout(self.activation(self.gate(x)) * self.expand(x)))


def feed_forward(size: int, hidden: int, activation: Activation, dropout: float, bias: bool = True) -> FeedForward:
    if activation == "gated":
        return GatedFeedForward(size, hidden, dropout, bias)
    return FeedForward(size, hidden, _ACTIVATIONS[activation], dropout, bias)


def _squared_relu(x: Tensor) -> Tensor:
    return kernel.squared_relu(x) if HAS_KERNELS and kernel.can_compute(x) else F.relu(x).square()


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu-tanh": partial(F.gelu, approximate="tanh"),
    "relu-squared": _squared_relu,
}
