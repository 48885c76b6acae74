"""Attention maps as pictures: the alignment matrix, small multiples of layers and heads, heat grids over an image.

Words that are looked at (keys) stand along the top, words that look (queries) down the left, as in figure 3 of
Bahdanau, Cho and Bengio 2015. Colours are even steps for the eye, so twice the weight looks twice as dark.

Nothing here touches pyplot or other global state: pictures may be drawn in several threads at once.
"""

from collections.abc import Sequence
from io import BytesIO
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from saccade.views.layout import Layout, Panel, Section, every, font_size, is_heat, number
from saccade.views.lettering import INK, QUIET, Lettering
from saccade.views.maps import AttentionMap, labels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# From paper white to ink blue in equal steps of the OKLab colour space.
COLOURS = ("#f7fbfc", "#c4e6f3", "#93cfed", "#65b5e5", "#409adc", "#287acd", "#225cb8", "#243d9c", "#23217c")
_FRAME = "#d5dae1"
_BAR = 0.95  # inches for the colour bar and its numbers
_BETWEEN = 0.35  # inches between sections
_TITLE_SIZE, _LEAST_WIDE = 14, 6.0  # of the font; inches before a title is wrapped
_SPOKEN = "0123456789.: attention weight average of heads → …"  # what pictures say beside the words of the maps


def png(
    maps: Sequence[AttentionMap], title: str = "", query_title: str | None = None, key_title: str | None = None
) -> bytes:
    figure = draw(maps, title, query_title, key_title)
    return _printed(figure, format="png", dpi=min(160, 20000 / max(figure.get_size_inches())))


def svg(
    maps: Sequence[AttentionMap], title: str = "", query_title: str | None = None, key_title: str | None = None
) -> bytes:
    figure = draw(maps, title, query_title, key_title)
    return _printed(figure, format="svg", metadata={"Title": title or maps[0].label, "Date": None})


def draw(
    maps: Sequence[AttentionMap], title: str = "", query_title: str | None = None, key_title: str | None = None
) -> "Figure":
    """All maps in one picture, top down. The titles of the two sides are guessed from each map when not given."""
    from matplotlib.figure import Figure

    named = len(maps) > 1
    title = title or ("" if named else maps[0].label)
    words = [word for each in maps for axis in (each.queries, each.keys) for word in labels(axis)]
    names = [name for each in maps for name in (each.label, *each.axis_titles())]
    lettering = Lettering([_SPOKEN, title, query_title or "", key_title or "", *words, *names])
    layout = Layout(lettering, query_title, key_title, named, title)
    sections = [layout.section(list(group)) for _, group in groupby(maps, key=is_heat)]

    width = max(section.width for section in sections) + _BAR
    title = lettering.wrapped(title, _TITLE_SIZE, max(width, _LEAST_WIDE))
    top = 0.17 + 0.28 * len(title.splitlines()) if title else 0.0
    height = top + sum(section.height for section in sections) + _BETWEEN * (len(sections) - 1)
    figure = Figure(figsize=(width, height), facecolor="white")
    if title:
        lettering.write(figure, 0, 1, title, _TITLE_SIZE, whole=True, va="top")
    for section in sections:
        _paint(figure, section, top, lettering)
        top += section.height + _BETWEEN
    return figure


def _paint(figure: "Figure", section: Section, top: float, lettering: Lettering) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    total_width, total_height = figure.get_size_inches()

    def axes_at(left: float, down: float, width: float, height: float) -> Any:
        bottom = 1 - (top + down + height) / total_height
        return figure.add_axes((left / total_width, bottom, width / total_width, height / total_height))

    peak = max(float(panel.weights.max()) for panel in section.panels)
    limit = 1.0 if peak == 0 or 0.7 < peak < 1 else peak
    colours = ScalarMappable(Normalize(0, limit), LinearSegmentedColormap.from_list("ink", COLOURS))
    many = sum(panel.weights.size for panel in section.panels) > 4000  # as shapes these would make an SVG heavy
    for down, text in section.headings:
        lettering.write(figure, 0, 1 - (top + down) / total_height, text, 10, whole=True, va="top", weight="bold")
    for panel in section.panels:
        axes = axes_at(panel.left, panel.top, panel.width, panel.height)
        lines = {"edgecolors": "white", "linewidth": 0.8} if min(panel.cell) >= 0.15 else {}
        axes.pcolormesh(panel.weights, norm=colours.norm, cmap=colours.cmap, rasterized=many, **lines)
        axes.set(xticks=(), yticks=(), xlim=(0, panel.weights.shape[1]), ylim=(panel.weights.shape[0], 0))
        axes.spines[:].set(color=_FRAME, linewidth=0.6)
        _letter(axes, panel, limit, lettering)
    first = section.panels[0].top
    bar = axes_at(section.width + 0.3, first, 0.13, min(max(section.height - first, 1.2), 3.2))
    colour_bar = figure.colorbar(colours, cax=bar)
    colour_bar.set_label("attention weight", color=QUIET, size=9)
    colour_bar.outline.set_visible(False)
    bar.tick_params(labelsize=8, color=_FRAME, labelcolor=QUIET)


def _letter(axes: Any, panel: Panel, limit: float, lettering: Lettering) -> None:
    """Everything written in and around one panel."""
    from matplotlib.transforms import ScaledTranslation

    def shifted(base: Any, right: float, up: float) -> Any:
        return base + ScaledTranslation(right, up, axes.figure.dpi_scale_trans)

    across, down = panel.cell
    beside = {"transform": shifted(axes.get_yaxis_transform(), -0.06, 0), "ha": "right", "va": "center"}
    for place in range(0, len(panel.rows), every(down)):
        lettering.write(axes, 0, place + 0.5, panel.rows[place], font_size(down), **beside)
    above = {
        "transform": shifted(axes.get_xaxis_transform(), 0, 0.06),
        "rotation": panel.slant,
        "rotation_mode": "anchor",
    }
    above |= {"ha": "left" if panel.slant else "center", "va": "center" if panel.slant == 90 else "baseline"}
    for place in range(0, len(panel.columns), every(across)):
        lettering.write(axes, place + 0.5, 1, panel.columns[place], font_size(across), **above)
    if panel.row_title:
        left = {"transform": shifted(axes.transAxes, -panel.row_room, 0), "rotation": 90, "va": "center"}
        lettering.write(axes, 0, 0.5, panel.row_title, 9, color=QUIET, **left)
    if panel.column_title:
        up = panel.column_room - (0.25 if panel.title else 0.0)
        lettering.write(
            axes, 0, 1, panel.column_title, 9, color=QUIET, transform=shifted(axes.transAxes, 0, up), va="top"
        )
    if panel.title:
        up = panel.column_room or 0.06
        side = {"transform": shifted(axes.transAxes, 0, up), "va": "top" if panel.column_room else "bottom"}
        lettering.write(axes, 0, 1, panel.title, 9, whole=True, **side)
    if panel.numbers:
        size = min(9.0, 20 * min(across, down))
        for row, column in np.argwhere(panel.weights >= 0.005):
            weight = float(panel.weights[row, column])
            colour = "white" if weight > 0.55 * limit else INK
            lettering.write(axes, column + 0.5, row + 0.5, number(weight), size, color=colour, ha="center", va="center")


def _printed(figure: "Figure", **options: Any) -> bytes:
    content = BytesIO()
    figure.savefig(content, bbox_inches="tight", pad_inches=0.2, **options)
    return content.getvalue()
