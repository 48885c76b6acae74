"""One look at one example: what the model answered, what it looked at, and the attention maps in between.

    view = run.look("le chat noir")
    view.save("alignment.pdf")          # .png .svg .pdf .html .json by the ending; a notebook shows a view by itself

A task makes a View; a View knows no task. It draws itself by the axes of its maps.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from saccade.errors import UserError
from saccade.views.axes import Grid, data_address
from saccade.views.beliefs import Beliefs
from saccade.views.chart import Chart
from saccade.views.document import write_by_ending
from saccade.views.maps import AttentionMap

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LINE = 100  # letters of a reference
_MOST_WEIGHTS = (
    1_000_000  # that a file or a page may hold before maps between cells get only the rows that are shown first
)
_PAGE_DIGITS = 5  # of each weight in a page, which shows two; .json files have them all


@dataclass(frozen=True)
class Word:
    """A word of an answer and how probable it was."""

    text: str
    probability: float


@dataclass(frozen=True, eq=False)
class View:
    title: str  # the line above everything: the sentence, or the class with its probability
    maps: tuple[AttentionMap, ...]  # all that were recorded, in the model's order; a mean of them may come first
    text: str = ""  # the answer in one line
    answer: Mapping[str, Any] = field(default_factory=dict)  # the answer as JSON values
    source: str = ""  # the name of the picture, where the title does not hold what was looked at
    subtitle: str = ""  # remarks
    truth: str | None = None  # the reference, where it is known
    picture: NDArray[np.uint8] | None = None  # (rows, columns, channels): what the cells of grids lie over
    words: tuple[Word, ...] = ()  # of an answer that was written word by word
    chart: Chart | None = None  # of an answer that is a course over time
    seen_from: Mapping[str, int] = field(default_factory=dict)  # by the name of a map: the query that is shown first
    summary: tuple[AttentionMap, ...] = ()  # what a picture shows instead of `maps`, where those are too many
    first: int = 0  # the map that a page opens on
    hint: str = ""  # what a picture leaves out, and how to see it
    beliefs: Beliefs | None = None  # what was expected at each position, as each layer would say
    details: Mapping[str, Any] = field(default_factory=dict)  # further JSON values for the task's own part of the page

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not self.maps and self.chart is None

    @property
    def line_below_title(self) -> str:
        """Where the example came from, its reference, and remarks."""
        truth = f"reference: {shorten(self.truth, _LINE, placeholder=' …')}" if self.truth else ""
        return " · ".join(part for part in (Path(self.source).name, truth, self.subtitle) if part)

    def rows(self) -> tuple[AttentionMap, ...]:
        """Every map as it is shown first: where cells of a picture look, from one of them or from their mean."""
        return tuple(
            attention.from_query(self.seen_from.get(attention.name))
            if isinstance(attention.queries, Grid)
            else attention
            for attention in self.maps
        )

    def to_dict(self, digits: int | None = None, most: int = _MOST_WEIGHTS) -> dict[str, Any]:
        """JSON values: what `.json` files, the API and pages hold. With `digits`, weights are rounded. Of maps between cells that are more
        than `most` weights together only the rows that are shown first."""
        is_light = sum(attention.weights.size for attention in self.maps) <= most
        maps, starts = (self.maps, self.seen_from) if is_light else (self.rows(), {})
        remark = "" if is_light else "cells look from one place only: too many weights for a file"
        return {
            "title": self.title,
            "subtitle": " · ".join(part for part in (self.line_below_title, remark) if part),
            "text": self.text,
            "answer": dict(self.answer),
            "truth": self.truth,
            "picture": None if self.picture is None else picture_to_dict(self.picture),
            "chart": None if self.chart is None else self.chart.to_dict(),
            "words": [{"text": word.text, "probability": word.probability} for word in self.words],
            "maps": [{**attention.to_dict(digits), "from": starts.get(attention.name)} for attention in maps],
            "first": self.first,
            **({} if self.beliefs is None else {"beliefs": self.beliefs.to_dict()}),
            **self.details,
        }

    # Drawing

    def figure(self) -> "Figure":
        from saccade.views.figures import draw

        if self.is_empty:
            raise UserError(self.hint or "There is no attention map to draw: record at least one first.")
        return draw(self)

    def png(self) -> bytes:
        from saccade.views.figures import save

        return save.png(self.figure())

    def svg(self) -> bytes:
        from saccade.views.figures import save

        return save.svg(self.figure(), self.title)

    def pdf(self) -> bytes:
        from saccade.views.figures import save

        return save.pdf(self.figure(), self.title)

    def html(self) -> str:
        from saccade.views.page import document

        return document(self.to_dict(digits=_PAGE_DIGITS))

    def save(self, path: str | Path) -> None:
        """Write a picture (.png, .svg, .pdf), a page (.html) or data (.json). Missing directories are made."""
        if self.is_empty:
            raise UserError(
                self.hint or f"There is no attention map to write to {str(path)!r}: record at least one first."
            )
        write_by_ending(path, self.png, self.svg, self.pdf, self.html, self.to_dict)

    def _repr_png_(self) -> bytes | None:
        return None if self.is_empty else self.png()

    def _repr_html_(self) -> str:
        """The page in a frame of its own, so that its styles and scripts cannot meet the notebook's."""
        if self.is_empty:
            return f"<p>{escape(self.title)}: {escape(self.text)}</p><p>{escape(self.hint)}</p>"
        height = min(900, 420 + 28 * max((len(attention.queries) for attention in self.rows()), default=10))
        return (
            f'<iframe srcdoc="{escape(self.html())}" sandbox="allow-scripts" title="{escape(self.title)}" '
            f'style="width: 100%; height: {height}px; border: 0"></iframe>'
        )


def picture_to_dict(pixels: NDArray[np.uint8]) -> dict[str, Any]:
    """Pixels (rows, columns, channels) as a page gets them."""
    rows, columns = pixels.shape[:2]
    return {"rows": rows, "columns": columns, "address": data_address(pixels)}
