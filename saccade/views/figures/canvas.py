"""One figure made of blocks, one below the other, under a title. Places and sizes are inches from the top left corner.

Nothing here touches pyplot or other global state: pictures may be drawn in several threads at once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from saccade.views.figures.palette import FRAME, QUIET, scale_to
from saccade.views.lettering import Lettering

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BETWEEN = 0.4  # blocks
_TITLE_SIZE, _SUBTITLE_SIZE = 14, 9
_TITLE_LINE, _SUBTITLE_LINE = 0.28, 0.18
_LEAST_WIDE = 6.0  # inches before a title is wrapped
BAR = 0.95  # inches for a colour bar and its numbers


class Canvas:
    """A figure to paint on."""

    def __init__(self, width: float, height: float, lettering: Lettering):
        from matplotlib.figure import Figure

        self.width, self.height, self.lettering = width, height, lettering
        self.figure: Figure = Figure(figsize=(width, height), facecolor="white")

    def axes_at(self, left: float, top: float, width: float, height: float) -> Any:
        """Axes without ticks and frame."""
        bottom = 1 - (top + height) / self.height
        axes = self.figure.add_axes((left / self.width, bottom, width / self.width, height / self.height))
        axes.set(xticks=(), yticks=())
        axes.spines[:].set_visible(False)
        return axes

    def write(self, left: float, top: float, text: str, size: float, **options: Any) -> None:
        """A line whose upper left corner is there, written whole."""
        place = (left / self.width, 1 - top / self.height)
        self.lettering.write(self.figure, *place, text, size, whole=True, **{"va": "top", **options})

    def colour_bar(self, left: float, top: float, height: float, limit: float) -> None:
        """The legend of every picture: what weight has which colour."""
        axes = self.axes_at(left, top, 0.13, height)
        bar = self.figure.colorbar(scale_to(limit), cax=axes)
        bar.set_label("attention weight", color=QUIET, size=9)
        bar.outline.set_visible(False)
        axes.tick_params(labelsize=8, color=FRAME, labelcolor=QUIET)


@dataclass(frozen=True)
class Block:
    """Something of a known size that paints itself at a distance from the top of the canvas."""

    width: float
    height: float
    paint: Callable[[Canvas, float], None]


def stacked(blocks: Sequence[Block], title: str, subtitle: str, lettering: Lettering) -> "Figure":
    width = max(block.width for block in blocks)
    room = max(width, _LEAST_WIDE)
    title, subtitle = lettering.wrapped(title, _TITLE_SIZE, room), lettering.wrapped(subtitle, _SUBTITLE_SIZE, room)
    titles, subtitles = (_TITLE_LINE * _lines(title), _SUBTITLE_LINE * _lines(subtitle))
    top = titles + subtitles + (0.17 if title or subtitle else 0.0)
    height = top + sum(block.height for block in blocks) + _BETWEEN * (len(blocks) - 1)
    canvas = Canvas(width, height, lettering)
    if title:
        canvas.write(0, 0, title, _TITLE_SIZE, weight="bold")
    if subtitle:
        canvas.write(0, titles + 0.02, subtitle, _SUBTITLE_SIZE, color=QUIET)
    for block in blocks:
        block.paint(canvas, top)
        top += block.height + _BETWEEN
    return canvas.figure


def _lines(text: str) -> int:
    return len(text.splitlines())
