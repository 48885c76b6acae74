"""Where everything goes in a picture of attention maps: panels of cells, their words and their headings.

Places and sizes are inches from the top left corner of a section. A word takes the same room whether a map has 3 words
or 60, so a picture grows with the sentence.

Axis legend: H heads, Q queries, K keys.
"""

import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from saccade.views.axes import Grid, Scales, Tokens, labels
from saccade.views.figures.edges import SMALLEST, Edge
from saccade.views.figures.palette import number
from saccade.views.lettering import Lettering
from saccade.views.maps import AttentionMap

_GAP = 0.14
_HEADING = 0.28
_TITLE, _LINE = 0.25, 0.16  # a line of text above a panel, and every further one
_TITLE_WIDTH = 2.2  # of a title above a narrower panel, before it is broken
_WIDEST = 11.0  # panels side by side before they wrap
_WIDEST_TILES = 16.0
_LEGEND = 0.6  # beside a strip of series, for their names
_READABLE = 1.1 * SMALLEST / 72  # inches of a cell beside which every word can be written


@dataclass(frozen=True)
class Panel:
    """One rectangle of coloured cells. Words are written only where they are given."""

    weights: NDArray[np.float32]  # (rows, columns)
    left: float
    top: float
    cell: tuple[float, float]  # width and height of one cell
    title: str = ""
    rows: Edge | None = None
    columns: Edge | None = None
    row_title: str = ""
    column_title: str = ""
    slant: int = 0  # of the words on top, in degrees
    row_room: float = 0.0  # for the words on the left and their title
    column_room: float = 0.0  # for the words on top, their title and the panel's
    numbers: bool = False
    keys: int = 0  # of which these are some, where the weights are not those of all keys

    @property
    def width(self) -> float:
        return self.cell[0] * int(self.weights.shape[1])

    @property
    def height(self) -> float:
        return self.cell[1] * int(self.weights.shape[0])


@dataclass
class Section:
    """Panels that share one colour scale."""

    panels: list[Panel] = field(default_factory=list)
    headings: list[tuple[float, str]] = field(default_factory=list)  # top, text
    width: float = 0.0
    height: float = 0.0

    def add(self, panel: Panel) -> None:
        self.panels.append(panel)
        self.width = max(self.width, panel.left + panel.width)
        self.height = max(self.height, panel.top + panel.height)


