"""One variable from the others by attention alone: each is a weighted mean of what the others did, in a few heads, and a line through them.

    q_v = e_v + W x_v      k_v = f_v + U x_v      heads: z_v = Σ_u softmax_u(q_v · k_u / √D) x_u      forecast_v = A_v [z_v; …] + b_v

x_v is the window of variable v; e and f say which variable it is. Nothing but the attention lets one variable know of another, and what
is averaged are the values themselves, so a weight is what it seems. Of the same day no variable is a witness of itself.

Axis legend: B batch, L look-back, V variables, H heads, D features, Q outputs of a step (one, or a quantile each).
"""

from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from saccade.attention import Attend, ScaledDot
from saccade.config.recipe import Config as BaseConfig
from saccade.models.shapes import Shapes, WindowShape
from saccade.views.axes import Axis


class Config(BaseConfig):
    serves: ClassVar[tuple[str, ...]] = ("forecast",)
    mixes_variables: ClassVar[bool] = True
    tells_quantiles: ClassVar[bool] = True

    heads: int = Field(4, ge=1)
    width: int = Field(16, ge=1, description="features of queries and keys, in each head")


class Witnesses(nn.Module):
    def __init__(self, config: Config, window: WindowShape):
        super().__init__()
        heads, width, steps = config.heads, config.width, window.look_back
        self.same_day = window.same_day
        self.horizon = window.horizon
        self.names = nn.Parameter(torch.randn(2, heads, window.variables, width) / width**0.25)
        self.content = nn.Parameter(torch.zeros(2, heads, steps, width))
        self.attention = Attend(ScaledDot(width))
        self.slope = nn.Parameter(
            torch.full((window.variables, heads * steps, window.horizon * window.outputs), 1 / heads / steps)
        )
        self.offset = nn.Parameter(torch.zeros(window.variables, window.horizon * window.outputs))

    def forward(self, values: Tensor) -> Tensor:
        rows = values.transpose(1, 2)[:, None]  # (B, L, V) -> (B, 1, V, L)
        query, key = (name + rows @ content for name, content in zip(self.names, self.content, strict=True))
        heads = query.shape[1]
        visible = ~torch.eye(rows.shape[2], dtype=torch.bool, device=rows.device) if self.same_day else None
        means = self.attention(query, key, rows.expand(-1, heads, -1, -1), visible=visible).context  # (B, H, V, L)
        told = torch.einsum("bhvl,vhlo->bvo", means, self.slope.unflatten(1, (heads, -1))) + self.offset
        return told.unflatten(-1, (self.horizon, -1)).transpose(1, 2)  # (B, V, H·Q) -> (B, H, V, Q)

    def attention_axes(self, name: str, axes: Mapping[str, Axis]) -> tuple[Axis, Axis]:
        return axes["variables"], axes["variables"]


def build(config: Config, shapes: Shapes) -> Witnesses:
    return Witnesses(config, shapes.require_window())
