"""What if a date had not been seen? The answer without some of the dates, and what each date alone is worth."""

from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from saccade.config.recipe import Config
from saccade.data.series.dates import iso
from saccade.data.series.table import SeriesTable, joined, keeping
from saccade.errors import UserError
from saccade.tasks.series_classes.options import SeriesOptions
from saccade.tasks.task import Example, Question

if TYPE_CHECKING:
    from saccade.tasks.series_classes.task import SeriesClassTask

_MOST = 400  # dates of which each is removed in turn


class RemovalFields(Config):
    without: list[str] = Field(
        default_factory=list, max_length=_MOST, description="dates that are taken out of the series, as they are shown"
    )


def removal(task: "SeriesClassTask") -> Question[SeriesTable]:
    def answer(example: Example[SeriesTable], fields: RemovalFields) -> dict[str, Any]:
        return without(task, example, fields.without)

    return Question(
        "removal", "The answer without some dates, and what each of the others is worth", RemovalFields, answer
    )


def without(task: "SeriesClassTask", example: Example[SeriesTable], dates: list[str]) -> dict[str, Any]:
    """The answer before and after, and for every date that is left how much the probability of the first answer falls without it."""
    table = example.content
    labels = np.array([iso(day) if table.has_dates else f"{day:g}" for day in table.days])
    unknown = [date for date in dates if date not in labels]
    if unknown:
        raise UserError(f"{unknown[0][:40]} is not a date of this series: they run from {labels[0]} to {labels[-1]}")
    is_kept = ~np.isin(labels, dates)
    if not is_kept.any():
        raise UserError("without all of its dates nothing is left of the series: keep one at least")
    kept = keeping(table, is_kept)
    singles = [kept] + [
        keeping(kept, np.arange(len(kept.days)) != place)
        for place in range(len(kept.days))
        if 1 < len(kept.days) <= _MOST
    ]
    both = [Example(table), Example(kept)]
    before, after = task.answers(both, SeriesOptions(best=None))
    shares = np.exp(task.judged(task.preprocessed(joined(singles)), np.arange(len(singles))))
    best = int(shares[0].argmax())
    worth = (shares[0, best] - shares[1:, best]).round(5).tolist()
    return {
        "before": before.to_dict(),
        "after": after.to_dict(),
        "dates": labels[is_kept].tolist(),
        "worth": worth,
        "class": task.classes[best],
    }
