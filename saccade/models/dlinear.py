"""DLinear (Zeng 2023): a linear layer for the trend of a window and one for the rest, shared by all variables.

    trend = moving average(x)      forecast = W₁ trend + W₂ (x − trend)

Without attention: the yardstick that every attention model for series has to pass.

Axis legend: B batch, L look-back, V variables, H horizon, Q outputs of a step (one, or a quantile each).
"""

from typing import ClassVar

import torch
from pydantic import Field, field_validator
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.config.recipe import Config as BaseConfig
from saccade.models.shapes import Shapes, WindowShape


class Config(BaseConfig):
    serves: ClassVar[tuple[str, ...]] = ("forecast",)
    mixes_variables: ClassVar[bool] = False
    tells_quantiles: ClassVar[bool] = True

    average: int = Field(25, ge=1, description="steps of the moving average; an odd number")

    @field_validator("average")
    @classmethod
    def _has_a_middle(cls, average: int) -> int:
        if average % 2 == 0:
            raise ValueError(f"average {average} must be odd, so that it has a middle: {average + 1}, for example")
        return average


class DLinear(nn.Module):
    def __init__(self, config: Config, window: WindowShape):
        super().__init__()
        self.average = config.average
        self.horizon = window.horizon
        self.trend = nn.Linear(window.look_back, window.horizon * window.outputs)
        self.output = nn.Linear(window.look_back, window.horizon * window.outputs)
        for layer in (self.trend, self.output):  # both begin as the mean of the window
            nn.init.constant_(layer.weight, 1 / window.look_back)

    def forward(self, values: Tensor) -> Tensor:
        rows = values.transpose(1, 2)  # (B, L, V) -> (B, V, L)
        trend = moving_average(rows, self.average)
        forecast = self.trend(trend) + self.output(rows - trend)
        return forecast.unflatten(-1, (self.horizon, -1)).transpose(1, 2)  # (B, V, H·Q) -> (B, H, V, Q)


def moving_average(rows: Tensor, steps: int) -> Tensor:
    """Of the last axis; both ends are repeated, so that the length stays."""
    half = steps // 2
    padded = F.pad(rows, (half, half), mode="replicate")
    return F.avg_pool1d(padded, steps, stride=1) if steps > 1 else padded


def build(config: Config, shapes: Shapes) -> DLinear:
    with torch.no_grad():
        return DLinear(config, shapes.require_window())
