"""A comparison as a picture: the score of every setting as bars, or against what it costs.

A cost that grows while a model is trained (minutes, training TFLOP) has a line for each setting, the score on the validation set on the
way; the dot at its end is the score on the test set. Of several seeds a bar shows every one, a dot their range: their mean alone would
hide whether a difference is more than chance. `compared` names what the settings are settings of.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from saccade.files import replacing
from saccade.views.figures.palette import SERIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BLUE = "#287acd"


@dataclass(frozen=True)
class Mark:
    """One setting: for every seed its score on the test set and (cost, score on the validation set) on the way there; the mean cost."""

    name: str
    scores: Sequence[float]
    cost: float = 0.0
    ways: Sequence[Sequence[tuple[float, float]]] = field(default=())

    @property
    def score(self) -> float:
        return fmean(self.scores)

    @property
    def spread(self) -> str:
        """The mean and half the range."""
        half = (max(self.scores) - min(self.scores)) / 2
        return f"{self.score:.1f}" + (f" ± {half:.1f}" if half else "")


def bars(marks: Sequence[Mark], path: Path, score: str, compared: str) -> None:
    figure_height = 1.2 + 0.38 * len(marks)

    def draw(axes: "Axes") -> None:
        axes.barh([mark.name for mark in marks], [mark.score for mark in marks], color=_BLUE)
        for row, mark in enumerate(marks):
            if len(mark.scores) > 1:
                axes.scatter(mark.scores, [row] * len(mark.scores), s=18, color="white", edgecolors="black", zorder=3)
            end = (max(mark.scores), row)
            axes.annotate(mark.spread, end, xytext=(6, 0), textcoords="offset points", va="center")
        axes.invert_yaxis()
        axes.set_xlabel(f"{score} on the test set{_of_seeds(marks)}")
        axes.set_ylabel(compared)
        axes.margins(x=0.2 if _of_seeds(marks) else 0.1)

    _save(draw, figure_height, path)


def against(marks: Sequence[Mark], path: Path, score: str, cost: str, compared: str) -> None:
    """Points with their names beside them; lines, which often end at the same place, with a legend."""
    grows = any(mark.ways for mark in marks)

    def draw(axes: "Axes") -> None:
        for number, mark in enumerate(marks):
            colour = SERIES[number % len(SERIES)] if grows else _BLUE
            for way in mark.ways:
                axes.plot(*zip(*way, strict=True), color=colour, linewidth=1.4)
            axes.scatter([mark.cost], [mark.score], color=colour, zorder=3, label=f"{mark.name} ({mark.spread})")
            if len(mark.scores) > 1:
                axes.plot([mark.cost] * 2, [min(mark.scores), max(mark.scores)], color=colour, zorder=2)
            if not grows:  # bare values: what is varied is named above
                place = (mark.cost, mark.score)
                axes.annotate(mark.name, place, xytext=(6, 4), textcoords="offset points", fontsize=9)
        if grows:
            axes.legend(title=f"{compared}{_of_seeds(marks)}", frameon=False, fontsize=9, loc="lower right")
        axes.set_xlabel(f"{cost} (log)")
        axes.set_ylabel(f"{score}: line validation, dot test" if grows else f"{score} on the test set")
        if not grows:
            axes.set_title(f"{compared}{_of_seeds(marks)}", fontsize=10)
        axes.margins(x=0.02 if grows else 0.25, y=0.1)
        axes.grid(alpha=0.3)
        _logarithmic(axes)

    _save(draw, 4.5, path)


def _of_seeds(marks: Sequence[Mark]) -> str:
    """What ± and the dots or the range stand for, where there are several seeds."""
    most = max(len(mark.scores) for mark in marks)
    return f" (mean ± half the range of {most} seeds)" if most > 1 else ""


def _logarithmic(axes: "Axes") -> None:
    """Costs by powers, with as many labels as there is room for."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    axes.set_xscale("log")
    low, high = axes.get_xlim()
    decades = math.log10(high / low)
    even = MaxNLocator(6) if decades < 0.8 else LogLocator(subs=(1, 2, 5) if decades < 3 else (1,))
    axes.xaxis.set_major_locator(even)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    axes.xaxis.set_minor_locator(NullLocator())


def _short(value: float) -> str:
    """1,200,000 → 1.2M"""
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:.6g}{letter}"
    return f"{value:.6g}"


def _save(draw: "Callable[[Axes], None]", height: float, path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    draw(axes)
    with replacing(path) as aside:
        figure.savefig(aside, format="png", dpi=150)
