"""The Transformer's feed-forward layer (Vaswani 2017), and its gated form (Shazeer 2020).

plain    W₂ dropout(activation(W₁ x + b₁)) + b₂
gated    W₂ dropout(silu(V x) ∘ (W₁ x + b₁)) + b₂
"""

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

from saccade.layers.dropout import Dropout

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
