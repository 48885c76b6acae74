"""A batch of series as every model gets it, and what a model must know of the data before it is built.

Axis legend: B batch, N dates (the longest series of the batch), V bands.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class SeriesShape:
    bands: int
    grid: tuple[float, ...]  # day numbers that models of a fixed length read the series at
    has_gaps: bool = True  # whether a band may be missing on a date on which another was measured

    @property
    def channels(self) -> int:
        """Bands, and for each whether it was measured where that is not always so."""
        return self.bands * (2 if self.has_gaps else 1)


class SeriesBatch(NamedTuple):
    values: Tensor  # (B, N, V) standardised, 0 where nothing was measured
    measured: Tensor  # (B, N, V) bool
    days: Tensor  # (B, N) day numbers, rising; whatever they are beyond the end of a series

    @property
    def visible(self) -> Tensor:
        """(B, N) the dates on which anything was measured."""
        return self.measured.any(-1)

    def channels(self, shape: SeriesShape) -> Tensor:
        """(B, N, V) or, with what was measured beside it, (B, N, 2 V)."""
        if not shape.has_gaps:
            return self.values
        return torch.cat((self.values, self.measured.to(self.values.dtype)), dim=-1)

    def to(self, device: torch.device) -> "SeriesBatch":
        return SeriesBatch(*(part.to(device) for part in self))


def collate(
    starts: NDArray[np.int64], days: NDArray[np.float64], values: NDArray[np.float32], numbers: NDArray[np.int64]
) -> SeriesBatch:
    """Series of a table of standardised values, padded at their ends; NaN becomes 0 and is marked as not measured."""
    lengths = starts[numbers + 1] - starts[numbers]
    longest = max(int(lengths.max(initial=1)), 1)
    places = np.arange(longest)
    is_there = places < lengths[:, None]  # (B, N)
    rows = np.where(is_there, starts[numbers][:, None] + places, 0)
    picked = values[rows]  # (B, N, V)
    measured = np.isfinite(picked) & is_there[..., None]
    # Beyond the end the last day stands, so that days never fall.
    last = days[np.maximum(starts[numbers + 1] - 1, 0)]
    day = np.where(is_there, days[rows], last[:, None])
    return SeriesBatch(
        torch.from_numpy(np.where(measured, picked, np.float32(0))),
        torch.from_numpy(measured),
        torch.from_numpy(day.astype(np.float32)),
    )


def augmented(batch: SeriesBatch, drop_dates: float, noise: float, shift_days: float) -> SeriesBatch:
    """For training: dates left out at random (one stays), noise on the values, all dates of a series early or late."""
    values, measured, days = batch
    if drop_dates:
        draws = torch.rand(measured.shape[:2])
        last = draws.masked_fill(~batch.visible, -1).argmax(1, keepdim=True)
        kept = (draws >= drop_dates * torch.rand(len(measured), 1)).scatter(1, last, True)
        measured = measured & kept[..., None]
        values = values * measured
        # Dates that are gone must not stand between others.
        order: Any = (~measured.any(-1)).to(torch.uint8).argsort(dim=1, stable=True)
        values, measured = (part.gather(1, order[..., None].expand_as(part)) for part in (values, measured))
        days = days.gather(1, order)
    if noise:
        values = (values + noise * torch.randn_like(values)) * measured
    if shift_days:
        days = days + shift_days * torch.randn(len(days), 1)
    return SeriesBatch(values, measured, days)
