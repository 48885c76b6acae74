"""What stands along an edge of a matrix, by the kind of its axis: words; cells by row and column; numbered steps and objects; dates with
their series."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saccade.views.axes import Axis, Dates, Grid, Objects, Steps, labels
from saccade.views.figures.palette import FRAME, INK, MARKED, SERIES, order_colours
from saccade.views.lettering import Lettering

SMALLEST, LARGEST = 5.5, 11.0  # font sizes
_STRIP, _STRIP_GAP = 0.5, 0.06  # inches of the series along dates
_MOST_TOGETHER = 2  # series in one strip; more have a strip each
_SMALL_STRIP, _MOST_STRIPS = 0.34, 10  # inches of these, and how many of them are drawn
_DISC = 0.16  # inches across, with a number in it
_TICK = 8.0  # font size of dates that are far apart
_MOST_DAYS = 40  # that are all written
_LEGEND = 7.0  # font size of the names of series


@dataclass(frozen=True)
class Edge:
    """One side of a panel: the texts at its positions ("" has none), and what stands between them and the cells."""

    axis: Axis
    texts: Sequence[str]
    size: float  # of the font
    extra: float  # inches between the cells and the texts

    @classmethod
    def of(cls, axis: Axis, cell: float) -> "Edge":
        """Along cells of this size, in inches."""
        texts, extra = _texts(axis, cell), 0.0
        if isinstance(axis, Dates) and axis.series:
            extra = _strips(axis) + _STRIP_GAP
        elif _is_numbered(axis) and cell >= _DISC:
            extra = _DISC + 0.05
        size = _TICK if isinstance(axis, Dates) and _has_ticks(axis, cell) else font_size(cell)
        return cls(axis, texts, size, extra)

    def width(self, lettering: Lettering) -> float:
        """Of the widest text."""
        return lettering.width([text for text in self.texts if text] or [""], self.size)

    def draw(self, axes: Any, is_row: bool, lettering: Lettering) -> None:
        """What stands between the cells and the texts: down the left of the panel, or along its top."""
        if isinstance(self.axis, Dates) and self.axis.series:
            _draw_series(axes, self.axis, is_row, lettering)
        elif self.extra:
            _draw_discs(axes, len(self.axis), is_row, lettering)


def font_size(cell: float) -> float:
    """The font size for a word beside a cell."""
    return min(LARGEST, max(SMALLEST, 0.62 * 72 * cell))


def every(cell: float) -> int:
    """Write every n-th word where cells are narrower than the smallest readable one."""
    return math.ceil(SMALLEST / (72 * cell))


def _is_numbered(axis: Axis) -> bool:
    return isinstance(axis, Objects) or (isinstance(axis, Steps) and bool(axis.windows))


def _has_ticks(dates: Dates, cell: float) -> bool:
    """Whether only some days are written: all would be too many to read."""
    return every(cell) > 1 or len(dates) > _MOST_DAYS


def _texts(axis: Axis, cell: float) -> list[str]:
    match axis:
        case Grid():
            names = [*axis.extra, *(f"{row},{column}" for row in range(axis.rows) for column in range(axis.columns))]
        case Objects() | Steps() if _is_numbered(axis) and cell < _DISC:
            names = [f"{number} {label}" for number, label in enumerate(labels(axis), start=1)]
        case Dates() if _has_ticks(axis, cell):
            return _ticks(labels(axis), math.ceil(1.3 * _TICK / (72 * cell)))
        case _:
            names = labels(axis)
    step = every(cell)
    return [name if place % step == 0 else "" for place, name in enumerate(names)]


def _ticks(dates: list[str], apart: int) -> list[str]:
    """The first day of each month, or of each year, where these are at least so many positions apart; else every n-th day."""
    for length in (7, 4):
        starts = [place for place, day in enumerate(dates) if place == 0 or day[:length] != dates[place - 1][:length]]
        gaps = [after - before for before, after in pairwise(starts[1:])]
        if len(starts) >= 2 and min(gaps, default=apart) >= apart:
            kept = [place for place in starts if place == 0 or place >= apart]
            return [day[:length] if place in kept else "" for place, day in enumerate(dates)]
    return [day if place % apart == 0 else "" for place, day in enumerate(dates)]


def _draw_discs(axes: Any, count: int, is_row: bool, lettering: Lettering) -> None:
    """A numbered disc at every position, in the colours of the order."""
    from matplotlib.transforms import ScaledTranslation

    away = _DISC / 2 + 0.05
    shift = ScaledTranslation(-away if is_row else 0, 0 if is_row else away, axes.figure.dpi_scale_trans)
    place = (axes.get_yaxis_transform() if is_row else axes.get_xaxis_transform()) + shift
    limits = axes.get_xlim(), axes.get_ylim()
    for number, colour in enumerate(order_colours(count)):
        x, y = (0.0, number + 0.5) if is_row else (number + 0.5, 1.0)
        dot = {"color": [colour], "edgecolors": INK, "linewidths": 0.6, "clip_on": False, "zorder": 4}
        axes.scatter([x], [y], s=(72 * _DISC) ** 2, transform=place, **dot)
        centred: dict[str, Any] = {"ha": "center", "va": "center_baseline", "zorder": 5, "transform": place}
        lettering.write(axes, x, y, str(number + 1), 7 if number < 9 else 6, weight="bold", **centred)
    axes.set(xlim=limits[0], ylim=limits[1])  # a dot does not move what it is on


def _strips(dates: Dates) -> float:
    """Inches that the series along an edge take."""
    if len(dates.series) <= _MOST_TOGETHER:
        return _STRIP
    return _SMALL_STRIP * min(len(dates.series), _MOST_STRIPS)


def _draw_series(axes: Any, dates: Dates, is_row: bool, lettering: Lettering) -> None:
    """Every series as a line along the edge, each between its own smallest and largest value; named at the end of its strip. Few share a
    strip, many have one each. Marked days are grey."""
    named = list(dates.series.items())[:_MOST_STRIPS]
    together = [named] if len(named) <= _MOST_TOGETHER else [[one] for one in named]
    thickness = _strips(dates) / len(together)
    for place, members in enumerate(together):
        away = _STRIP_GAP + (len(together) - 1 - place) * thickness
        strip = _strip_beside(axes, len(dates), is_row, away, thickness)
        _mark(strip, dates.marked, is_row)
        for index, (name, values) in enumerate(members):
            _draw_line(strip, place + index, name, values, is_row, (index, place), lettering)


def _strip_beside(axes: Any, count: int, is_row: bool, away: float, thickness: float) -> Any:
    """So many inches away from the cells."""
    box, (width, height) = axes.get_position(), axes.figure.get_size_inches()
    if is_row:
        strip = axes.figure.add_axes((box.x0 - (away + thickness) / width, box.y0, thickness / width, box.height))
        strip.set(ylim=(count, 0), xlim=(-0.08, 1.08))
    else:
        strip = axes.figure.add_axes((box.x0, box.y1 + away / height, box.width, thickness / height))
        strip.set(xlim=(0, count), ylim=(-0.08, 1.08))
    strip.set(xticks=(), yticks=())
    strip.spines[:].set(color=FRAME, linewidth=0.6)
    return strip


def _mark(strip: Any, marked: Sequence[bool], is_row: bool) -> None:
    for place, is_marked in enumerate(marked):
        if is_marked:
            band = strip.axhspan if is_row else strip.axvspan
            band(place, place + 1, color=MARKED, linewidth=0, zorder=0)


def _draw_line(
    strip: Any,
    number: int,
    name: str,
    values: Sequence[float | None],
    is_row: bool,
    line: tuple[int, int],
    lettering: Lettering,
) -> None:
    """`line`: which of the names beside its strip, and which strip."""
    colour, heights, places = SERIES[number % len(SERIES)], _between_0_and_1(values), np.arange(len(values)) + 0.5
    mark = {"color": colour, "linewidth": 1.1, "marker": ".", "markersize": 2.5}
    strip.plot(*((1 - heights, places) if is_row else (places, heights)), **mark)
    if is_row:
        down = 0.05 + 0.14 * (line[0] + line[1])
        below: dict[str, Any] = {"transform": _moved(strip, 0.0, -down), "ha": "left", "va": "top"}
        lettering.write(strip, 0, 0, name, _LEGEND, color=colour, **below)
    else:
        beside: dict[str, Any] = {"transform": _moved(strip, 0.06, -0.14 * line[0]), "ha": "left", "va": "top"}
        lettering.write(strip, 1, 1, name, _LEGEND, color=colour, **beside)


def _moved(axes: Any, right: float, up: float) -> Any:
    from matplotlib.transforms import ScaledTranslation

    return axes.transAxes + ScaledTranslation(right, up, axes.figure.dpi_scale_trans)


def _between_0_and_1(values: Sequence[float | None]) -> NDArray[np.float64]:
    """Missing values leave a gap in the line."""
    numbers = np.array([np.nan if value is None else value for value in values], np.float64)
    known = numbers[np.isfinite(numbers)]
    if not len(known) or known.max() == known.min():
        return np.where(np.isfinite(numbers), 0.5, np.nan)
    scaled: NDArray[np.float64] = (numbers - known.min()) / (known.max() - known.min())
    return scaled
