"""The picture under the weights of its cells: once for every word that looks at it; or, where cells look, all layers together, the heads
of the last layer, and every layer.

The picture turns pale and grey, and the weights lie on it as ink: the colours of the matrices, each cell of the model by itself, since
smoothing would show weight where there is none. Panels of one shelf are compared, so they share one scale, which stands beside them;
above each its own largest weight is written. "Even" is what everything in view would get if all got the same.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from saccade.views.axes import Grid, Objects, labels
from saccade.views.figures.canvas import BAR, Block, Canvas
from saccade.views.figures.palette import INK, QUIET, limit_of, number, scale_to, short
from saccade.views.lettering import Lettering
from saccade.views.maps import AVERAGE_CELL, AttentionMap

if TYPE_CHECKING:
    from saccade.views.view import View

_LARGE, _MIDDLE, _SMALL = 2.4, 1.5, 1.3  # inches on the longer side of a panel
_ACROSS = 9.0  # inches of panels side by side before they wrap
_GAP, _ABOVE, _HEADING = 0.16, 0.4, 0.26  # inches between panels, for the two lines above each, and for a heading
_TITLE, _NOTE = 8.5, 7.5  # font sizes above a panel
_DETAIL = 384  # pixels on the longer side of a panel
_DARKEST = 0.78  # of the pale picture
_FOR_PEOPLE = {"[image]": "the pooling query"}
SPOKEN = (
    f"the picture seen from the framed cell and largest even one cell {AVERAGE_CELL}{''.join(_FOR_PEOPLE.values())}"
)

Pixels = NDArray[np.uint8]  # (rows, columns, channels)
Mark = tuple[float, float, float, float]  # left, top, width, height as shares of the picture


@dataclass(frozen=True)
class Panel:
    """The picture under weights of its cells, or as it is."""

    title: str
    note: str = ""
    mark: Mark | None = None  # a cell to frame
    cells: NDArray[np.float32] | None = None  # (rows, columns) of `grid`
    grid: Grid | None = None


@dataclass(frozen=True)
class Shelf:
    """Panels of one size under one heading, at one scale."""

    heading: str
    size: float
    panels: list[Panel]


def block(view: "View", maps: Sequence[AttentionMap], lettering: Lettering) -> Block:
    """Maps whose keys, or else whose queries, are cells of the view's picture."""
    assert view.picture is not None
    by_key = [_transposed(attention) for attention in maps if not isinstance(attention.keys, Grid)]
    over_cells = [attention for attention in maps if isinstance(attention.keys, Grid)]
    by_word = [*by_key, *(attention for attention in over_cells if not _is_one_look(attention))]
    by_cell = [attention for attention in over_cells if _is_one_look(attention)]
    shelves = [*(_word_shelves(by_word) if by_word else ()), *(_layer_shelves(view, by_cell) if by_cell else ())]
    return _on_shelves(shelves, view.picture, lettering)


def _transposed(attention: AttentionMap) -> AttentionMap:
    """Cells that look at something, as something with a weight in each cell."""
    titles = (attention.key_title, attention.query_title)
    return AttentionMap(attention.name, attention.weights.swapaxes(1, 2), attention.keys, attention.queries, *titles)


def _is_one_look(attention: AttentionMap) -> bool:
    """Whether one of its rows is shown at a time: cells look, or one token that stands for all of them."""
    return isinstance(attention.queries, Grid) or len(attention.queries) == 1


# Words that look


def _word_shelves(maps: Sequence[AttentionMap]) -> list[Shelf]:
    """All layers together first; then each layer, or each head of the only one."""
    photo = Panel("the picture")
    alike = all((attention.queries, attention.keys) == (maps[0].queries, maps[0].keys) for attention in maps)
    if len(maps) > 1 and not alike:
        return [
            Shelf(attention.label, _MIDDLE, [photo, *_words(attention, attention.weights.mean(0))])
            for attention in maps
        ]
    together: NDArray[np.float32] = np.mean([attention.weights.mean(0) for attention in maps], axis=0)  # (Q, K)
    if len(maps) > 1:
        means = [Shelf(attention.label, _MIDDLE, _words(attention, attention.weights.mean(0))) for attention in maps]
        return [Shelf(f"average of {len(maps)} layers", _MIDDLE, [photo, *_words(maps[0], together)]), *means]
    (only,) = maps
    if only.heads == 1:
        return [Shelf("", _MIDDLE, [photo, *_words(only, together)])]
    heads = [Shelf(f"head {index}", _MIDDLE, _words(only, weights)) for index, weights in enumerate(only.weights)]
    return [Shelf(f"{only.label}, average of {only.heads} heads", _MIDDLE, [photo, *_words(only, together)]), *heads]


