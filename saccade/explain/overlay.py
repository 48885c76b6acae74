"""Attention laid over the picture it looked at: the picture, all layers together, the heads of the last layer, every layer.

The picture turns pale and grey; colour, from violet to yellow in even steps for the eye, says how much weight a place gets, each cell of
the model by itself: smoothing would show weight where there is none. Every panel is coloured up to its own largest weight, which is written
above it: the layers of one model differ by orders of magnitude, and their shapes are what one compares. "Even" is what everything looked at
would get if all got the same. Colours reach up to twice the mean of the cells at least: a map without a shape is no big find.

Nothing here touches pyplot or other global state: pictures may be drawn in several threads at once.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from saccade.data.axes import Grid
from saccade.data.image_decoding import Pixels
from saccade.explain.document import write_by_ending
from saccade.explain.layout import number
from saccade.explain.lettering import INK, QUIET, Lettering
from saccade.explain.maps import AttentionMap, labels
from saccade.explain.page import page
from saccade.explain.seeing import Sight

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = "plasma"  # matplotlib's; its lightness grows evenly
_LARGE, _SMALL = 2.4, 1.3  # inches on the longer side of a panel
_ACROSS = 9.0  # inches of panels side by side before they wrap
_GAP, _ABOVE, _HEADING = 0.16, 0.4, 0.2  # inches between panels, for the two lines above each, and for a heading
_DETAIL = 384  # pixels on the longer side of a panel
_WHOLE_PAGE = 1_000_000  # weights that a page may hold before it gets only the rows asked for


@dataclass(frozen=True)
class Panel:
    image: NDArray[np.float64]  # (rows, columns, 3), 0 to 1
    title: str
    note: str = ""
    mark: tuple[float, float, float, float] | None = (
        None  # a cell to frame: left, top, width, height as shares of the picture
    )


@dataclass(frozen=True)
class Shelf:
    """Panels of one size under one heading."""

    heading: str
    size: float
    panels: list[Panel]


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
    return f"{sight.answer.text} (probability {sight.answer.probability:.2f})"


def png(sight: Sight, title: str = "") -> bytes:
    return printed(draw(sight, title), format="png", dpi=160)


def svg(sight: Sight, title: str = "") -> bytes:
    title = title or title_of(sight)
    return printed(draw(sight, title), format="svg", metadata={"Title": title, "Date": None})


def printed(figure: "Figure", **options: Any) -> bytes:
    content = BytesIO()
    figure.savefig(content, bbox_inches="tight", pad_inches=0.2, **options)
    return content.getvalue()


def draw(sight: Sight, title: str = "") -> "Figure":
    """The picture and the maps of a sight on shelves, top down."""
    shelves = _shelves(sight)
    return on_shelves(shelves, sight.picture, title or title_of(sight), _subtitle(sight), len(shelves[0].panels))


def on_shelves(shelves: Sequence[Shelf], picture: Pixels, title: str, subtitle: str, beside: int) -> "Figure":
    """Shelves of panels of this picture under a title. The colours' meaning stands beside the first `beside` panels."""
    from matplotlib.figure import Figure

    said = [text for shelf in shelves for each in shelf.panels for text in (shelf.heading, each.title, each.note)]
    lettering = Lettering([title, subtitle, *said])
    rows, columns = picture.shape[:2]
    places = arranged(shelves, (columns / max(rows, columns), rows / max(rows, columns)), lettering)
    width = max(left + across for _, (left, _, across, _) in places) + 0.9
    height = max(top + down for _, (_, top, _, down) in places)
    figure = Figure(figsize=(width, height), facecolor="white")
    lettering.write(figure, 0, 1, title, 14, whole=True, va="top", weight="bold")
    lettering.write(figure, 0, 1 - 0.27 / height, subtitle, 9, whole=True, color=QUIET, va="top")
    for item, (left, top, across, down) in places:
        if isinstance(item, str):
            lettering.write(figure, left / width, 1 - top / height, item, 10, whole=True, va="top", weight="bold")
        else:
            frame = (left / width, 1 - (top + down) / height, across / width, down / height)
            paint(figure.add_axes(frame), item, lettering)
    panels = [place for item, place in places if isinstance(item, Panel)]
    top, down = panels[0][1], panels[0][3]
    right = max(left + across for left, _, across, _ in panels[:beside])
    bar = ((right + 0.25) / width, 1 - (top + down) / height, 0.13 / width, down / height)
    colour_bar(figure, figure.add_axes(bar))
    return figure


