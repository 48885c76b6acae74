"""What was expected at every position as a table: the likeliest choices as bars, and what each layer would have said, as dark as it was
sure. Texts go on in further tables below. Places and sizes are inches from the top left corner."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from saccade.views.axes import Tokens, labels
from saccade.views.beliefs import Belief, Beliefs
from saccade.views.figures.canvas import Block, Canvas
from saccade.views.figures.palette import COLOURS, INK, QUIET, number, scale_to

if TYPE_CHECKING:
    from saccade.views.lettering import Lettering

_ACROSS = 14  # positions of a table
_TABLES = 4  # of the end of a long text
_BARS = 4  # choices
_WIDE, _HIGH = 0.86, 0.24  # of a cell
_LETTERS = 9  # of a token in a cell
_STRONG = 0.55  # from here on letters are white
_AFTER, _AT = "expected after each token", "expected at each token"
SPOKEN = f"{_AFTER}{_AT}…%"


def block(beliefs: Beliefs, lettering: "Lettering") -> Block:
    count = len(beliefs.positions)
    first = max(0, count - _ACROSS * _TABLES)
    starts = range(first, count, _ACROSS)
    rows = min(_BARS, max(len(belief.choices) for belief in beliefs.final)) + (
        len(beliefs.layers) if len(beliefs.layers) > 1 else 0
    )
    beside = lettering.width([*_names(beliefs), _AFTER], 9) + 0.15
    high = _HIGH * (rows + 1) + 0.3
    width = beside + _WIDE * min(_ACROSS, count) + 0.1

    def paint(canvas: Canvas, down: float) -> None:
        for table, start in enumerate(starts):
            _paint(canvas, beliefs, range(start, min(start + _ACROSS, count)), beside, down + table * high)

    return Block(width, high * len(starts), paint)


def texts(beliefs: Beliefs) -> Iterator[str]:
    """All that is written, for the choice of fonts."""
    yield from (*beliefs.positions, *beliefs.layers)
    for row in beliefs.table:
        for belief in row:
            yield from (text for text, _ in belief.choices[:_BARS])


def _names(beliefs: Beliefs) -> list[str]:
    return list(beliefs.layers) if len(beliefs.layers) > 1 else []


def _paint(canvas: Canvas, beliefs: Beliefs, places: range, left: float, top: float) -> None:
    bars = min(_BARS, max(len(belief.choices) for belief in beliefs.final))
    layers = list(zip(_names(beliefs), beliefs.table, strict=False))[::-1]
    axes = canvas.axes_at(left, top, _WIDE * len(places), _HIGH * (1 + bars + len(layers)))
    axes.set(xlim=(0, len(places)), ylim=(1 + bars + len(layers), 0))
    canvas.write(0, top + 1.2 * _HIGH, _AT if beliefs.at_position else _AFTER, 9, color=QUIET)
    names = labels(Tokens(beliefs.positions))
    for column, place in enumerate(places):
        _write(canvas, axes, column, 0, names[place], weight="bold")
        for row, choice in enumerate(beliefs.final[place].choices[:bars]):
            _bar(canvas, axes, column, 1 + row, choice)
    for row, (name, table) in enumerate(layers, start=1 + bars):
        canvas.write(0, top + (row + 0.2) * _HIGH, name, 9, color=QUIET)
        for column, place in enumerate(places):
            _cell(canvas, axes, column, row, table[place])


def _bar(canvas: Canvas, axes: Any, column: int, row: int, choice: tuple[str, float]) -> None:
    from matplotlib.patches import Rectangle

    text, share = choice
    axes.add_patch(Rectangle((column + 0.02, row + 0.1), 0.96 * share, 0.8, color=COLOURS[2], linewidth=0))
    _write(canvas, axes, column, row, f"{text} {number(share)}")


def _cell(canvas: Canvas, axes: Any, column: int, row: int, belief: Belief) -> None:
    from matplotlib.patches import Rectangle

    text, share = belief.choices[0]
    axes.add_patch(
        Rectangle((column + 0.02, row + 0.05), 0.96, 0.9, color=scale_to(1.0).to_rgba(np.array(share)), linewidth=0)
    )
    _write(canvas, axes, column, row, text, color="white" if share > _STRONG else INK)


def _write(canvas: Canvas, axes: Any, column: int, row: int, text: str, **options: Any) -> None:
    shown = text if len(text) <= _LETTERS + 4 else text[: _LETTERS + 3] + "…"
    centred: dict[str, Any] = {"ha": "left", "va": "center", **options}
    canvas.lettering.write(axes, column + 0.06, row + 0.5, shown, 8.5, **centred)
