"""Panels of one picture on shelves: the picture under colours that say how much weight a place gets, and where every panel goes.

The picture turns pale and grey; colour, from violet to yellow in even steps for the eye, says how much weight a place gets, each cell of
the model by itself: smoothing would show weight where there is none. Places and sizes are inches from the top left corner.

Nothing here touches pyplot or other global state: pictures may be drawn in several threads at once.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from saccade.data.images.decoding import Pixels
from saccade.views.axes import Grid
from saccade.views.lettering import INK, QUIET, Lettering

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = "plasma"  # matplotlib's; its lightness grows evenly
_ACROSS = 9.0  # inches of panels side by side before they wrap
_GAP, _ABOVE, _HEADING = 0.16, 0.4, 0.2  # inches between panels, for the two lines above each, and for a heading
_TITLE, _NOTE = 8.5, 7.5  # font sizes above a panel
_DETAIL = 384  # pixels on the longer side of a panel

Mark = tuple[float, float, float, float]  # left, top, width, height as shares of the picture


@dataclass(frozen=True)
class Panel:
    image: NDArray[np.float64]  # (rows, columns, 3), 0 to 1
    title: str
    note: str = ""
    mark: Mark | None = None  # a cell to frame


@dataclass(frozen=True)
class Shelf:
    """Panels of one size under one heading."""

    heading: str
    size: float
    panels: list[Panel]


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
    panels = [(item, place) for item, place in places if isinstance(item, Panel)]
    _, (_, top, _, down) = panels[0]
    right = max(left + max(across, _words(panel, lettering)) for panel, (left, _, across, _) in panels[:beside])
    bar = ((right + 0.25) / width, 1 - (top + down) / height, 0.13 / width, down / height)
    colour_bar(figure, figure.add_axes(bar))
    return figure


def printed(figure: "Figure", **options: Any) -> bytes:
    content = BytesIO()
    figure.savefig(content, bbox_inches="tight", pad_inches=0.2, **options)
    return content.getvalue()


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
        pitch = max(across, *(_words(panel, lettering) for panel in shelf.panels)) + _GAP
        many = max(1, min(len(shelf.panels), math.floor((_ACROSS + _GAP) / pitch)))
        for start in range(0, len(shelf.panels), many):
            for index, panel in enumerate(shelf.panels[start : start + many]):
                places.append((panel, (index * pitch, top + _ABOVE, across, down)))
            top += _ABOVE + down + _GAP
    return places


def _words(panel: Panel, lettering: Lettering) -> float:
    """The width of what stands above a panel, in inches."""
    return max(lettering.width([panel.title], _TITLE, whole=True), lettering.width([panel.note], _NOTE, whole=True))


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
    for text, up, size, colour in ((panel.title, 0.2, _TITLE, INK), (panel.note, 0.06, _NOTE, QUIET)):
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
