"""Views as figures: each map is drawn by what stands along its two sides."""

from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from saccade.views.axes import Grid, Steps, labels
from saccade.views.figures import matrix, overlay, steps
from saccade.views.figures.canvas import Block, stacked
from saccade.views.figures.layout import is_heat
from saccade.views.lettering import Lettering
from saccade.views.maps import AttentionMap

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from saccade.views.view import View

_SPOKEN = f"0123456789.:,()≥·→…□{overlay.SPOKEN}{steps.SPOKEN} attention weight average of heads layers"


def draw(view: "View") -> "Figure":
    """All that a picture shows of a view: its summary if it has one, else its maps."""
    shown = view.summary or view.maps
    lettering = Lettering(_texts(view))
    blocks: list[Block] = []
    for kind, group in groupby(shown, key=lambda attention: _kind(view, attention)):
        maps = list(group)
        if kind == "steps":
            blocks += [steps.block(view, attention, lettering) for attention in maps]
        elif kind == "overlay":
            blocks.append(overlay.block(view, maps, lettering))
        else:
            blocks.append(matrix.block(maps, lettering, len(shown) > 1, view.title))
    return stacked(blocks, view.title, view.line_below_title, lettering)


def _kind(view: "View", attention: AttentionMap) -> str:
    if view.picture is not None and isinstance(attention.keys, Grid):
        is_path = isinstance(attention.queries, Steps) and attention.queries.windows
        return "steps" if is_path else "overlay"
    return "heat" if is_heat(attention) else "matrix"


def _texts(view: "View") -> Iterator[str]:
    """Everything that is written, for the choice of fonts."""
    yield from (_SPOKEN, view.title, view.line_below_title)
    for attention in (*view.maps, *view.summary):
        yield from (attention.label, attention.query_title, attention.key_title)
        for axis in (attention.queries, attention.keys):
            yield from axis.extra if isinstance(axis, Grid) else labels(axis)
            yield from axis.classes if isinstance(axis, Steps) else ()
