"""What models of series share: learned queries that read a series, convolutions that know where it ends, and a reading at fixed days.

Axis legend: B batch, H heads, N dates, G days of the grid, V bands, D features.
"""

from typing import Any

import torch
from torch import Tensor, nn

from saccade.attention import Attend, ScaledDot
from saccade.data.series.batch import SeriesBatch, SeriesShape


class LearnedQueries(nn.Module):
    """Every head has one learned query over all dates, and a share of the features to read (Sainte Fare Garnot 2020, eq. 4):

    out_h = Σ_n softmax_n(q_h · k_hn / √d) x_n[share of h]        K = x W
    """

    def __init__(self, size: int, heads: int, key_size: int):
        super().__init__()
        self.heads, self.key_size = heads, key_size
        self.query = nn.Parameter(torch.randn(heads, 1, key_size) * (2 / key_size) ** 0.5)
        self.key = nn.Linear(size, heads * key_size)
        nn.init.normal_(self.key.weight, std=(2 / key_size) ** 0.5)
        self.attention = Attend(ScaledDot(key_size))

    def forward(self, x: Tensor, visible: Tensor) -> Tensor:
        """(B, N, D) and visible (B, N) -> (B, D)"""
        keys = self.key(x).unflatten(-1, (self.heads, self.key_size)).transpose(1, 2)  # (B, H, N, d)
        shares = x.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, H, N, D / H)
        queries = self.query.expand(len(x), -1, -1, -1)  # (B, H, 1, d)
        read = self.attention(queries, keys, shares, visible=visible[:, None, None]).context
        return read.flatten(1)  # (B, H, 1, D / H) -> (B, D)


class SeriesConvolution(nn.Module):
    """A convolution over neighbouring dates, a norm of each date and a gate; nothing leaks from beyond the end of a series."""

    def __init__(self, channels: int, size: int, kernel: int):
        super().__init__()
        self.convolution = nn.Conv1d(channels, size, kernel, padding=kernel // 2)
        self.norm = nn.LayerNorm(size)

    def forward(self, x: Tensor, visible: Tensor) -> Tensor:
        """(B, N, C) -> (B, N, D)"""
        x = x * visible[..., None]
        mixed = self.convolution(x.transpose(1, 2)).transpose(1, 2)
        return nn.functional.gelu(self.norm(mixed)) * visible[..., None]


class OnGrid(nn.Module):
    """The series at fixed days, on straight lines between what was measured; beyond its ends the nearest value.

    For models of a fixed length. Where the data have gaps, each band is followed by whether it was measured nearby.
    """

    def __init__(self, shape: SeriesShape):
        super().__init__()
        self.shape = shape
        days = torch.tensor(shape.grid)
        step = float(days.diff().median()) if len(days) > 1 else 1.0
        self.reach = max(0.51 * step, 1.0)
        self.days: Tensor
        self.register_buffer("days", days, persistent=False)

    @property
    def channels(self) -> int:
        return self.shape.channels

    def forward(self, series: SeriesBatch) -> Tensor:
        """(B, channels, G)"""
        values, measured, days = series
        count = days.shape[1]
        places = torch.arange(count, device=days.device)[:, None].expand(measured.shape)
        last = torch.where(measured, places, -1).cummax(1).values  # (B, N, V) the last measured date up to each
        reverse = torch.where(measured, places, count).flip(1)
        first = reverse.cummin(1).values.flip(1)  # the first measured date from each
        known = torch.where(series.visible, days, torch.full_like(days, torch.inf))
        grid = self.days.to(days).expand(len(days), -1).contiguous()
        upto = torch.searchsorted(_rising(known), grid, right=True)  # (B, G) dates up to each day of the grid
        bands = values.shape[-1]
        before = _at(last, upto - 1, -1, bands)
        after = _at(first, upto, count, bands)
        has_before, has_after = before >= 0, after < count
        left, right = before.clamp(min=0), after.clamp(max=count - 1)
        left_day, right_day = (days[..., None].expand_as(values).gather(1, side) for side in (left, right))
        left_value, right_value = (values.gather(1, side) for side in (left, right))
        day = self.days.to(days)[:, None]
        share = ((day - left_day) / (right_day - left_day).clamp(min=1e-6)).clamp(0, 1)
        between = left_value + share * (right_value - left_value)
        read = torch.where(
            has_before & has_after, between, torch.where(has_before, left_value, right_value * has_after)
        )
        if self.shape.has_gaps:
            far = torch.full_like(read, torch.inf)
            distance = torch.minimum(
                torch.where(has_before, day - left_day, far), torch.where(has_after, right_day - day, far)
            )
            read = torch.cat((read, (distance <= self.reach).to(read.dtype)), dim=-1)
        return read.transpose(1, 2)  # (B, G, channels) -> (B, channels, G)


def _rising(days: Tensor) -> Tensor:
    """Days with the dates that are not visible taking the next visible one's: sorted, as they were."""
    return days.flip(1).cummin(1).values.flip(1).contiguous()


def _at(places: Tensor, index: Tensor, outside: int, bands: int) -> Tensor:
    """places (B, N, V) at index (B, G), and `outside` where the index is beyond the ends."""
    count = places.shape[1]
    inside = (index >= 0) & (index < count)
    picked: Any = places.gather(1, index.clamp(0, count - 1)[..., None].expand(-1, -1, bands))
    return torch.where(inside[..., None], picked, torch.full_like(picked, outside))
