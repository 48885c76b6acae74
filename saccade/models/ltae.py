"""The lightweight temporal attention encoder (Sainte Fare Garnot and Landrieu 2020): one learned query a head reads a whole series.

    x_n = norm(E values_n + positions(day_n))
    out = [out_1; …; out_H]        out_h = Σ_n softmax_n(q_h · k_hn / √d) x_n[share of h]
    class ~ softmax(V relu(norm(W out)))

Self-attention between dates is not needed to name a crop: each head asks one question of the whole season, and its weights say which dates
answered. With `stem: convolutional` two convolutions over neighbouring dates come first, which is better where slopes say more than values.

Axis legend: B batch, N dates, D features.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field, model_validator
from torch import Tensor, nn

from saccade.attention import CalendarDay
from saccade.config.recipe import Config as BaseConfig
from saccade.data.series.batch import SeriesBatch, SeriesShape
from saccade.layers.dropout import Dropout
from saccade.layers.series import LearnedQueries, SeriesConvolution
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
    stem: Literal["dates", "convolutional"] = Field(
        "dates", description="dates: each is read by itself, as published; convolutional: with its neighbours"
    )
    kernel: int = Field(5, ge=1, description="dates that a convolution of the stem sees; odd")

    @model_validator(mode="after")
    def _parts_fit(self) -> "Config":
        if self.width % self.heads or self.width % 2:
            raise ValueError(f"width {self.width} must be even and a multiple of {self.heads} heads")
        if self.kernel % 2 == 0:
            raise ValueError(f"kernel {self.kernel} must be odd, so that every date is in the middle of its own")
        return self


class LightTemporalAttention(nn.Module):
    def __init__(self, config: Config, shape: SeriesShape, classes: int):
        super().__init__()
        self.shape = shape
        convolutions = 2 if config.stem == "convolutional" else 0
        sizes = (shape.channels, *(config.embedding for _ in range(convolutions)))
        self.stem = nn.ModuleList(
            SeriesConvolution(sizes[place], config.embedding, config.kernel) for place in range(convolutions)
        )
        self.embed = nn.Sequential(
            nn.Linear(sizes[-1], config.embedding),
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
        x, visible = series.channels(self.shape), series.visible
        for convolution in self.stem:
            x = convolution(x, visible)
        x = self.before(self.embed(x)) + self.positions(series.days)
        return self.output(self.after(self.dropout(self.pooling(x, visible))))

    def attention_axes(self, name: str, axes: Mapping[str, Axis]) -> tuple[Axis, Axis]:
        """`name` is "pooling.attention": every head's one query looks at the dates."""
        return Tokens(("[series]",)), axes["dates"]


def build(config: Config, shapes: Shapes) -> LightTemporalAttention:
    return LightTemporalAttention(config, shapes.require_series(), shapes.classes)