class Layout:
    """Turns maps of one kind into a section. `named` says whether maps need a heading to be told apart, `title` what stands above all."""

    def __init__(self, lettering: Lettering, named: bool, title: str = ""):
        self.lettering = lettering
        self.named = named
        self.title = title

    def section(self, maps: list[AttentionMap]) -> Section:
        if is_heat(maps[0]):
            return self.heat_grids(maps)
        maps = [_heads_as_rows(attention) for attention in maps]
        if all(attention.heads == 1 for attention in maps):
            return self.tiles(maps)
        return self.layers(maps) if self.named else self.average_and_heads(maps[0])

    def tiles(self, maps: list[AttentionMap]) -> Section:
        """Fully labelled matrices: one, or several side by side, each under its name."""
        section = Section()
        left = top = tallest = 0.0
        for attention in maps:
            room = max(3.4, _READABLE * max(len(attention.queries), len(attention.keys))) if self.named else 14.4
            label = attention.label if self.named or self._is_one_of_many(attention) else ""
            beside = max(_TITLE_WIDTH, _cells(attention, room)[0] * len(attention.keys))
            title = self.lettering.wrapped(label, 9, beside) if len(maps) > 1 else label
            panel = self.labelled(attention, room, title=title)
            heading = self.lettering.width(panel.title.split("\n"), 9, whole=True)
            width = panel.row_room + max(self._reach(panel), heading)
            if left and left + width > _WIDEST_TILES:
                left, top, tallest = 0.0, top + tallest + 0.35, 0.0
            section.add(replace(panel, left=left + panel.row_room, top=top + panel.column_room))
            left, tallest = left + width + 0.35, max(tallest, panel.column_room + panel.height)
        return section

    def average_and_heads(self, attention: AttentionMap) -> Section:
        """One map: the mean large and labelled, its heads beside it in the same orientation."""
        section = Section()
        average = attention.averaged()
        title = average.label if self._is_one_of_many(attention) else f"average of {attention.heads} heads"
        mean = self.labelled(average, 7.0, title=title)
        mean = replace(mean, left=mean.row_room, top=mean.column_room)
        section.add(mean)
        for lines in range(1, attention.heads + 1):
            columns = math.ceil(attention.heads / lines)
            line_height = max((mean.height + _TITLE) / lines, 0.8)
            scale = (line_height - _TITLE) / mean.height
            pitch = max(mean.width * scale, 0.5) + _GAP
            if columns * pitch <= max(8.0, mean.width):
                break
        cell = (mean.cell[0] * scale, mean.cell[1] * scale)
        start = mean.left + self._reach(mean) + 0.4
        for index, weights in enumerate(attention.weights):
            line, column = divmod(index, columns)
            place = (start + column * pitch, mean.top + line * line_height)
            section.add(Panel(weights, *place, cell, title=f"head {index}"))
        return section

    def layers(self, maps: list[AttentionMap]) -> Section:
        """A row for each map: its mean, then its heads. Words are written once for panels that share them."""
        section = Section()
        side = min(2.6, max(1.15, 0.085 * max(max(len(attention.queries), len(attention.keys)) for attention in maps)))
        labelled = [self.labelled(attention, side, title="average") for attention in maps]
        start, top = max(panel.row_room for panel in labelled), 0.0
        keys_above = None
        for attention, mean in zip(maps, labelled, strict=True):
            if attention.keys == keys_above:
                mean = replace(mean, columns=None, column_title="", column_room=0.0)
            keys_above = attention.keys
            section.headings.append((top, attention.label))
            top += _HEADING + (mean.column_room or _TITLE)
            mean = replace(mean, weights=attention.averaged().weights[0], left=start, top=top, numbers=False)
            section.add(mean if attention.heads > 1 else replace(mean, title=""))
            left = start + max(mean.width, 0.5) + 2.5 * _GAP
            for index, weights in enumerate(attention.weights if attention.heads > 1 else ()):
                head = replace(mean, weights=weights, left=left, title=f"head {index}")
                section.add(replace(head, rows=None, row_title="", column_title=""))
                left += max(mean.width, 0.5) + _GAP
            top += mean.height + 0.22
        return section

    def heat_grids(self, maps: list[AttentionMap]) -> Section:
        """A small picture of the image's cells for each word, step or leading token that looks at it."""
        section, top = Section(), 0.0
        for attention in maps:
            if self.named:
                section.headings.append((top, attention.label))
                top += _HEADING
            grid = attention.keys if isinstance(attention.keys, Grid) else attention.queries
            assert isinstance(grid, Grid)
            shape, beside = (grid.rows, grid.columns), len(grid.extra)
            cell, above, left = 1.2 / max(shape), _TITLE + 0.15 * beside, 0.0
            for name, row in _looks(attention):
                notes = [f"→ {extra} {number(weight) or 0}" for extra, weight in zip(grid.extra, row, strict=False)]
                width = max(cell * shape[1], self.lettering.width([name, *notes], 9)) + _GAP
                if left and left + width > _WIDEST:
                    left, top = 0.0, top + above + cell * shape[0] + 0.08
                cells = row[beside:].reshape(shape)
                title = "\n".join([self.lettering.shown(name), *notes])
                section.add(Panel(cells, left, top + above, (cell, cell), title=title, keys=len(attention.keys)))
                left += width
            top += above + cell * shape[0] + 0.22
        return section

    def labelled(self, attention: AttentionMap, room: float, title: str = "") -> Panel:
        """The first head as a panel at (0, 0) with its words, and the room that they need on its left and top."""
        across, down = _cells(attention, room)
        rows, columns = Edge.of(attention.queries, down), Edge.of(attention.keys, across)
        width = columns.width(self.lettering)
        slant = 0 if width < 0.92 * across else 45 if across >= 0.3 else 90
        above = {0: 0.22, 45: 0.72 * width + 0.14, 90: width + 0.1}[slant] + columns.extra
        return Panel(
            attention.weights[0],
            left=0.0,
            top=0.0,
            cell=(across, down),
            title=title,
            rows=rows,
            columns=columns,
            row_title=attention.query_title,
            column_title=attention.key_title,
            slant=slant,
            row_room=rows.width(self.lettering) + rows.extra + 0.35,
            column_room=above + _TITLE + title_room(title),
            numbers=min(across, down) >= 0.34,
        )

    def _is_one_of_many(self, attention: AttentionMap) -> bool:
        """Whether a map that stands alone is that of a layer with a number, which nothing else says."""
        return self.title != attention.label and any(part.isdigit() for part in attention.name.split("."))

    def _reach(self, panel: Panel) -> float:
        """How far the panel and its slanted words go to the right."""
        if panel.slant != 45 or panel.columns is None:
            return panel.width + (_LEGEND if panel.columns is not None and panel.columns.extra else 0.0)
        edge = panel.columns
        ends = [0.72 * self.lettering.width([text], edge.size) if text else 0.0 for text in edge.texts]
        return max(panel.width, *((place + 0.5) * panel.cell[0] + end for place, end in enumerate(ends)))


