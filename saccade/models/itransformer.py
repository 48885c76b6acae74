"""The inverted Transformer (Liu 2024): every variable is a token, and attention looks from variable to variable.

    x_v = W (the whole window of variable v) + b + e_v
    layers × [x ← norm(x + self-attention(x)),  x ← norm(x + feed-forward(x))]
    forecast_v = V norm(x_v)

e_v is 0 unless `identities` lets the model learn which variable is which: without, it treats all alike, as published, and knows each by
its window alone. A map of its attention says from which series the forecast of each was drawn. The window of each variable is brought to
level zero first.

Axis legend: B batch, L look-back, V variables, D features, H horizon, Q outputs of a step (one, or a quantile each).
"""

from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from saccade.attention import MultiHead
from saccade.config.recipe import Config as BaseConfig
from saccade.layers.dropout import Dropout
from saccade.layers.feed_forward import feed_forward
from saccade.layers.transformer import EncoderLayer
from saccade.layers.window_norm import at_level_zero
from saccade.models.shapes import Shapes, WindowShape
from saccade.views.axes import Axis


class Config(BaseConfig):
    serves: ClassVar[tuple[str, ...]] = ("forecast",)
    mixes_variables: ClassVar[bool] = True
    tells_quantiles: ClassVar[bool] = True

    layers: int = Field(2, ge=1)
    width: int = Field(128, ge=2)
    heads: int = Field(8, ge=1)
    feed_forward: int = Field(128, ge=1)
    dropout: float = Field(0.1, ge=0, lt=1)
    normalise: bool = Field(True, description="bring each window to level zero and the forecast back to its level")

    identities: bool = Field(
        False, description="a learned vector for each variable, for windows too short to tell them apart"
    )

    @model_validator(mode="after")
    def _heads_divide_width(self) -> "Config":
        if self.width % self.heads:
            raise ValueError(f"width {self.width} must be a multiple of {self.heads} heads")
        return self


class InvertedTransformer(nn.Module):
    def __init__(self, config: Config, window: WindowShape):
        super().__init__()
        self.normalise = config.normalise
        self.horizon = window.horizon
        self.embed = nn.Linear(window.look_back, config.width)
        self.identities = (
            nn.Parameter(0.02 * torch.randn(window.variables, config.width)) if config.identities else None
        )
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(
            EncoderLayer(
                MultiHead(config.width, config.heads, dropout=config.dropout),
                feed_forward(config.width, config.feed_forward, "gelu", config.dropout),
                "post",
                config.dropout,
            )
            for _ in range(config.layers)
        )
        self.norm = nn.LayerNorm(config.width)
        self.output = nn.Linear(config.width, window.horizon * window.outputs)

    def forward(self, values: Tensor) -> Tensor:
        level = None
        if self.normalise:
            values, level = at_level_zero(values)
        x = self.embed(values.transpose(1, 2))  # (B, L, V) -> (B, V, D)
        x = self.dropout(x if self.identities is None else x + self.identities)
        for layer in self.layers:
            x = layer(x)
        forecast = self.output(self.norm(x)).unflatten(-1, (self.horizon, -1)).transpose(1, 2)  # (B, H, V, Q)
        return forecast if level is None else level.restore(forecast)

    def attention_axes(self, name: str, axes: Mapping[str, Axis]) -> tuple[Axis, Axis]:
        """`name` is "layers.L.self_attention"."""
        return axes["variables"], axes["variables"]


def build(config: Config, shapes: Shapes) -> InvertedTransformer:
    return InvertedTransformer(config, shapes.require_window())
