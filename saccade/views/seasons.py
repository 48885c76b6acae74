"""The mean attention of each class over the season: a small chart for each class, its series as lines over the weights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saccade.files import replacing
from saccade.views.document import PICTURES, require_ending
from saccade.views.figures.palette import INK, QUIET, SERIES

_WIDE, _TALL, _ACROSS = 3.1, 1.5, 3  # inches of a chart, and charts in a row
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@dataclass(frozen=True, eq=False)
class Season:
    name: str
    count: int  # series of the class
    attention: NDArray[np.float64]  # (days,) mean share on each
    bands: Mapping[str, NDArray[np.float64]]  # (days,) mean values, NaN where nothing was measured


def draw(seasons: Sequence[Season], days: NDArray[np.float64], has_dates: bool, path: Path) -> None:
    """`days` are day numbers from the first of January, or positions."""
    from matplotlib.figure import Figure

    require_ending(path, PICTURES)
    across = 2 if len(seasons) in (2, 4) else _ACROSS
    rows = -(-len(seasons) // across)
    figure = Figure(figsize=(_WIDE * across, _TALL * rows + 0.7), layout="constrained")
    charts: Any = figure.subplots(rows, across, squeeze=False, sharex=True)
    most = max(float(season.attention.max()) for season in seasons)
    width = np.diff(days).min() if len(days) > 1 else 1.0
    lines: list[Any] = []
    for place, chart in enumerate(charts.flat):
        if place >= len(seasons):
            chart.set_visible(False)
            continue
        chart.tick_params(labelbottom=place + across >= len(seasons))
        lines = _chart(chart, seasons[place], days, width, most)
        if has_dates:
            _months(chart, days)
    bands = list(seasons[0].bands)
    names = ["attention", *bands]
    handles = [charts[0, 0].containers[0], *lines]
    figure.legend(handles, names, loc="outside upper left", ncols=len(names), frameon=False, fontsize=8)
    with replacing(path) as aside:
        figure.savefig(aside, format=path.suffix.lower().lstrip("."), dpi=150)


def _chart(chart: Any, season: Season, days: NDArray[np.float64], width: float, most: float) -> list[Any]:
    chart.bar(days, season.attention, 0.9 * width, color="#d9a441", alpha=0.85)
    chart.set_ylim(0, 1.05 * most)
    chart.set_title(f"{season.name} ({season.count:,})", fontsize=9, loc="left", color=INK)
    chart.tick_params(labelsize=7, colors=QUIET)
    chart.spines[["top", "right"]].set_visible(False)
    over = chart.twinx()
    over.set_yticks([])
    over.spines[:].set_visible(False)
    lines: list[Any] = []
    for number, (_, values) in enumerate(season.bands.items()):
        known = np.isfinite(values)
        low, high = (values[known].min(), values[known].max()) if known.any() else (0.0, 1.0)
        scaled = (values - low) / (high - low if high > low else 1)
        lines += over.plot(days[known], scaled[known], color=SERIES[number % len(SERIES)], linewidth=1.2)
    over.set_ylim(-0.05, 1.1)
    return lines


def _months(chart: Any, days: NDArray[np.float64]) -> None:
    """The first days of months, every second one where they are many."""
    starts = np.cumsum([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30])
    ticks = [(year * 365 + start, name) for year in range(-1, 4) for start, name in zip(starts, _MONTHS, strict=True)]
    shown = [(day, name) for day, name in ticks if days[0] - 5 <= day <= days[-1] + 5]
    shown = shown[:: 2 if len(shown) > 8 else 1]
    chart.set_xticks([day for day, _ in shown], [name for _, name in shown])