def _subtitle(sight: Sight) -> str:
    """Where the picture came from, what else it might be, and what is not shown."""
    answer = sight.answer
    others = zip(answer.classes[1:4], answer.probabilities[1:4], strict=True)
    said = f"{Path(answer.source).name} · else {', '.join(f'{name} {share:.2f}' for name, share in others)}"
    return f"{said} · without the first {sight.left_out} attentions, which need much memory" if sight.left_out else said


def _is_rollout(attention: AttentionMap) -> bool:
    return attention.name.startswith("rollout")


# What is shown


def _shelves(sight: Sight) -> list[Shelf]:
    """First the picture, the rollout if there is one, and the last layer; then its heads, or those of all layers that were named; then
    every layer."""
    maps = [each for each in sight.maps if isinstance(each.keys, Grid)]
    layers = [each for each in maps if not _is_rollout(each)]
    last, mark = layers[-1], _mark(sight)
    large = [Panel(enlarged(sight.picture), "the picture", f"seen from {_viewers(maps, 'the framed cell')}", mark)]
    rolled_out = [each for each in maps if each not in layers]
    for each, name in (*((each, each.label) for each in rolled_out), (last, _named(layers)[-1])):
        panel = _mean(sight.picture, each, name)
        large.append(replace(panel, note=f"{panel.note} · even {short(1 / len(each.keys))}"))
    shelves = [Shelf("", _LARGE, large)]
    headed = [each for each in layers if each.heads > 1]
    for each in headed if sight.chosen else headed[-1:]:
        heads = [_over(sight.picture, each, weights, f"head {index}") for index, weights in enumerate(each.weights)]
        shelves.append(Shelf(f"{each.label}, head by head", _SMALL, heads))
    if len(layers) > 1:
        means = [_mean(sight.picture, each, name) for each, name in zip(layers, _named(layers), strict=True)]
        shelves.append(Shelf("layer by layer, average of heads", _SMALL, means))
    return shelves


def _named(layers: Sequence[AttentionMap]) -> list[str]:
    """Their names for people, without the end that they all share: "layer 0", not "layer 0 · self attention"."""
    names = [each.label for each in layers]
    ends = {name.rpartition(" · ")[2] for name in names}
    if len(names) == 1 or len(ends) > 1:
        return names
    return [name.rpartition(" · ")[0] or name for name in names]


def _mean(picture: Pixels, attention: AttentionMap, title: str) -> Panel:
    return _over(picture, attention, attention.averaged().weights[0], title)


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
    """Who looks in these maps of one row each; a cell of the picture is called `cell`."""
    return " and ".join(dict.fromkeys(cell if _is_cell(each) else labels(each.queries)[0] for each in maps))


def _is_cell(attention: AttentionMap) -> bool:
    """Whether one cell of the picture looks, not a token that stands for all of it."""
    return labels(attention.queries)[0].startswith("row ")


def _mark(sight: Sight) -> tuple[float, float, float, float] | None:
    """Where the cell that looks in the last layer lies on the picture; None where a token looks."""
    axis = next((each.queries for each in reversed(sight.whole) if isinstance(each.queries, Grid)), None)
    cell = None if axis is None else sight.cell(axis)
    if axis is None or cell is None or cell < len(axis.extra):
        return None
    row, column = divmod(cell - len(axis.extra), axis.columns)
    rows, columns = sight.picture.shape[:2]
    down, across = axis.covered(rows, columns)
    height, width = down / axis.rows / rows, across / axis.columns / columns  # of a cell, as shares of the picture
    return column * width, row * height, min(width, 1 - column * width), min(height, 1 - row * height)


# Pixels


def blended(picture: Pixels, cells: NDArray[np.float32], grid: Grid) -> NDArray[np.float64]:
    """The cells of a grid (rows, columns) as colour over the pale picture; a cell without weight keeps it, the largest weight nearly
    hides it."""
    large = enlarged(picture)
    peak = max(float(cells.max()), 2 * float(cells.mean())) or 1.0
    scale, (down, across) = large.shape[0] // picture.shape[0], grid.covered(*picture.shape[:2])
    fields = Image.fromarray(cells / peak).resize((across * scale, down * scale), Image.Resampling.NEAREST)
    share = np.asarray(fields, np.float64)[: large.shape[0], : large.shape[1]]  # what hangs over the edge is cut off
    return _coloured(share, _pale(large))


