"""What the model looked at while it named the class of one series: dates, with what was measured on them."""

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from saccade.attention import Attend, record_attention
from saccade.data.series.clouds import CLOUDED
from saccade.data.series.dates import iso
from saccade.data.series.table import SeriesTable
from saccade.errors import UserError
from saccade.tasks.series_classes.options import SeriesOptions
from saccade.tasks.series_classes.removing import left_out
from saccade.tasks.task import Example
from saccade.views.axes import Axis, Dates
from saccade.views.maps import AttentionMap
from saccade.views.view import View

if TYPE_CHECKING:
    from saccade.tasks.series_classes.task import SeriesClassTask

NO_ATTENTION = "this model has no attention to look at: train one that attends, such as ltae or series_transformer"
_LARGEST = 4_000_000  # weights of a layer that are recorded


def attentions(model: nn.Module) -> list[str]:
    return [name for name, module in model.named_modules() if isinstance(module, Attend)]


@torch.no_grad()
def look(task: "SeriesClassTask", example: Example[SeriesTable], options: SeriesOptions) -> View:
    only = options.only
    (answer,) = task.answers([example], SeriesOptions(best=None, without=options.without))
    table = task.preprocessed(left_out(example.content, options.without))
    names = attentions(task.model)
    chosen = [
        name
        for name in names
        if fnmatchcase(name, only or "*") and (name.startswith("pool") or len(table.days) ** 2 < _LARGEST)
    ]
    if names and not chosen:
        raise UserError(f"no attention of this model matches {only!r}: it has {', '.join(names)}")
    maps = _recorded(task, table, chosen)
    others = ", ".join(
        f"{name} {share:.2f}" for name, share in list(zip(answer.classes, answer.probabilities, strict=True))[1:4]
    )
    title = f"{answer.text} (probability {answer.probability:.2f})"
    # The attention that the class is read from says most: it comes first in a picture.
    pools = tuple(attention for attention in maps if attention.name.startswith("pool"))
    return View(
        title,
        maps=tuple(maps),
        text=title,
        answer=answer.to_dict(),
        source=example.content.ids[0] if example.name.startswith(("valid:", "test:")) else example.name,
        subtitle=" · ".join(part for part in (f"else {others}" if others else "", *_remarks(table, options)) if part),
        truth=example.truth,
        summary=pools if pools and only is None else (),
        hint=_hint(names, pools, only),
        first=maps.index(pools[0]) if pools else 0,
    )


def _remarks(table: SeriesTable, options: SeriesOptions) -> list[str]:
    clouded = "" if table.clouds is None or not (table.clouds >= CLOUDED).any() else "grey: clouded"
    return [clouded, f"without {options.without}" if options.without else ""]


def _hint(names: list[str], pools: tuple[AttentionMap, ...], only: str | None) -> str:
    if not names:
        return NO_ATTENTION
    if not pools or only is not None or len(names) < 2:
        return ""
    return f"shows where the class is read from: --only '*' draws all {len(names)} attentions"


def _recorded(task: "SeriesClassTask", table: SeriesTable, names: list[str]) -> list[AttentionMap]:
    if not names:
        return []
    axes = {"dates": dates_of(table)}
    task.model.eval()
    with record_attention(task.model, names) as recorded:
        task.model(task.series.batch(np.arange(1), table).to(task.device))
    model: Any = task.model

    def axes_of(name: str) -> tuple[Axis, Axis]:
        both: tuple[Axis, Axis] = model.attention_axes(name, axes)
        return both

    return [
        AttentionMap(name, recorded.joined(name)[0], *axes_of(name), query_title="looks from", key_title="date")
        for name in recorded
    ]


def dates_of(table: SeriesTable) -> Dates:
    """The dates of one series, with every band, and which of them are clouded."""
    labels = tuple(iso(day) if table.has_dates else f"{day:g}" for day in table.days)
    series = {
        band: tuple(None if np.isnan(value) else round(float(value), 5) for value in table.values[:, column])
        for column, band in enumerate(table.bands)
    }
    marked = () if table.clouds is None else tuple(bool(cloud >= CLOUDED) for cloud in table.clouds)
    return Dates(labels, series, marked)
