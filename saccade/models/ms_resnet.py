"""MS-ResNet: three residual networks side by side that see 3, 5 and 7 days at a time, as Rußwurm and Körner (2020) used it for crops.

    x₀ = relu(norm(W₇ ∗ x))
    branch_k = mean over time of 3 × [h ← relu(h' + norm(W_k ∗ relu(norm(W_k ∗ h))))]        k = 3, 5, 7
    class ~ softmax(V [branch₃; branch₅; branch₇])

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

_KERNELS = (3, 5, 7)


class Config(BaseConfig):
    serves: ClassVar[tuple[str, ...]] = ("series-classes",)

    width: int = Field(
        32, ge=1, description="channels of the first blocks; the later ones have two and four times as many"
    )
    dropout: float = Field(0.2, ge=0, lt=1)


class Block(nn.Module):
    """Two convolutions and a shortcut; `stride` 2 halves the days."""

    def __init__(self, channels: int, width: int, kernel: int, stride: int):
        super().__init__()
        self.first = nn.Conv1d(channels, width, kernel, stride, kernel // 2, bias=False)
        self.first_norm = nn.BatchNorm1d(width)
        self.second = nn.Conv1d(width, width, kernel, 1, kernel // 2, bias=False)
        self.second_norm = nn.BatchNorm1d(width)
        self.shortcut = nn.Sequential(nn.Conv1d(channels, width, 1, stride, bias=False), nn.BatchNorm1d(width))

    def forward(self, x: Tensor) -> Tensor:
        inside = torch.relu(self.first_norm(self.first(x)))
        return torch.relu(self.second_norm(self.second(inside)) + self.shortcut(x))


class MultiScaleResNet(nn.Module):
    def __init__(self, config: Config, shape: SeriesShape, classes: int):
        super().__init__()
        self.on_grid = OnGrid(shape)
        width = config.width
        self.stem = nn.Sequential(
            nn.Conv1d(self.on_grid.channels, width, 7, padding=3, bias=False), nn.BatchNorm1d(width), nn.ReLU()
        )
        self.branches = nn.ModuleList(
            nn.Sequential(
                Block(width, width, kernel, 1),
                Block(width, 2 * width, kernel, 2),
                Block(2 * width, 4 * width, kernel, 2),
            )
            for kernel in _KERNELS
        )
        self.dropout = Dropout(config.dropout)
        self.output = nn.Linear(4 * width * len(_KERNELS), classes)

    def forward(self, series: SeriesBatch) -> Tensor:
        x = self.stem(self.on_grid(series))
        read = torch.cat([branch(x).mean(-1) for branch in self.branches], dim=-1)  # (B, 12 width)
        return self.output(self.dropout(read))


def build(config: Config, shapes: Shapes) -> MultiScaleResNet:
    return MultiScaleResNet(config, shapes.require_series(), shapes.classes)
