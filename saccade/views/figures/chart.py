"""Forecasts as courses over time: what was known as a line, what is forecast in colour with its interval, what came as dots."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from saccade.views.chart import Chart, Course, Numbers
from saccade.views.figures.canvas import Block, Canvas
from saccade.views.figures.palette import FRAME, INK, QUIET, SERIES
from saccade.views.lettering import Lettering

_WIDTH, _HEIGHT = 7.0, 1.15  # inches of a course
_BETWEEN, _BELOW = 0.32, 0.5
_LEFT, _TOP = 0.65, 0.3  # for numbers; for the legend
_TICKS = 5
MOST = 8  # courses that are drawn
SPOKEN = "known forecast what came 0123456789-+: more courses in .html and .json"


def block(chart: Chart, lettering: Lettering) -> Block:
    shown = chart.courses[:MOST]
    height = _TOP + len(shown) * (_HEIGHT + _BETWEEN) + _BELOW

    def paint(canvas: Canvas, top: float) -> None:
        _legend(canvas, top, shown[0], len(chart.courses) - len(shown))
        for place, course in enumerate(shown):
            axes = canvas.axes_at(_LEFT, top + _TOP + place * (_HEIGHT + _BETWEEN) + 0.18, _WIDTH, _HEIGHT)
            _draw(axes, course, len(chart.labels), lettering)
            if place == len(shown) - 1:
                _dates(axes, chart.labels, lettering)

    return Block(_LEFT + _WIDTH + 0.1, height, paint)


def _legend(canvas: Canvas, top: float, course: Course, left_out: int) -> None:
    entries = [("known", INK), ("forecast", SERIES[1])] + ([("what came", QUIET)] if len(course.truth) else [])
    left = _LEFT
    for text, colour in entries:
        canvas.write(left, top, text, 9, color=colour, weight="bold")
        left += canvas.lettering.width([text], 9) + 0.3
    if left_out:
        canvas.write(left, top, f"{left_out} more courses in .html and .json", 9, color=QUIET)


def _draw(axes: Any, course: Course, count: int, lettering: Lettering) -> None:
    known, begin = _numbers(course.known), len(course.known)
    later = np.arange(begin, begin + len(course.forecast))
    axes.plot(np.arange(begin), known, color=INK, linewidth=1.1)
    if len(course.low):
        ends = (_numbers(course.low), _numbers(course.high))
        axes.fill_between(later, *ends, color=SERIES[1], alpha=0.2, linewidth=0)
    mark: dict[str, Any] = {"marker": "o", "markersize": 4} if len(later) == 1 else {}
    axes.plot(later, _numbers(course.forecast), color=SERIES[1], linewidth=1.6, **mark)
    if len(course.truth):
        axes.plot(later, _numbers(course.truth), color=QUIET, linestyle="", marker=".", markersize=3.5)
    axes.axvline(begin - 0.5, color=FRAME, linewidth=1.0)
    axes.set(xlim=(-0.5, count - 0.5))
    axes.spines[["left", "bottom"]].set(visible=True, color=FRAME)
    axes.yaxis.set_major_locator(_few_ticks())
    axes.tick_params(axis="y", labelsize=7, color=FRAME, labelcolor=QUIET, length=2)
    lettering.write(axes, 0.0, 1.03, course.name, 9, transform=axes.transAxes, va="bottom", weight="bold")


def _few_ticks() -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(3)


def _dates(axes: Any, labels: tuple[str, ...], lettering: Lettering) -> None:
    for place in np.unique(np.linspace(0, len(labels) - 1, min(_TICKS, len(labels))).astype(int)):
        side = "left" if place == 0 else "right" if place == len(labels) - 1 else "center"
        line: dict[str, Any] = {"ha": side, "va": "top", "color": QUIET, "transform": axes.get_xaxis_transform()}
        lettering.write(axes, float(place), -0.08, labels[place], 8, **line)


def _numbers(values: Numbers) -> NDArray[np.float64]:
    return np.array([np.nan if value is None else value for value in values], np.float64)
