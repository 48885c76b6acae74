"""An LSTM in both directions over the dates of a series (Rußwurm and Körner 2017).

    h = LSTM(norm(values), positions of the days)        both ways, several layers
    class ~ softmax(V max over time of norm(h))

Axis legend: B batch, N dates, D features.
"""

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from saccade.config.recipe import Config as BaseConfig
from saccade.data.series.batch import SeriesBatch, SeriesShape
from saccade.layers.dropout import Dropout
from saccade.models.shapes import Shapes

_YEAR = 365.25


class Config(BaseConfig):
    serves: ClassVar[tuple[str, ...]] = ("series-classes",)

    width: int = Field(128, ge=1, description="units of each direction")
    layers: int = Field(2, ge=1)
    dropout: float = Field(0.3, ge=0, lt=1)


class SeriesLSTM(nn.Module):
    """The dates must stand at the beginning of each row, as the batches of a task have them."""

    def __init__(self, config: Config, shape: SeriesShape, classes: int):
        super().__init__()
        self.shape = shape
        self.embed = nn.Sequential(nn.Linear(shape.channels + 3, config.width), nn.LayerNorm(config.width))
        between = config.dropout if config.layers > 1 else 0.0
        self.lstm = nn.LSTM(
            config.width, config.width, config.layers, batch_first=True, dropout=between, bidirectional=True
        )
        self.norm = nn.LayerNorm(2 * config.width)
        self.dropout = Dropout(config.dropout)
        self.output = nn.Linear(2 * config.width, classes)

    def forward(self, series: SeriesBatch) -> Tensor:
        visible = series.visible
        lengths = visible.sum(1).clamp(min=1).cpu()
        packed = pack_padded_sequence(self.embed(self._inputs(series)), lengths, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=visible.shape[1])
        normed = self.norm(states)
        there = torch.arange(visible.shape[1], device=visible.device) < lengths[:, None].to(visible.device)
        largest = torch.where(there[..., None], normed, torch.full_like(normed, -torch.inf)).amax(1)
        return self.output(self.dropout(largest))

    def _inputs(self, series: SeriesBatch) -> Tensor:
        """The bands, the time of the year on a circle, and how long it is since the last date."""
        turn = series.days * (2 * torch.pi / _YEAR)
        since = torch.diff(series.days, dim=1, prepend=series.days[:, :1]) / 30
        return torch.cat((series.channels(self.shape), torch.stack((turn.sin(), turn.cos(), since), dim=-1)), dim=-1)


def build(config: Config, shapes: Shapes) -> SeriesLSTM:
    return SeriesLSTM(config, shapes.require_series(), shapes.classes)
