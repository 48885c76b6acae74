"""The lightweight temporal attention encoder (Sainte Fare Garnot and Landrieu 2020): one learned query a head reads a whole series.

    x_n = norm(E values_n + positions(day_n))
    out = [out_1; …; out_H]        out_h = Σ_n softmax_n(q_h · k_hn / √d) x_n[share of h]
    class ~ softmax(V relu(norm(W out)))

Self-attention between dates is not needed to name a crop: each head asks one question of the whole season, and its weights say which dates
answered.

Axis legend: B batch, N dates, D features.
"""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field, model_validator
from torch import Tensor, nn

from saccade.attention import CalendarDay
from saccade.config.recipe import Config as BaseConfig
from saccade.data.series.batch import SeriesBatch, SeriesShape
from saccade.layers.dropout import Dropout
from saccade.layers.series import LearnedQueries
from saccade.models.shapes import Shapes
from saccade.views.axes import Axis, Tokens


class Config(BaseConfig):
    serves: ClassVar[tuple[str, ...]] = ("series-classes",)

    width: int = Field(256, ge=2, description="features of a date; a multiple of heads")
    heads: int = Field(16, ge=1)
    key_size: int = Field(8, ge=1, description="features of a key and a query in each head")
    output: int = Field(128, ge=1, description="features of the series that the class is read from")
    dropout: float = Field(0.2, ge=0, lt=1)
    embedding: int = Field(64, ge=1, description="hidden units that read the bands of a date")

    @model_validator(mode="after")
    def _parts_fit(self) -> "Config":
        if self.width % self.heads or self.width % 2:
            raise ValueError(f"width {self.width} must be even and a multiple of {self.heads} heads")
        return self


class LightTemporalAttention(nn.Module):
    def __init__(self, config: Config, shape: SeriesShape, classes: int):
        super().__init__()
        self.shape = shape
        self.embed = nn.Sequential(
            nn.Linear(shape.channels, config.embedding),
            nn.LayerNorm(config.embedding),
            nn.ReLU(),
            nn.Linear(config.embedding, config.width),
        )
        self.before = nn.LayerNorm(config.width)
        self.positions = CalendarDay(config.width)
        self.pooling = LearnedQueries(config.width, config.heads, config.key_size)
        self.dropout = Dropout(config.dropout)
        self.after = nn.Sequential(
            nn.Linear(config.width, config.output), nn.LayerNorm(config.output), nn.ReLU(), Dropout(config.dropout)
        )
        self.output = nn.Linear(config.output, classes)

    def forward(self, series: SeriesBatch) -> Tensor:
        x = self.before(self.embed(series.channels(self.shape))) + self.positions(series.days)
        return self.output(self.after(self.dropout(self.pooling(x, series.visible))))

    def attention_axes(self, name: str, axes: Mapping[str, Axis]) -> tuple[Axis, Axis]:
        """`name` is "pooling.attention": every head's one query looks at the dates."""
        return Tokens(("[series]",)), axes["dates"]


def build(config: Config, shapes: Shapes) -> LightTemporalAttention:
    return LightTemporalAttention(config, shapes.require_series(), shapes.classes)