def title_room(title: str) -> float:
    """Inches above a panel for its title, which may have several lines."""
    return _TITLE + _LINE * title.count("\n") if title else 0.0


def is_heat(attention: AttentionMap) -> bool:
    """Whether the map is drawn as small images. Cells looking at cells are a matrix, unless [class] looks too."""
    if not isinstance(attention.keys, Grid):
        return isinstance(attention.queries, Grid) and isinstance(attention.keys, Scales)
    return not isinstance(attention.queries, Grid) or bool(attention.queries.extra)


def _cells(attention: AttentionMap, room: float) -> tuple[float, float]:
    """Width and height of a cell: square, unless a map with very few rows or columns would become a thin line."""
    count = max(len(attention.queries), len(attention.keys))
    cell = min(room / count, 0.62 if count <= 4 else 0.46 if count <= 14 else 0.36 if count <= 24 else 0.24)
    return max(cell, 0.3 / len(attention.keys)), max(cell, 0.3 / len(attention.queries))


def _heads_as_rows(attention: AttentionMap) -> AttentionMap:
    """A map of several heads and a single query as one matrix with a row for each head."""
    if len(attention.queries) > 1 or attention.heads == 1:
        return attention
    rows = np.concatenate([attention.averaged().weights[0], attention.weights[:, 0]])  # (1, K), (H, K) -> (1 + H, K)
    names = (f"{labels(attention.queries)[0]}: average", *(f"head {index}" for index in range(attention.heads)))
    return attention.changed(weights=rows, queries=Tokens(names))


def _looks(attention: AttentionMap) -> list[tuple[str, NDArray[np.float32]]]:
    """Who looks at the image, and with which weights (K); where its cells look at scales, each scale and the weights of the cells (Q)."""
    mean = attention.averaged().weights[0]
    if not isinstance(attention.keys, Grid):
        return list(zip(labels(attention.keys), mean.T, strict=True))
    if not isinstance(attention.queries, Grid):
        return list(zip(labels(attention.queries), mean, strict=True))
    looks = []
    for place, extra in enumerate(attention.queries.extra):
        looks.append((f"{extra}: average" if attention.heads > 1 else extra, mean[place]))
        if attention.heads > 1:
            looks += [(f"{extra}: head {index}", weights[place]) for index, weights in enumerate(attention.weights)]
    return looks
