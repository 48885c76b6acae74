"""Who is taken for whom: the confusion matrix of a classifier as a picture.

A row is a true class, a column what it was taken for. Colour is the share of the row, so that rare classes are seen as well as
frequent ones; the numbers are images. The diagonal, which is right, has the ink of the attention maps; mistakes have a colour and a scale
of their own, because a good classifier's mistakes would otherwise be invisible.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from saccade.views.document import write
from saccade.views.figures import save as printing
from saccade.views.figures.edges import every, font_size
from saccade.views.figures.palette import COLOURS, INK, QUIET
from saccade.views.lettering import Lettering

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# From paper white to dark red in equal steps of lightness.
_MISTAKES = ("#fdf8f5", "#fadccb", "#f4bfa3", "#e9a27e", "#da855f", "#c66745", "#ad4932", "#8e2c24", "#6b0f1a")
Counts = Sequence[Sequence[int]]  # [truth][prediction]: how many images

_NUMBERS = 30  # classes up to which every cell has its number written in it


def save(counts: Counts, classes: Sequence[str], path: str | Path, title: str = "") -> None:
    """Write as .png, .svg or .pdf. Missing directories are made."""

    def figure() -> "Figure":
        return draw(counts, classes, title)

    writers = {
        ".png": lambda: printing.png(figure()),
        ".svg": lambda: printing.svg(figure()),
        ".pdf": lambda: printing.pdf(figure()),
    }
    write(path, writers)


def draw(counts: Counts, classes: Sequence[str], title: str = "") -> "Figure":
    """`counts` [truth][prediction] of these classes, both in the same order."""
    from matplotlib.figure import Figure

    numbers = np.array(counts)
    count = len(numbers)
    cell = max(0.46, 2.4 / count) if count <= 15 else max(0.09, min(0.36, 9 / count))
    title = title or f"accuracy {100 * numbers.trace() / max(numbers.sum(), 1):.1f} % of {numbers.sum():,} images"
    lettering = Lettering([title, "0123456789,taken for truth", *classes])
    size = font_size(cell)
    words = lettering.width(classes, size)
    slant = 0 if words < 0.9 * cell else 90
    left, top = words + 0.45, (0.2 if slant == 0 else words + 0.1) + 0.75
    side = cell * count
    width, height = left + side + 1.3, top + side
    figure = Figure(figsize=(width, height), facecolor="white")
    axes = figure.add_axes((left / width, 0, side / width, side / height))
    lettering.write(figure, 0, 1, title, 12, whole=True, va="top", weight="bold")
    bars = [
        ((left + side + 0.25) / width, (side / height) * low, 0.13 / width, (side / height) * 0.44) for low in (0.56, 0)
    ]
    _paint(figure, axes, numbers, bars)
    _letter(axes, classes, cell, slant, words, lettering)
    if count <= _NUMBERS:
        _numbers(axes, numbers, cell, lettering)
    return figure


def _paint(figure: "Figure", axes: Any, counts: Any, bars: list[tuple[float, float, float, float]]) -> None:
    """Cells and their two colour bars."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    share = _shares(counts)
    diagonal = np.eye(len(counts), dtype=bool)
    peak = float(share[~diagonal].max(initial=0.0)) or 1.0
    kinds = (("right", COLOURS, diagonal, 1.0), ("mistaken", _MISTAKES, ~diagonal, peak))
    lines = {"edgecolors": "white", "linewidth": 0.8} if len(counts) <= _NUMBERS else {}
    for (name, colours, shown, limit), place in zip(kinds, bars, strict=True):
        scale = ScalarMappable(Normalize(0, limit), LinearSegmentedColormap.from_list(name, colours))
        cells = np.ma.masked_array(share, ~shown)
        axes.pcolormesh(cells, norm=scale.norm, cmap=scale.cmap, rasterized=len(counts) > _NUMBERS, **lines)
        bar_axes = figure.add_axes(place)
        bar = figure.colorbar(scale, cax=bar_axes, format=lambda value, _: f"{100 * value:.3g} %")
        bar.set_label(f"{name}, of the row", color=QUIET, size=9)
        bar.outline.set_visible(False)
        bar_axes.tick_params(labelsize=8, labelcolor=QUIET, color=QUIET)
    axes.set(xlim=(0, len(counts)), ylim=(len(counts), 0), xticks=(), yticks=())
    axes.spines[:].set_visible(False)


def _letter(axes: Any, classes: Sequence[str], cell: float, slant: int, words: float, lettering: Lettering) -> None:
    from matplotlib.transforms import ScaledTranslation

    def shifted(base: Any, right: float, up: float) -> Any:
        return base + ScaledTranslation(right, up, axes.figure.dpi_scale_trans)

    size = font_size(cell)
    beside = {"transform": shifted(axes.get_yaxis_transform(), -0.08, 0), "ha": "right", "va": "center"}
    above = {
        "transform": shifted(axes.get_xaxis_transform(), 0, 0.08),
        "ha": "center",
        "va": "bottom",
        "rotation": slant,
    }
    for place in range(0, len(classes), every(cell)):
        lettering.write(axes, 0, place + 0.5, classes[place], size, **beside)
        lettering.write(axes, place + 0.5, 1, classes[place], size, **above)
    title: dict[str, Any] = {"color": QUIET, "ha": "left"}
    up = (words if slant else 0.18) + 0.17
    lettering.write(axes, 0, 1, "taken for", 9, transform=shifted(axes.transAxes, 0, up), **title)
    left = shifted(axes.transAxes, -words - 0.3, 0)
    lettering.write(axes, 0, 1, "truth", 9, transform=left, rotation=90, va="top", **title)


def _numbers(axes: Any, counts: Any, cell: float, lettering: Lettering) -> None:
    share, size = _shares(counts), min(9.0, 18 * cell)
    peak = float(share[~np.eye(len(counts), dtype=bool)].max(initial=0.0)) or 1.0
    for row, column in np.argwhere(counts > 0):
        dark = share[row, column] > 0.55 * (1.0 if row == column else peak)
        colour = "white" if dark else INK
        text = f"{counts[row, column]:,}"
        lettering.write(axes, column + 0.5, row + 0.5, text, size, color=colour, ha="center", va="center")


def _shares(counts: Any) -> Any:
    """Of each row; a class that does not occur has none."""
    total = counts.sum(1, keepdims=True)
    return np.divide(counts, total, out=np.zeros(counts.shape), where=total > 0)