def _words(attention: AttentionMap, weights: NDArray[np.float32]) -> list[Panel]:
    """The picture under the weights (Q, K) of each query; the only cell that hard attention chose is framed."""
    grid = attention.keys
    assert isinstance(grid, Grid)
    boxes = attention.queries.boxes if isinstance(attention.queries, Objects) else ()
    is_hard = bool(((weights > 0).sum(-1) == 1).all())
    panels = []
    for index, (word, row) in enumerate(zip(labels(attention.queries), weights, strict=True)):
        beside, cells = row[: len(grid.extra)], row[len(grid.extra) :].reshape(grid.rows, grid.columns)
        chosen = _cell(int(cells.argmax()), grid) if is_hard and cells.max() > 0 else None
        notes = ["one cell"] if chosen else [f"largest {short(float(cells.max()))}"]
        notes += [f"even {short(1 / len(row))}"] if row.sum() < 1.01 and not chosen else []
        notes += [f"{name} {number(float(weight)) or 0}" for name, weight in zip(grid.extra, beside, strict=True)]
        mark, title = (boxes[index], f"{index + 1} {word}") if boxes else (chosen, word)
        panels.append(Panel(title, " · ".join(notes), mark, cells, grid))
    return panels


def _cell(index: int, grid: Grid) -> Mark:
    row, column = divmod(index, grid.columns)
    return column / grid.columns, row / grid.rows, 1 / grid.columns, 1 / grid.rows


# Cells that look


@dataclass(frozen=True)
class _Look:
    """A map of one row, and what its panels have in common."""

    attention: AttentionMap
    every_row: AttentionMap
    query: int | None  # of `every_row`; None is the mean of all
    viewer: str  # who looks, where that differs between maps
    mark: Mark | None  # the cell that looks, where it is another than the one framed on the picture

    def over(self, weights: NDArray[np.float32], title: str) -> Panel:
        """The picture under the weights (1, K) of one head."""
        grid = self.attention.keys
        assert isinstance(grid, Grid)
        beside, cells = weights[0, : len(grid.extra)], weights[0, len(grid.extra) :].reshape(grid.rows, grid.columns)
        notes = [self.viewer, f"largest {short(float(cells.max()))}"]
        notes += [f"{name} {number(float(weight)) or 0}" for name, weight in zip(grid.extra, beside, strict=True)]
        return Panel(title, " · ".join(filter(None, notes)), self.mark, cells, grid)

    def mean(self, title: str) -> Panel:
        return self.over(self.attention.averaged().weights[0], title)

    def even(self) -> float | None:
        """The weight that everything in view would get if all got the same. None where the mean of all cells is shown and they see
        different parts of the picture."""
        sees = self.every_row.weights.max(0) > 0  # (H, Q, K) -> (Q, K)
        row = sees[0 if self.query is None else self.query]
        if (self.query is None and (sees != row).any()) or not row.any():
            return None
        return 1 / int(row.sum())


def _layer_shelves(view: "View", shown: Sequence[AttentionMap]) -> list[Shelf]:
    """First the picture, the map that a page opens on, and the last layer; then the heads of those shown; then every layer."""
    looks = _looks(view)
    opening = next((look for look in looks if look.attention.name == view.maps[view.first].name), looks[0])
    layers = [look for look in looks if look is not opening or look is looks[-1]]
    names = _named([look.attention for look in layers])
    differ = any(look.viewer for look in looks)
    viewers = "" if differ else f"seen from {_viewers(looks, 'the framed cell')}"
    large = [Panel("the picture", viewers, _mark(view, _framed(looks)))]
    for look, name in [(opening, opening.attention.label)] * (opening not in layers) + [(layers[-1], names[-1])]:
        panel, even = look.mean(name), look.even()
        large.append(panel if even is None else replace(panel, note=f"{panel.note} · even {short(even)}"))
    shelves = [Shelf("", _LARGE, large)]
    chosen = {attention.name for attention in shown}
    for look in layers:
        if look.attention.heads > 1 and look.attention.name in chosen:
            heads = [look.over(weights, f"head {index}") for index, weights in enumerate(look.attention.weights)]
            shelves.append(Shelf(f"{look.attention.label}, head by head", _SMALL, heads))
    if len(layers) > 1:
        means = [look.mean(name) for look, name in zip(layers, names, strict=True)]
        shelves.append(Shelf("layer by layer, average of heads", _SMALL, means))
    return shelves