def uncovered(picture: Pixels, cells: NDArray[np.float32]) -> NDArray[np.float64]:
    """The picture as it is where a cell (rows, columns) has weight, with the cell's edge, and pale elsewhere: what hard attention saw."""
    large = enlarged(picture)
    seen = Image.fromarray((cells > 0).astype(np.uint8)).resize(large.shape[1::-1], Image.Resampling.NEAREST)
    return np.where(np.asarray(seen, bool)[..., None], large, _pale(large))


def _pale(large: NDArray[np.float64]) -> NDArray[np.float64]:
    """In grey, (rows, columns, 1)."""
    grey: NDArray[np.float64] = 0.35 + 0.65 * (large @ [0.299, 0.587, 0.114])[..., None]
    return grey


def _coloured(share: NDArray[np.float64], grey: NDArray[np.float64] | float) -> NDArray[np.float64]:
    from matplotlib import colormaps

    alpha = 0.8 * np.sqrt(share)[..., None]
    return (1 - alpha) * grey + alpha * colormaps[_COLOURS](share)[..., :3]


def enlarged(picture: Pixels) -> NDArray[np.float64]:
    """The picture in colour and in the detail of a panel, pixels of small pictures as squares."""
    rows, columns = picture.shape[:2]
    scale = max(1, round(_DETAIL / max(rows, columns)))
    image = Image.fromarray(np.broadcast_to(picture, (rows, columns, 3)).astype(np.uint8))
    return np.asarray(image.resize((columns * scale, rows * scale), Image.Resampling.NEAREST)) / 255


# Where everything goes

Place = tuple[float, float, float, float]  # left, top, width, height in inches


def arranged(
    shelves: Sequence[Shelf], shape: tuple[float, float], lettering: Lettering
) -> list[tuple[str | Panel, Place]]:
    """`shape` is the width and height of a picture whose longer side is 1."""
    places: list[tuple[str | Panel, Place]] = []
    top = 0.55
    for shelf in shelves:
        if shelf.heading:
            top += _GAP
            places.append((shelf.heading, (0.0, top, 0.0, 0.0)))
            top += _HEADING
        across, down = shelf.size * shape[0], shelf.size * shape[1]
        texts = [text for panel in shelf.panels for text in (panel.title, panel.note)]
        pitch = max(across, lettering.width(texts, 8.5)) + _GAP
        many = max(1, min(len(shelf.panels), math.floor((_ACROSS + _GAP) / pitch)))
        for start in range(0, len(shelf.panels), many):
            for index, panel in enumerate(shelf.panels[start : start + many]):
                places.append((panel, (index * pitch, top + _ABOVE, across, down)))
            top += _ABOVE + down + _GAP
    return places


def paint(axes: Any, panel: Panel, lettering: Lettering) -> None:
    from matplotlib.patches import Rectangle
    from matplotlib.transforms import ScaledTranslation

    axes.imshow(panel.image, extent=(0, 1, 1, 0), aspect="auto", interpolation="none")
    axes.set(xticks=(), yticks=())
    axes.spines[:].set_visible(False)
    if panel.mark:
        left, top, width, height = panel.mark
        for colour, line in (("white", 3.0), ("black", 1.2)):
            axes.add_patch(Rectangle((left, top), width, height, fill=False, edgecolor=colour, linewidth=line))
    for text, up, size, colour in ((panel.title, 0.2, 8.5, INK), (panel.note, 0.06, 7.5, QUIET)):
        place = axes.transAxes + ScaledTranslation(0, up, axes.figure.dpi_scale_trans)
        lettering.write(axes, 0, 1, text, size, whole=True, transform=place, color=colour)


def colour_bar(figure: "Figure", axes: Any) -> None:
    """The colours as they look over middle grey."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize

    colours = ListedColormap(_coloured(np.linspace(0, 1, 256), 0.7))
    bar = figure.colorbar(ScalarMappable(Normalize(0, 1), colours), cax=axes, ticks=[0, 0.5, 1])
    bar.set_ticklabels(["0", "half", "largest,\n≥ 2 · mean"])
    bar.set_label("attention weight", color=QUIET, size=9)
    bar.outline.set_visible(False)
    axes.tick_params(labelsize=8, length=0, labelcolor=QUIET)
