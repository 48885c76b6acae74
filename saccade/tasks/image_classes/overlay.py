"""Attention laid over the picture it looked at: the picture, all layers together, the heads of the last layer, every layer.

Every panel is coloured up to its own largest weight, which is written above it: the layers of one model differ by orders of magnitude, and
their shapes are what one compares. "Even" is what everything in view would get if all got the same. Colours reach up to twice the mean of
the cells at least: a map without a shape is no big find.

Nothing here touches pyplot or other global state: pictures may be drawn in several threads at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from saccade.data.images.decoding import Pixels
from saccade.tasks.image_classes import headline
from saccade.tasks.image_classes.look import Sight
from saccade.views.axes import Axis, Grid
from saccade.views.document import write_by_ending
from saccade.views.layout import number
from saccade.views.maps import AttentionMap, labels
from saccade.views.page import page
from saccade.views.shelves import Mark, Panel, Shelf, blended, enlarged, on_shelves, printed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LARGE, _SMALL = 2.4, 1.3  # inches on the longer side of a panel
_FOR_PEOPLE = {"[image]": "the pooling query"}
_WHOLE_PAGE = 1_000_000  # weights that a page may hold before it gets only the rows asked for


def save(sight: Sight, path: str | Path, title: str = "") -> None:
    """Write as a picture (.png, .svg), a page to hover over (.html) or data (.json). Missing directories are made."""
    title = title or title_of(sight)
    write_by_ending(
        path,
        png=lambda: png(sight, title),
        svg=lambda: svg(sight, title),
        html=lambda: _page(sight, title),
        values=lambda: {
            "title": title,
            "answer": sight.answer.to_dict(),
            "truth": sight.truth,
            "image": {"rows": len(sight.picture), "columns": len(sight.picture[0])},
            "pixel": None if sight.pixel is None else dict(zip(("row", "column"), sight.pixel, strict=True)),
            "left_out": sight.left_out,
            "maps": [each.to_dict() for each in sight.maps],
        },
    )


def _page(sight: Sight, title: str) -> str:
    """Opens where the picture begins: on all layers together, else on the last."""
    light = sum(each.weights.size for each in sight.whole) <= _WHOLE_PAGE
    maps = sight.whole if light else sight.maps
    viewer = "" if light else f" · only as seen from {_viewers(maps, 'the pixel')}: there are too many cells for a page"
    return page(
        maps,
        title,
        "looks from",
        "looks at",
        sight.picture,
        subtitle=_subtitle(sight) + viewer,
        seen_from=[sight.cell(each.queries) if light else 0 for each in maps],
        first=0 if _is_rollout(maps[0]) else len(maps) - 1,
    )


def title_of(sight: Sight) -> str:
    return headline.title(sight.answer)


def png(sight: Sight, title: str = "") -> bytes:
    return printed(draw(sight, title), format="png", dpi=160)


def svg(sight: Sight, title: str = "") -> bytes:
    title = title or title_of(sight)
    return printed(draw(sight, title), format="svg", metadata={"Title": title, "Date": None})


def draw(sight: Sight, title: str = "") -> "Figure":
    """The picture and the maps of a sight on shelves, top down."""
    shelves = _shelves(sight)
    return on_shelves(shelves, sight.picture, title or title_of(sight), _subtitle(sight), len(shelves[0].panels))


def _subtitle(sight: Sight) -> str:
    without = f"without the first {sight.left_out} attentions, which need much memory" if sight.left_out else ""
    return headline.subtitle(sight.answer, sight.truth, [without])


def _is_rollout(attention: AttentionMap) -> bool:
    return attention.name.startswith("rollout")


# What is shown


@dataclass(frozen=True)
class _Shown:
    """A map of one row, and what its panels have in common."""

    attention: AttentionMap
    whole: AttentionMap
    viewer: str  # who looks, where that differs between maps
    mark: Mark | None  # the cell that looks, where it is another than the one framed on the picture

    def over(self, picture: Pixels, weights: NDArray[np.float32], title: str) -> Panel:
        """The picture under the weights (Q, K) of one head."""
        panel = _over(picture, self.attention, weights, title)
        return replace(panel, note=" · ".join(filter(None, (self.viewer, panel.note))), mark=self.mark)

    def mean(self, picture: Pixels, title: str) -> Panel:
        return self.over(picture, self.attention.averaged().weights[0], title)


def _shelves(sight: Sight) -> list[Shelf]:
    """First the picture, the rollout if there is one, and the last layer; then its heads, or those of all layers that were named; then
    every layer."""
    shown, picture = _shown(sight), sight.picture
    said = any(each.viewer for each in shown)
    viewers = "" if said else f"seen from {_viewers([each.attention for each in shown], 'the framed cell')}"
    layers = [each for each in shown if not _is_rollout(each.attention)]
    names = _named([each.attention for each in layers])
    large = [Panel(enlarged(picture), "the picture", viewers, _mark(sight, _framed(sight)))]
    rolled_out = [(each, each.attention.label) for each in shown if each not in layers]
    for each, name in (*rolled_out, (layers[-1], names[-1])):
        panel, even = each.mean(picture, name), sight.even(each.whole)
        large.append(panel if even is None else replace(panel, note=f"{panel.note} · even {short(even)}"))
    shelves = [Shelf("", _LARGE, large)]
    headed = [each for each in layers if each.attention.heads > 1]
    for each in headed if sight.chosen else headed[-1:]:
        heads = [each.over(picture, weights, f"head {index}") for index, weights in enumerate(each.attention.weights)]
        shelves.append(Shelf(f"{each.attention.label}, head by head", _SMALL, heads))
    if len(layers) > 1:
        means = [each.mean(picture, name) for each, name in zip(layers, names, strict=True)]
        shelves.append(Shelf("layer by layer, average of heads", _SMALL, means))
    return shelves


def _shown(sight: Sight) -> list[_Shown]:
    pairs = [pair for pair in zip(sight.maps, sight.whole, strict=True) if isinstance(pair[0].keys, Grid)]
    differ = len({_viewer(each, "the cell") for each, _ in pairs}) > 1
    framed = _framed(sight)
    return [
        _Shown(
            each,
            whole,
            f"from {_viewer(each, 'the cell')}" if differ else "",
            None if whole.queries == framed else _mark(sight, whole.queries),
        )
        for each, whole in pairs
    ]


def _named(layers: Sequence[AttentionMap]) -> list[str]:
    """Their names for people, without the end that they all share: "layer 0", not "layer 0 · self attention"."""
    names = [each.label for each in layers]
    ends = {name.rpartition(" · ")[2] for name in names}
    if len(names) == 1 or len(ends) > 1:
        return names
    return [name.rpartition(" · ")[0] or name for name in names]


def _over(picture: Pixels, attention: AttentionMap, weights: NDArray[np.float32], title: str) -> Panel:
    """The picture under the weights (Q, K) of one head; several queries count alike."""
    grid = attention.keys
    assert isinstance(grid, Grid)
    row = weights.mean(0)
    beside, cells = row[: len(grid.extra)], row[len(grid.extra) :].reshape(grid.rows, grid.columns)
    notes = [f"largest {short(float(cells.max()))}"]
    notes += [f"{name} {number(float(weight))}" for name, weight in zip(grid.extra, beside, strict=True)]
    return Panel(blended(picture, cells, grid), title, " · ".join(notes))


def short(weight: float) -> str:
    """Two digits that say something, however small the weight."""
    return number(weight) if weight >= 0.095 else f"{weight:.2g}".removeprefix("0")


def _viewers(maps: Sequence[AttentionMap], cell: str) -> str:
    """All who look in these maps."""
    return " and ".join(dict.fromkeys(_viewer(each, cell) for each in maps))


def _viewer(attention: AttentionMap, cell: str) -> str:
    """Who looks in a map of one row; a cell of the picture is called `cell`."""
    name = labels(attention.queries)[0]
    return cell if _is_cell(attention) else _FOR_PEOPLE.get(name, name)


def _is_cell(attention: AttentionMap) -> bool:
    """Whether one cell of the picture looks, not a token that stands for all of it."""
    return labels(attention.queries)[0].startswith("row ")


def _framed(sight: Sight) -> Axis | None:
    """The cells of the last layer in which cells look."""
    return next((each.queries for each in reversed(sight.whole) if isinstance(each.queries, Grid)), None)


def _mark(sight: Sight, axis: Axis | None) -> Mark | None:
    """Where the one of these cells that looks lies on the picture; None where a token looks, or all of them."""
    cell = sight.cell(axis) if isinstance(axis, Grid) else None
    if not isinstance(axis, Grid) or cell is None or cell < len(axis.extra):
        return None
    row, column = divmod(cell - len(axis.extra), axis.columns)
    rows, columns = sight.picture.shape[:2]
    down, across = axis.covered(rows, columns)
    height, width = down / axis.rows / rows, across / axis.columns / columns  # of a cell, as shares of the picture
    return column * width, row * height, min(width, 1 - column * width), min(height, 1 - row * height)
