"""TempCNN (Pelletier, Webb and Petitjean 2019): convolutions along time, with nothing pooled, so that where in the season stays known.

    3 × [x ← dropout(relu(norm(W ∗ x)))]        over the series at fixed days
    class ~ softmax(V dropout(relu(norm(U flatten(x)))))

Axis legend: B batch, C channels, G days.
"""

from typing import ClassVar

from pydantic import Field, model_validator
from torch import Tensor, nn

from saccade.config.recipe import Config as BaseConfig
from saccade.data.series.batch import SeriesBatch, SeriesShape
from saccade.layers.dropout import Dropout
from saccade.layers.series import OnGrid
from saccade.models.shapes import Shapes


class Config(BaseConfig):
    serves: ClassVar[tuple[str, ...]] = ("series-classes",)

    kernel: int = Field(5, ge=1, description="days of the grid that a convolution sees; odd")
    width: int = Field(64, ge=1, description="channels of a convolution")
    layers: int = Field(3, ge=1)
    hidden: int = Field(256, ge=1, description="units of the layer before the class")
    dropout: float = Field(0.5, ge=0, lt=1)

    @model_validator(mode="after")
    def _kernel_is_odd(self) -> "Config":
        if self.kernel % 2 == 0:
            raise ValueError(f"kernel {self.kernel} must be odd, so that a series keeps its length")
        return self


class TempCNN(nn.Module):
    def __init__(self, config: Config, shape: SeriesShape, classes: int):
        super().__init__()
        self.on_grid = OnGrid(shape)
        sizes = (self.on_grid.channels, *(config.width for _ in range(config.layers)))
        self.layers = nn.Sequential(
            *(_block(sizes[place], config.width, config.kernel, config.dropout) for place in range(config.layers))
        )
        flat = config.width * len(shape.grid)
        self.hidden = nn.Sequential(
            nn.Flatten(),
            nn.Linear(flat, config.hidden),
            nn.BatchNorm1d(config.hidden),
            nn.ReLU(),
            Dropout(config.dropout),
        )
        self.output = nn.Linear(config.hidden, classes)

    def forward(self, series: SeriesBatch) -> Tensor:
        return self.output(self.hidden(self.layers(self.on_grid(series))))  # (B, C, G) -> (B, classes)


def _block(channels: int, width: int, kernel: int, dropout: float) -> nn.Sequential:
    convolution = nn.Conv1d(channels, width, kernel, padding=kernel // 2)
    return nn.Sequential(convolution, nn.BatchNorm1d(width), nn.ReLU(), Dropout(dropout))


def build(config: Config, shapes: Shapes) -> TempCNN:
    return TempCNN(config, shapes.require_series(), shapes.classes)
