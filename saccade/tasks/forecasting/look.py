"""What did the model look at to say this? The forecast as a course over time, and its attention between variables or between dates."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from saccade.data.series.timeline import Timeline
from saccade.errors import UserError
from saccade.tasks.forecasting.attending import axes_of, record, rows_of_targets
from saccade.tasks.forecasting.input import Excerpt
from saccade.tasks.forecasting.options import ForecastOptions
from saccade.tasks.task import Example
from saccade.views.axes import Axis, Dates, Variables
from saccade.views.chart import Chart, Course
from saccade.views.maps import AttentionMap
from saccade.views.view import View

if TYPE_CHECKING:
    from saccade.tasks.forecasting.task import Forecast, ForecastTask

_MOST = 4  # maps of dates in a picture
_SHORTEST = 2  # rows that make no course
NO_ATTENTION = "this model has no attention to look at: only its forecast is drawn; itransformer and patchtst attend"


def look(task: "ForecastTask", example: Example[Excerpt], options: ForecastOptions) -> View:
    part, values = task.readable(example)
    (answer,) = task.answers([example], ForecastOptions())
    maps = tuple(_maps(task, part, values, options.only)) if task.attends else ()
    if options.only is not None and not maps:
        names = ", ".join(axes_of(task)) or "none"
        raise UserError(f"no attention of this model matches {options.only!r}: it has {names}")
    summary = _summary(task, maps) if options.only is None else ()
    told = ", ".join(task.names[:4]) + (" …" if len(task.names) > 4 else "")
    when = f"of {answer.labels[0]}" if len(answer.labels) == 1 else f"from {answer.labels[0]} to {answer.labels[-1]}"
    return View(
        title=f"{told} {when}",
        maps=maps,
        text=_in_a_line(answer),
        answer=answer.to_dict(),
        source=example.name,
        chart=_chart(task, part, answer, example.content.after) if len(part) > _SHORTEST else None,
        truth=example.truth,
        summary=summary,
        hint=_hint(maps, summary) if maps else NO_ATTENTION,
    )


def _summary(task: "ForecastTask", maps: tuple[AttentionMap, ...]) -> tuple[AttentionMap, ...]:
    """Of maps of dates, which each target has in each layer: the last layer's of the first targets, their heads averaged."""
    if not maps or not isinstance(maps[0].queries, Dates) or len(maps) <= 2:
        return ()
    return tuple(attention.averaged() for attention in maps[-len(task.targets) :][:_MOST])


def _hint(maps: tuple[AttentionMap, ...], summary: tuple[AttentionMap, ...]) -> str:
    if not summary:
        return ""
    return (
        f"shows {len(summary)} averages of the last layer: --only '*' draws all {len(maps)} maps, and .html holds them"
    )


def _in_a_line(answer: "Forecast") -> str:
    first = zip(answer.variables[:4], answer.values[-1], strict=False)
    return f"{answer.labels[-1]}: " + ", ".join(f"{name} {value:.4g}" for name, value in first)


def _chart(task: "ForecastTask", part: Timeline, answer: "Forecast", after: NDArray[Any] | None) -> Chart:
    """Of the same day, what is known of a target ends the day before."""
    end = len(part) - int(task.windows.same_day)
    courses = []
    for number, target in enumerate(task.targets):
        courses.append(
            Course(
                task.names[number],
                _numbers(part.values[:end, target]),
                [row[number] for row in answer.values],
                [row[number] for row in answer.low or ()],
                [row[number] for row in answer.high or ()],
                () if after is None else _numbers(after[:, target]),
            )
        )
    return Chart((*part.labels(slice(0, end)), *answer.labels), tuple(courses))


def _maps(task: "ForecastTask", part: Timeline, values: Tensor, only: str | None) -> Iterator[AttentionMap]:
    labels = part.labels(slice(None))
    recorded = record(task, values, values[:, :1])
    for name, (queries, keys) in axes_of(task, labels).items():
        if not fnmatchcase(name, only or "*"):
            continue
        if isinstance(queries, Variables):
            rows = rows_of_targets(task, recorded[name])[0]  # (H, K, V)
            yield AttentionMap(name, rows, Variables(task.names), keys, "forecast of", "looks at")
        else:
            yield from _of_each_target(task, part, name, recorded[name])


def _of_each_target(task: "ForecastTask", part: Timeline, name: str, weights: NDArray[Any]) -> Iterator[AttentionMap]:
    """Every variable was read alone: a map of the dates for each target (weights: (V, H, queries, keys))."""
    for number, target in enumerate(task.targets):
        series = {task.names[number]: _numbers(part.values[:, target])}
        axes: dict[str, Axis] = {"dates": Dates(part.labels(slice(None)), series)}
        queries, keys = task.model.attention_axes(name, axes)  # type: ignore[operator]
        title = name if len(task.targets) == 1 else f"{name}, {task.names[number]}"
        yield AttentionMap(title, weights[target], queries, keys, "patch from", "looks at the patch from")


def _numbers(values: NDArray[Any]) -> tuple[float | None, ...]:
    return tuple(float(value) if np.isfinite(value) else None for value in values)