def _looks(view: "View") -> list[_Look]:
    pairs = [
        (row, every_row)
        for row, every_row in zip(view.rows(), view.maps, strict=True)
        if isinstance(row.keys, Grid) and _is_one_look(every_row)
    ]
    differ = len({_viewer(row, "the cell") for row, _ in pairs}) > 1
    framed = next((every_row.queries for _, every_row in reversed(pairs) if isinstance(every_row.queries, Grid)), None)
    return [
        _Look(
            row,
            every_row,
            view.seen_from.get(every_row.name) if isinstance(every_row.queries, Grid) else 0,
            f"from {_viewer(row, 'the cell')}" if differ else "",
            None if every_row.queries == framed else _mark(view, every_row),
        )
        for row, every_row in pairs
    ]


def _framed(looks: Sequence[_Look]) -> AttentionMap | None:
    """The last map in which cells look."""
    return next((look.every_row for look in reversed(looks) if isinstance(look.every_row.queries, Grid)), None)


def _mark(view: "View", attention: AttentionMap | None) -> Mark | None:
    """Where the cell that looks in this map lies on the picture; None where a token looks, or all cells."""
    if attention is None or view.picture is None or not isinstance(attention.queries, Grid):
        return None
    grid, query = attention.queries, view.seen_from.get(attention.name)
    if query is None or query < len(grid.extra):
        return None
    row, column = divmod(query - len(grid.extra), grid.columns)
    rows, columns = view.picture.shape[:2]
    down, across = grid.covered(rows, columns)
    height, width = down / grid.rows / rows, across / grid.columns / columns  # of a cell, as shares of the picture
    return column * width, row * height, min(width, 1 - column * width), min(height, 1 - row * height)


def _named(layers: Sequence[AttentionMap]) -> list[str]:
    """Their names for people, without the end that they all share: "layer 0", not "layer 0 · self attention"."""
    names = [attention.label for attention in layers]
    ends = {name.rpartition(" · ")[2] for name in names}
    if len(names) == 1 or len(ends) > 1:
        return names
    return [name.rpartition(" · ")[0] or name for name in names]


def _viewers(looks: Sequence[_Look], cell: str) -> str:
    """All who look."""
    return " and ".join(dict.fromkeys(_viewer(look.attention, cell) for look in looks))


def _viewer(attention: AttentionMap, cell: str) -> str:
    """Who looks in a map of one row; a cell of the picture is called `cell`."""
    name = labels(attention.queries)[0]
    is_cell = name.startswith("row ")
    return cell if is_cell else _FOR_PEOPLE.get(name, name)


# Pixels


def blended(picture: Pixels, cells: NDArray[np.float32], grid: Grid, limit: float) -> NDArray[np.float64]:
    """The cells (rows, columns) of a grid as ink on the pale picture: white paper without weight, the darkest ink at `limit`."""
    large = enlarged(picture)
    scale, (down, across) = large.shape[0] // picture.shape[0], grid.covered(*picture.shape[:2])
    share = Image.fromarray(cells).resize((across * scale, down * scale), Image.Resampling.NEAREST)
    weights = np.asarray(share, np.float64)[: large.shape[0], : large.shape[1]]  # what hangs over the edge is cut off
    ink: NDArray[np.float64] = scale_to(limit).to_rgba(weights)[..., :3]
    return ink * _pale(large)


def uncovered(picture: Pixels, cells: NDArray[np.float32]) -> NDArray[np.float64]:
    """The picture as it is where a cell (rows, columns) has weight, and pale elsewhere: what hard attention saw."""
    large = enlarged(picture)
    covered = Image.fromarray((cells > 0).astype(np.uint8)).resize(large.shape[1::-1], Image.Resampling.NEAREST)
    return np.where(np.asarray(covered, bool)[..., None], large, _pale(large))


def _pale(large: NDArray[np.float64]) -> NDArray[np.float64]:
    """In light grey, (rows, columns, 1)."""
    grey: NDArray[np.float64] = _DARKEST + (1 - _DARKEST) * (large @ [0.299, 0.587, 0.114])[..., None]
    return grey


