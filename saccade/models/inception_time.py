"""InceptionTime (Ismail Fawaz 2020): convolutions of several lengths side by side, and the mean over time.

    inception(x) = relu(norm([W₄₀ ∗ Bx; W₂₀ ∗ Bx; W₁₀ ∗ Bx; P maxpool₃(x)]))        B: down to few channels
    x ← relu(inception³(x) + norm(S x))        every three, a shortcut
    class ~ softmax(V mean over time of x)

The published classifier is the mean of five such networks; this is one of them.

Axis legend: B batch, C channels, G days.
"""

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from saccade.config.recipe import Config as BaseConfig
from saccade.data.series.batch import SeriesBatch, SeriesShape
from saccade.layers.dropout import Dropout
from saccade.layers.series import OnGrid
from saccade.models.shapes import Shapes

_BLOCK = 3  # modules under a shortcut


class Config(BaseConfig):
    serves: ClassVar[tuple[str, ...]] = ("series-classes",)

    depth: int = Field(6, ge=3, multiple_of=3, description="inception modules")
    width: int = Field(32, ge=1, description="channels of each of the four branches")
    kernel: int = Field(
        40, ge=4, description="days of the longest convolution; the others have a half and a quarter of it"
    )
    dropout: float = Field(0.0, ge=0, lt=1)


class Inception(nn.Module):
    def __init__(self, channels: int, width: int, kernel: int):
        super().__init__()
        self.bottleneck = nn.Conv1d(channels, width, 1, bias=False) if channels > 1 else nn.Identity()
        inside = width if channels > 1 else channels
        lengths = [kernel // 2**halvings // 2 * 2 + 1 for halvings in range(3)]  # odd, so that days keep their places
        self.branches = nn.ModuleList(
            nn.Conv1d(inside, width, length, padding=length // 2, bias=False) for length in lengths
        )
        self.pooled = nn.Sequential(nn.MaxPool1d(3, 1, 1), nn.Conv1d(channels, width, 1, bias=False))
        self.norm = nn.BatchNorm1d(4 * width)

    def forward(self, x: Tensor) -> Tensor:
        narrow = self.bottleneck(x)
        parts = [*(branch(narrow) for branch in self.branches), self.pooled(x)]
        return torch.relu(self.norm(torch.cat(parts, dim=1)))  # (B, C, G) -> (B, 4 width, G)


class ResidualBlock(nn.Module):
    def __init__(self, channels: int, width: int, kernel: int):
        super().__init__()
        wide = 4 * width
        self.modules_inside = nn.Sequential(
            *(Inception(channels if place == 0 else wide, width, kernel) for place in range(_BLOCK))
        )
        self.shortcut = nn.Sequential(nn.Conv1d(channels, wide, 1, bias=False), nn.BatchNorm1d(wide))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.modules_inside(x) + self.shortcut(x))


class InceptionTime(nn.Module):
    def __init__(self, config: Config, shape: SeriesShape, classes: int):
        super().__init__()
        self.on_grid = OnGrid(shape)
        wide = 4 * config.width
        self.blocks = nn.Sequential(
            *(
                ResidualBlock(self.on_grid.channels if place == 0 else wide, config.width, config.kernel)
                for place in range(config.depth // _BLOCK)
            )
        )
        self.dropout = Dropout(config.dropout)
        self.output = nn.Linear(wide, classes)

    def forward(self, series: SeriesBatch) -> Tensor:
        return self.output(self.dropout(self.blocks(self.on_grid(series)).mean(-1)))


def build(config: Config, shapes: Shapes) -> InceptionTime:
    return InceptionTime(config, shapes.require_series(), shapes.classes)
