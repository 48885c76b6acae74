"""One look at a text as running text: the words in reading order, each on paper as dark as its weight."""

import re
from collections.abc import Iterator, Sequence

import numpy as np

from saccade.views.axes import Tokens, labels
from saccade.views.figures.canvas import BAR, Block, Canvas
from saccade.views.figures.palette import INK, limit_of, scale_to
from saccade.views.lettering import Lettering
from saccade.views.maps import AttentionMap

_WIDTH = 9.0  # inches of a line
_SIZE, _LINE, _SPACE, _MARGIN = 11, 0.29, 0.07, 0.03
_HEADING = 0.3
_STRONG = 0.55  # share of the strongest colour from which letters are white
_CLOSES, _OPENS = re.compile(r"[.,;:!?)\]}…%”’]+|['’]\w{1,2}|n['’]t"), re.compile(r"[(\[{“‘#@$£]+")

Placed = tuple[str, float, float, float, float]  # the word, its left and top, its width, its weight


def is_running(attention: AttentionMap) -> bool:
    """Whether one alone looks at words."""
    is_text = isinstance(attention.keys, Tokens) and isinstance(attention.queries, Tokens)
    return is_text and attention.heads == len(attention.queries) == 1


def block(maps: Sequence[AttentionMap], lettering: Lettering, named: bool) -> Block:
    """Maps one below the other, at one scale. `named` says whether they need a heading to be told apart."""
    placed, tops, top = list[list[Placed]](), list[float](), 0.0
    for attention in maps:
        tops.append(top)
        top += _HEADING if named else 0.0
        words = list(_in_lines(attention, lettering, top))
        placed.append(words)
        top = words[-1][2] + _LINE + 0.25
    names = [attention.label if named else "" for attention in maps]
    limit = limit_of((attention.weights, len(attention.keys)) for attention in maps)
    width = max(left + wide for words in placed for _, left, _, wide, _ in words)

    def paint(canvas: Canvas, start: float) -> None:
        for name, place in zip(names, tops, strict=True):
            if name:
                canvas.write(0, start + place, name, 10, weight="bold")
        _paint(canvas, start, [word for words in placed for word in words], limit)
        canvas.colour_bar(width + 0.3, start + (_HEADING if named else 0.0), min(max(top - 0.25, 1.2), 3.2), limit)

    return Block(width + BAR, max(top - 0.25, 1.5), paint)


def _in_lines(attention: AttentionMap, lettering: Lettering, top: float) -> Iterator[Placed]:
    left, opened = 0.0, True
    for word, weight in zip(labels(attention.keys), attention.weights[0, 0].tolist(), strict=True):
        width = lettering.width([word], _SIZE) + 2 * _MARGIN
        gap = 0.0 if opened or _CLOSES.fullmatch(word) else _SPACE
        if left and left + gap + width > _WIDTH:
            left, gap, top = 0.0, 0.0, top + _LINE
        left += gap
        yield word, left, top, width, weight
        left, opened = left + width, _OPENS.fullmatch(word) is not None


def _paint(canvas: Canvas, start: float, words: Sequence[Placed], limit: float) -> None:
    from matplotlib.patches import Rectangle

    colours = scale_to(limit)
    first, last = min(word[2] for word in words), max(word[2] for word in words) + _LINE
    right = max(left + width for _, left, _, width, _ in words)
    axes = canvas.axes_at(0, start + first, right, last - first)
    axes.set(xlim=(0, right), ylim=(last, first))
    for word, left, top, width, weight in words:
        axes.add_patch(
            Rectangle(
                (left, top + 0.02),
                width,
                _LINE - 0.04,
                color=tuple(colours.to_rgba(np.array([weight]))[0]),
                linewidth=0,
            )
        )
        letters = "white" if weight > _STRONG * limit else INK
        canvas.lettering.write(
            axes, left + width / 2, top + _LINE / 2, word, _SIZE, color=letters, ha="center", va="center_baseline"
        )
