"""Residual branches for deep stacks of layers over images.

    x ← x + keep · γ ∘ dropout(f(norm(x)))

Stochastic depth (Huang 2016): in training, an example skips a branch with probability `rate`; what is kept is scaled so that the expected
value stays. Layer scale (Touvron 2021, DeiT III): γ is learned per feature and starts small, so that a deep stack starts near the
identity.

Axis legend: B batch, N cells or tokens, D features.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from saccade.attention import MultiHead
from saccade.layers.feed_forward import FeedForward
from saccade.layers.transformer import EncoderLayer, PreNorm


class StochasticDepth(nn.Module):
    """Zeros for an example (a row of the first axis) with probability `rate`, in training only."""

    def __init__(self, rate: float):
        super().__init__()
        if not 0.0 <= rate < 1.0:
            raise ValueError(f"a rate of stochastic depth is at least 0 and less than 1; got {rate}")
        self.rate = rate

    def forward(self, branch: Tensor) -> Tensor:
        if not self.training or self.rate == 0.0:
            return branch
        kept = torch.rand(len(branch), *[1] * (branch.dim() - 1), device=branch.device) >= self.rate
        return branch * (kept / (1.0 - self.rate)).to(branch.dtype)

    def extra_repr(self) -> str:
        return f"rate={self.rate}"


class LayerScale(nn.Module):
    """γ ∘ x, with a learned γ per feature that starts at `start`."""

    def __init__(self, size: int, start: float):
        super().__init__()
        self.gamma = nn.Parameter(torch.full((size,), start))

    def forward(self, branch: Tensor) -> Tensor:
        return branch * self.gamma


class DeepPreNorm(PreNorm):
    """x + keep · γ ∘ dropout(f(norm(x))); without layer scale γ is 1."""

    def __init__(self, size: int, dropout: float, depth_rate: float, layer_scale: float | None, epsilon: float):
        super().__init__(size, dropout)
        self.norm = nn.LayerNorm(size, eps=epsilon)
        self.scale = nn.Identity() if layer_scale is None else LayerScale(size, layer_scale)
        self.depth = StochasticDepth(depth_rate)

    def forward(self, x: Tensor, layer: Callable[[Tensor], Tensor]) -> Tensor:
        return x + self.depth(self.scale(self.dropout(layer(self.norm(x)))))


class DeepEncoderLayer(EncoderLayer):
    """A pre-norm layer of the Transformer whose branches may be scaled and skipped."""

    def __init__(
        self,
        self_attention: MultiHead,
        feed_forward: FeedForward,
        dropout: float,
        *,
        depth_rate: float = 0.0,
        layer_scale: float | None = None,
        epsilon: float = 1e-6,
    ):
        super().__init__(self_attention, feed_forward, "pre", dropout)
        size = self_attention.size
        self.around_self_attention = DeepPreNorm(size, dropout, depth_rate, layer_scale, epsilon)
        self.around_feed_forward = DeepPreNorm(size, dropout, depth_rate, layer_scale, epsilon)


def depth_rates(last: float, layers: int) -> list[float]:
    """The rate of each layer, rising evenly from 0 at the first to `last`: early layers carry what all later ones need."""
    return [last * index / max(layers - 1, 1) for index in range(layers)]
