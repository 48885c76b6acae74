"""Views as figures: each map is drawn by what stands along its two sides."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from saccade.views.axes import Axis, Dates, Grid, Objects, Steps, labels
from saccade.views.figures import beliefs, boxes, chart, matrix, overlay, running, steps
from saccade.views.figures.canvas import Block, stacked
from saccade.views.figures.layout import is_heat
from saccade.views.lettering import Lettering
from saccade.views.maps import AttentionMap

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from saccade.views.view import View

_MOST_PICTURES = 16  # keys for which the picture is drawn once each; more become a matrix
_SPOKEN = f"0123456789.:,()≥·→…□{overlay.SPOKEN}{steps.SPOKEN}{beliefs.SPOKEN}{chart.SPOKEN} attention weight average of heads layers"


def draw(view: "View") -> "Figure":
    """All that a picture shows of a view: its summary if it has one, else its maps."""
    shown = view.summary or view.maps
    lettering = Lettering(_texts(view))
    blocks: list[Block] = [] if view.chart is None else [chart.block(view.chart, lettering)]
    for kind, group in groupby(shown, key=lambda attention: _kind(view, attention)):
        maps = list(group)
        if kind == "steps":
            blocks += [steps.block(view, axis, lettering) for axis in _axes(maps) if isinstance(axis, Steps)]
        elif kind == "overlay":
            blocks.append(overlay.block(view, maps, lettering))
        elif kind == "running":
            blocks.append(running.block(maps, lettering, len(shown) > 1))
        else:
            blocks += _beside(view, maps, lettering)
            blocks.append(matrix.block(maps, lettering, len(shown) > 1, view.title))
    if view.beliefs is not None:
        blocks.append(beliefs.block(view.beliefs, lettering))
    return stacked(blocks, view.title, view.line_below_title, lettering)


def _kind(view: "View", attention: AttentionMap) -> str:
    queries, keys = attention.queries, attention.keys
    if view.picture is not None and isinstance(keys, Grid):
        return "steps" if isinstance(queries, Steps) and queries.windows else "overlay"
    if view.picture is not None and isinstance(queries, Grid) and len(keys) <= _MOST_PICTURES:
        return "overlay"
    if running.is_running(attention):
        return "running"
    return "heat" if is_heat(attention) else "matrix"


def _beside(view: "View", maps: Sequence[AttentionMap], lettering: Lettering) -> Iterator[Block]:
    """What the numbers along the edges of matrices stand for: boxes on the picture, windows of steps."""
    for axis in _axes(maps) if view.picture is not None else ():
        if isinstance(axis, Objects):
            yield boxes.block(view, axis, lettering)
        elif isinstance(axis, Steps) and axis.windows:
            yield steps.block(view, axis, lettering)


def _axes(maps: Sequence[AttentionMap]) -> Iterator[Axis]:
    """Every axis once."""
    known: list[Axis] = []
    for axis in (axis for attention in maps for axis in (attention.queries, attention.keys)):
        if axis not in known:
            known.append(axis)
            yield axis


def _texts(view: "View") -> Iterator[str]:
    """Everything that is written, for the choice of fonts."""
    yield from (_SPOKEN, view.title, view.line_below_title)
    if view.beliefs is not None:
        yield from beliefs.texts(view.beliefs)
    if view.chart is not None:
        yield from (*view.chart.labels, *(course.name for course in view.chart.courses))
    maps = (*view.maps, *view.summary)
    for attention in maps:
        yield from (attention.label, attention.query_title, attention.key_title)
    for axis in _axes(maps):
        yield from axis.extra if isinstance(axis, Grid) else labels(axis)
        yield from axis.classes if isinstance(axis, Steps) else ()
        yield from axis.series if isinstance(axis, Dates) else ()
