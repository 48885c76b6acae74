"""What if a date had not been seen? Series without some of their dates, and what each date alone is worth."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from saccade.config.recipe import Config
from saccade.data.series.dates import iso
from saccade.data.series.table import SeriesTable, joined, keeping
from saccade.errors import UserError
from saccade.tasks.task import Example, Question

if TYPE_CHECKING:
    from saccade.tasks.series_classes.task import SeriesClassTask

_MOST = 400  # dates of which each is removed in turn


class WorthFields(Config):
    without: str = Field("", max_length=20_000, description="dates that are left out of the series, with commas")


def removal(task: "SeriesClassTask") -> Question[SeriesTable]:
    def answer(example: Example[SeriesTable], fields: WorthFields) -> dict[str, Any]:
        return worth(task, example.content, fields.without)

    return Question("worth", "How much the probability falls without each of the dates", WorthFields, answer)


def labels_of(table: SeriesTable) -> NDArray[np.str_]:
    return np.array([iso(day) if table.has_dates else f"{day:g}" for day in table.days])


def left_out(table: SeriesTable, without: str | None) -> SeriesTable:
    """The one series without the dates that are named."""
    dates = [date.strip() for date in (without or "").split(",") if date.strip()]
    if not dates:
        return table
    labels = labels_of(table)
    unknown = [date for date in dates if date not in labels]
    if unknown:
        raise UserError(f"{unknown[0][:40]} is not a date of this series: they run from {labels[0]} to {labels[-1]}")
    is_kept = ~np.isin(labels, dates)
    if not is_kept.any():
        raise UserError("without all of its dates nothing is left of the series: keep one at least")
    return keeping(table, is_kept)


def worth(task: "SeriesClassTask", table: SeriesTable, without: str) -> dict[str, Any]:
    """For every date that is left: how much the probability of the answer falls when it is taken out too."""
    kept = left_out(table, without)
    count = len(kept.days)
    places = range(count) if 1 < count <= _MOST else ()
    series = [kept, *(keeping(kept, np.arange(count) != place) for place in places)]
    shares = np.exp(task.judged(task.preprocessed(joined(series)), np.arange(len(series))))
    best = int(shares[0].argmax())
    falls = (shares[0, best] - shares[1:, best]).round(5).tolist()
    return {"class": task.classes[best], "dates": labels_of(kept).tolist(), "worth": falls}
