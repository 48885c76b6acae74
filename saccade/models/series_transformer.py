"""A Transformer encoder over the dates of a series (Rußwurm and Körner 2020), with a convolutional stem.

    x = stem(values) + positions(days)
    layers × [x ← x + self-attention(norm(x)),  x ← x + feed-forward(norm(x))]
    class ~ softmax(V pool(norm(x)))

Positions are those of calendar days, so dates may be irregular. Two convolutions over neighbouring dates come first: slopes and peaks are
between dates, and an attention over single dates would have to learn to subtract. `stem: linear` is the published one, which reads each
date by itself. `pooling` is attention (one learned query a head, Sainte Fare Garnot 2020) or the largest value over time, as published.

Axis legend: B batch, N dates, D features.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from saccade.attention import CalendarDay, MultiHead
from saccade.config.recipe import Config as BaseConfig
from saccade.data.series.batch import SeriesBatch, SeriesShape
from saccade.layers.dropout import Dropout
from saccade.layers.feed_forward import feed_forward
from saccade.layers.series import LearnedQueries, SeriesConvolution
from saccade.layers.transformer import EncoderLayer
from saccade.models.shapes import Shapes
from saccade.views.axes import Axis, Tokens


class Config(BaseConfig):
    serves: ClassVar[tuple[str, ...]] = ("series-classes",)

    stem: Literal["convolutional", "linear"] = "convolutional"
    kernel: int = Field(5, ge=1, description="dates that a convolution of the stem sees; odd")
    layers: int = Field(3, ge=1)
    width: int = Field(128, ge=2)
    heads: int = Field(4, ge=1)
    feed_forward: int = Field(256, ge=1)
    pooling: Literal["attention", "max"] = "attention"
    dropout: float = Field(0.1, ge=0, lt=1)

    @model_validator(mode="after")
    def _parts_fit(self) -> "Config":
        if self.width % self.heads or self.width % 2:
            raise ValueError(f"width {self.width} must be even and a multiple of {self.heads} heads")
        if self.kernel % 2 == 0:
            raise ValueError(f"kernel {self.kernel} must be odd, so that every date is in the middle of its own")
        return self


class SeriesTransformer(nn.Module):
    def __init__(self, config: Config, shape: SeriesShape, classes: int):
        super().__init__()
        self.shape = shape
        convolutions = 2 if config.stem == "convolutional" else 0
        sizes = (shape.channels, *(config.width for _ in range(convolutions)))
        self.stem = nn.ModuleList(SeriesConvolution(sizes[i], config.width, config.kernel) for i in range(convolutions))
        self.embed = nn.Linear(sizes[-1], config.width)
        self.positions = CalendarDay(config.width)
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(_layer(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.pooling = LearnedQueries(config.width, config.heads, 16) if config.pooling == "attention" else Largest()
        self.output = nn.Linear(config.width, classes)

    def forward(self, series: SeriesBatch) -> Tensor:
        visible = series.visible
        x = series.channels(self.shape)
        for convolution in self.stem:
            x = convolution(x, visible)
        x = self.dropout(self.embed(x) + self.positions(series.days))
        for layer in self.layers:
            x = layer(x, visible[:, None])
        return self.output(self.dropout(self.pooling(self.norm(x), visible)))

    def attention_axes(self, name: str, axes: Mapping[str, Axis]) -> tuple[Axis, Axis]:
        """`name` is "layers.L.self_attention", or "pooling.attention", whose queries are the whole series."""
        dates = axes["dates"]
        return (Tokens(("[series]",)) if name == "pooling.attention" else dates), dates


class Largest(nn.Module):
    """The largest value of each feature over the dates."""

    def forward(self, x: Tensor, visible: Tensor) -> Tensor:
        return torch.where(visible[..., None], x, torch.full_like(x, -torch.inf)).amax(1)


def _layer(config: Config) -> EncoderLayer:
    attention = MultiHead(config.width, config.heads)
    narrow = feed_forward(config.width, config.feed_forward, "gelu", config.dropout)
    return EncoderLayer(attention, narrow, "pre", config.dropout)


def build(config: Config, shapes: Shapes) -> SeriesTransformer:
    return SeriesTransformer(config, shapes.require_series(), shapes.classes)
