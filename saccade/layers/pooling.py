"""From many cells to the one vector that a class is read from.

    class       a learned token among the cells, read after the last layer (Dosovitskiy 2021)
    mean        the mean of all cells
    attention   Σ_i softmax_i(q · x_i / √D) x_i with a learned q (Hassani 2021, "sequence pooling")

`begin` puts its own tokens, named in `extra`, before the cells; `forward` reads the last layer.

Axis legend: B batch, N cells, D features.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from saccade.attention import Attend, ScaledDot

PoolingName = Literal["class", "mean", "attention"]


class Pooling(nn.Module):
    """What all share: cells (B, N, D) in, a vector (B, D) out."""

    extra: tuple[str, ...] = ()

    def begin(self, cells: Tensor) -> Tensor:
        return cells


class ClassToken(Pooling):
    extra = ("[class]",)

    def __init__(self, size: int):
        super().__init__()
        self.token = nn.Parameter(torch.randn(size) * 0.02)

    def begin(self, cells: Tensor) -> Tensor:
        token = self.token.expand(cells.shape[0], 1, -1)
        return torch.cat((token, cells), dim=1)  # (B, N, D) -> (B, 1 + N, D)

    def forward(self, tokens: Tensor) -> Tensor:
        return tokens[:, 0]


class Mean(Pooling):
    def forward(self, tokens: Tensor) -> Tensor:
        return tokens.mean(1)


class AttentionPooling(Pooling):
    def __init__(self, size: int):
        super().__init__()
        self.query = nn.Parameter(torch.randn(size) * 0.02)
        self.attention = Attend(ScaledDot(size))

    def forward(self, tokens: Tensor) -> Tensor:
        query = self.query.expand(tokens.shape[0], 1, -1)
        return self.attention(query, tokens).context.squeeze(1)  # (B, 1, D) -> (B, D)


def pooling(name: PoolingName, size: int) -> Pooling:
    if name == "mean":
        return Mean()
    return ClassToken(size) if name == "class" else AttentionPooling(size)


def mean_over(x: Tensor, visible: Tensor) -> Tensor:
    """The mean (B, D) of x (B, N, D) over the positions that are visible (B, 1, N): padding has no part in it."""
    inside = visible.transpose(1, 2).to(x.dtype)  # (B, N, 1)
    return (x * inside).sum(1) / inside.sum(1).clamp(min=1)