def enlarged(picture: Pixels) -> NDArray[np.float64]:
    """The picture in colour and in the detail of a panel, pixels of small pictures as squares."""
    rows, columns = picture.shape[:2]
    scale = max(1, round(_DETAIL / max(rows, columns)))
    image = Image.fromarray(np.broadcast_to(picture, (rows, columns, 3)).astype(np.uint8))
    return np.asarray(image.resize((columns * scale, rows * scale), Image.Resampling.NEAREST)) / 255


# Where everything goes


def _on_shelves(shelves: Sequence[Shelf], picture: Pixels, lettering: Lettering) -> Block:
    rows, columns = picture.shape[:2]
    shape = (columns / max(rows, columns), rows / max(rows, columns))
    plans = [_Plan.of(shelf, shape, lettering) for shelf in shelves]

    def paint(canvas: Canvas, top: float) -> None:
        for plan in plans:
            plan.paint(canvas, top, picture)
            top += plan.height + _GAP

    return Block(
        max(plan.width for plan in plans) + BAR, sum(plan.height for plan in plans) + _GAP * (len(plans) - 1), paint
    )


@dataclass(frozen=True)
class _Plan:
    """A shelf whose panels have their places."""

    shelf: Shelf
    width: float
    height: float
    size: tuple[float, float]  # width and height of a panel
    pitch: float  # from panel to panel
    in_a_row: int

    @classmethod
    def of(cls, shelf: Shelf, shape: tuple[float, float], lettering: Lettering) -> "_Plan":
        """`shape` is the width and height of a picture whose longer side is 1."""
        across, down = shelf.size * shape[0], shelf.size * shape[1]
        pitch = max(across, *(_words_above(panel, lettering) for panel in shelf.panels)) + _GAP
        in_a_row = max(1, min(len(shelf.panels), math.floor((_ACROSS + _GAP) / pitch)))
        lines = math.ceil(len(shelf.panels) / in_a_row)
        height = lines * (_ABOVE + down) + (lines - 1) * _GAP + (_HEADING if shelf.heading else 0.0)
        return cls(shelf, in_a_row * pitch - _GAP, height, (across, down), pitch, in_a_row)

    def paint(self, canvas: Canvas, top: float, picture: Pixels) -> None:
        if self.shelf.heading:
            canvas.write(0, top, self.shelf.heading, 10, weight="bold")
            top += _HEADING
        weighted = [(panel.cells, panel.cells.size) for panel in self.shelf.panels if panel.cells is not None]
        limit = limit_of(weighted)
        across, down = self.size
        for index, panel in enumerate(self.shelf.panels):
            line, column = divmod(index, self.in_a_row)
            place = (column * self.pitch, top + _ABOVE + line * (_ABOVE + down + _GAP))
            _paint(canvas.axes_at(*place, across, down), panel, picture, limit, canvas.lettering)
        if not all(_is_one_cell(panel) for panel in self.shelf.panels if panel.cells is not None):
            canvas.colour_bar(self.width + 0.3, top + _ABOVE, down, limit)


def _is_one_cell(panel: Panel) -> bool:
    """Whether hard attention chose it: then the picture is uncovered there."""
    return panel.cells is not None and panel.mark is not None and panel.note.startswith("one cell")


def _words_above(panel: Panel, lettering: Lettering) -> float:
    """The width of what stands above a panel, in inches."""
    return max(lettering.width([panel.title], _TITLE, whole=True), lettering.width([panel.note], _NOTE, whole=True))


def _paint(axes: Any, panel: Panel, picture: Pixels, limit: float, lettering: Lettering) -> None:
    from matplotlib.patches import Rectangle
    from matplotlib.transforms import ScaledTranslation

    if panel.cells is None or panel.grid is None:
        image = enlarged(picture)
    elif _is_one_cell(panel):
        image = uncovered(picture, panel.cells)
    else:
        image = blended(picture, panel.cells, panel.grid, limit)
    axes.imshow(image, extent=(0, 1, 1, 0), aspect="auto", interpolation="none")
    if panel.mark:
        left, top, width, height = panel.mark
        for colour, line in (("white", 3.0), ("black", 1.2)):
            axes.add_patch(Rectangle((left, top), width, height, fill=False, edgecolor=colour, linewidth=line))
    for text, up, size, colour in ((panel.title, 0.2, _TITLE, INK), (panel.note, 0.06, _NOTE, QUIET)):
        place = axes.transAxes + ScaledTranslation(0, up, axes.figure.dpi_scale_trans)
        lettering.write(axes, 0, 1, text, size, whole=True, transform=place, color=colour)
