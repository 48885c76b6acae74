"""PatchTST (Nie 2023): a window is a sentence of patches; every variable is read alone, by the same weights.

    x_n = W patch_n + position_n
    layers × [x ← batch-norm(x + self-attention(x)),  x ← batch-norm(x + feed-forward(x))]
    forecast = V [x_1; …; x_N]

Patches are `patch` steps long and begin every `stride` steps; the last one ends with the window. Each window is brought to level zero
first. `norm: pre` puts the norms before attention and feed-forward, inside the residual branches.

Axis legend: B batch, L look-back, V variables, N patches, D features, H horizon, Q outputs of a step (one, or a quantile each).
"""

from collections.abc import Callable, Mapping
from typing import ClassVar

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from saccade.attention import MultiHead
from saccade.config.recipe import Config as BaseConfig
from saccade.layers.dropout import Dropout
from saccade.layers.feed_forward import feed_forward
from saccade.layers.transformer import EncoderLayer, Norm, PostNorm
from saccade.layers.window_norm import at_level_zero
from saccade.models.shapes import Shapes, WindowShape
from saccade.views.axes import Axis, Dates, dates


class Config(BaseConfig):
    serves: ClassVar[tuple[str, ...]] = ("forecast",)
    mixes_variables: ClassVar[bool] = False
    tells_quantiles: ClassVar[bool] = True

    patch: int = Field(16, ge=1, description="steps of a patch")
    stride: int = Field(8, ge=1, description="steps from the start of a patch to that of the next")
    layers: int = Field(3, ge=1)
    width: int = Field(16, ge=2)
    heads: int = Field(4, ge=1)
    feed_forward: int = Field(128, ge=1)
    norm: Norm = "post"
    dropout: float = Field(0.3, ge=0, lt=1)
    output_dropout: float = Field(0.0, ge=0, lt=1, description="of what the last layer reads")

    @model_validator(mode="after")
    def _heads_divide_width(self) -> "Config":
        if self.width % self.heads:
            raise ValueError(f"width {self.width} must be a multiple of {self.heads} heads")
        return self


class PatchTransformer(nn.Module):
    def __init__(self, config: Config, window: WindowShape):
        super().__init__()
        if config.patch > window.look_back:
            raise ValueError(
                f"a patch of {config.patch} steps is longer than the look-back of {window.look_back}: lower model.patch"
            )
        self.patch, self.stride, self.horizon = config.patch, config.stride, window.horizon
        count = (window.look_back - config.patch) // config.stride + 1
        self.first = (window.look_back - config.patch) % config.stride  # steps before the first patch
        self.embed = nn.Linear(config.patch, config.width)
        self.positions = nn.Parameter(torch.empty(count, config.width).uniform_(-0.02, 0.02))
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(_layer(config) for _ in range(config.layers))
        self.output_dropout = Dropout(config.output_dropout)
        self.output = nn.Linear(count * config.width, window.horizon * window.outputs)

    def forward(self, values: Tensor) -> Tensor:
        variables = values.shape[2]
        values, level = at_level_zero(values)
        rows = values.transpose(1, 2)[:, :, self.first :].flatten(0, 1)  # (B, L, V) -> (B·V, L)
        x = self.dropout(self.embed(rows.unfold(-1, self.patch, self.stride)) + self.positions)  # (B·V, N, D)
        for layer in self.layers:
            x = layer(x)
        forecast = self.output(self.output_dropout(x.flatten(1)))  # (B·V, H·Q)
        forecast = forecast.unflatten(1, (self.horizon, -1)).unflatten(0, (-1, variables))  # (B, V, H, Q)
        return level.restore(forecast.transpose(1, 2))

    def attention_axes(self, name: str, axes: Mapping[str, Axis]) -> tuple[Axis, Axis]:
        """`name` is "layers.L.self_attention"; both sides are the patches of one variable, each under its first date."""
        window = dates(axes["dates"])
        starts = range(self.first, len(window) - self.patch + 1, self.stride)
        series = {
            name: tuple(_mean(row[start : start + self.patch]) for start in starts)
            for name, row in window.series.items()
        }
        patches = Dates(tuple(window.labels[start] for start in starts), series)
        return patches, patches


class BatchPostNorm(PostNorm):
    """batch-norm(x + dropout(f(x))), over all positions of the batch"""

    def __init__(self, size: int, dropout: float):
        super().__init__(size, dropout)
        self.norm = nn.BatchNorm1d(size)  # type: ignore[assignment]

    def forward(self, x: Tensor, layer: Callable[[Tensor], Tensor]) -> Tensor:
        return self._normalised(x + self.dropout(layer(x)))

    def _normalised(self, x: Tensor) -> Tensor:
        return self.norm(x.transpose(1, 2)).transpose(1, 2)  # features are the channels of a batch norm


class BatchPreNorm(BatchPostNorm):
    """x + dropout(f(batch-norm(x)))"""

    def forward(self, x: Tensor, layer: Callable[[Tensor], Tensor]) -> Tensor:
        return x + self.dropout(layer(self._normalised(x)))


def _layer(config: Config) -> EncoderLayer:
    layer = EncoderLayer(
        MultiHead(config.width, config.heads),
        feed_forward(config.width, config.feed_forward, "gelu", config.dropout),
        config.norm,
        config.dropout,
    )
    around = BatchPreNorm if config.norm == "pre" else BatchPostNorm
    layer.around_self_attention = around(config.width, config.dropout)
    layer.around_feed_forward = around(config.width, config.dropout)
    return layer


def _mean(values: tuple[float | None, ...]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def build(config: Config, shapes: Shapes) -> PatchTransformer:
    return PatchTransformer(config, shapes.require_window())
