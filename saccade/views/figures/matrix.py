"""Maps as matrices: the alignment matrix, small multiples of layers and heads, heat grids of an image's cells.

Words that are looked at (keys) stand along the top, words that look (queries) down the left, as in figure 3 of
Bahdanau, Cho and Bengio 2015. Panels of one block share one scale of colours.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from saccade.views.figures.canvas import BAR, Block, Canvas
from saccade.views.figures.layout import Layout, Panel, Section, title_room
from saccade.views.figures.palette import FRAME, INK, QUIET, limit_of, number, scale_to
from saccade.views.lettering import Lettering
from saccade.views.maps import AttentionMap

_MANY = 4000  # cells of a block that would make an SVG heavy as shapes


def block(maps: Sequence[AttentionMap], lettering: Lettering, named: bool, title: str) -> Block:
    """Maps of one kind, top down. `named` says whether they need a heading to be told apart, `title` what stands above all."""
    section = Layout(lettering, named, title).section(list(maps))
    return Block(section.width + BAR, section.height, lambda canvas, top: _paint(canvas, section, top))


def _paint(canvas: Canvas, section: Section, top: float) -> None:
    limit = limit_of((panel.weights, panel.keys or panel.weights.shape[1]) for panel in section.panels)
    colours = scale_to(limit)
    is_heavy = sum(panel.weights.size for panel in section.panels) > _MANY
    for down, text in section.headings:
        canvas.write(0, top + down, text, 10, weight="bold")
    for panel in section.panels:
        axes = canvas.axes_at(panel.left, top + panel.top, panel.width, panel.height)
        lines = {"edgecolors": "white", "linewidth": 0.8} if min(panel.cell) >= 0.15 else {}
        axes.pcolormesh(panel.weights, norm=colours.norm, cmap=colours.cmap, rasterized=is_heavy, **lines)
        axes.set(xlim=(0, panel.weights.shape[1]), ylim=(panel.weights.shape[0], 0))
        axes.spines[:].set(visible=True, color=FRAME, linewidth=0.6)
        _letter(axes, panel, limit, canvas.lettering)
    first = section.panels[0].top
    canvas.colour_bar(section.width + 0.3, top + first, min(max(section.height - first, 1.2), 3.2), limit)


def _letter(axes: Any, panel: Panel, limit: float, lettering: Lettering) -> None:
    """Everything written in and around one panel."""
    from matplotlib.transforms import ScaledTranslation

    def shifted(base: Any, right: float, up: float) -> Any:
        return base + ScaledTranslation(right, up, axes.figure.dpi_scale_trans)

    across, down = panel.cell
    if panel.rows is not None:
        place_left = shifted(axes.get_yaxis_transform(), -0.06 - panel.rows.extra, 0)
        beside = {"transform": place_left, "ha": "right", "va": "center"}
        for place, text in enumerate(panel.rows.texts):
            if text:
                lettering.write(axes, 0, place + 0.5, text, panel.rows.size, **beside)
        panel.rows.draw(axes, True, lettering)
    if panel.columns is not None:
        place_above = shifted(axes.get_xaxis_transform(), 0, 0.06 + panel.columns.extra)
        above = {"transform": place_above, "rotation": panel.slant, "rotation_mode": "anchor"}
        above |= {"ha": "left" if panel.slant else "center", "va": "center" if panel.slant == 90 else "baseline"}
        for place, text in enumerate(panel.columns.texts):
            if text:
                lettering.write(axes, place + 0.5, 1, text, panel.columns.size, **above)
        panel.columns.draw(axes, False, lettering)
    if panel.row_title:
        left = {"transform": shifted(axes.transAxes, -panel.row_room, 0), "rotation": 90, "va": "center"}
        lettering.write(axes, 0, 0.5, panel.row_title, 9, color=QUIET, **left)
    if panel.column_title:
        up = panel.column_room - title_room(panel.title)
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
