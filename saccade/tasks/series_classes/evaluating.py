"""How good a run's classes are, on its own held-out series or on another table; and how much it looks at clouds."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from saccade.data.series.files import read_series
from saccade.data.series.splits import Numbers
from saccade.data.series.table import SeriesTable, measured_only, with_bands
from saccade.data.splits import SplitName
from saccade.errors import UserError
from saccade.files import write_text
from saccade.metrics.classes import ClassScores, cohen_kappa, score_classes
from saccade.metrics.clouds import CloudScores

if TYPE_CHECKING:
    from saccade.tasks.series_classes.options import SeriesOptions
    from saccade.tasks.series_classes.task import SeriesClassTask


@dataclass(frozen=True)
class SeriesScores:
    """The scores of a classifier in the words of series, kappa first, and attention on clouds where the table says what is clouded."""

    classes: ClassScores
    clouds: CloudScores | None = None

    @property
    def kappa(self) -> float:
        return cohen_kappa(np.array(self.classes.confusion))

    def rows(self) -> list[tuple[str, str]]:
        scores = self.classes
        shown = [
            ("series", f"{scores.images:,}"),
            ("kappa", f"{self.kappa:.4f}"),
            ("accuracy", f"{scores.accuracy:.2f} %"),
            ("F1, mean of classes", f"{scores.f1:.2f} %"),
            ("cross-entropy", f"{scores.cross_entropy:.4f}"),
        ]
        shown += [] if self.clouds is None else self.clouds.rows()
        return shown + [(f"{truth} taken for {other}", f"{count:,}") for truth, other, count in scores.worst()]

    def columns(self) -> list[tuple[str, list[str]]]:
        return [("series" if name == "images" else name, cells) for name, cells in self.classes.columns()]

    def compared(self) -> dict[str, float]:
        scores = self.classes
        compared = {"kappa": self.kappa, "accuracy %": scores.accuracy, "F1 %": scores.f1}
        return compared if self.clouds is None else compared | {"clouds / chance": self.clouds.ratio}

    def to_dict(self) -> dict[str, Any]:
        values = self.classes.to_dict()
        values = {"series": values.pop("images"), "kappa": self.kappa, **values}
        return values if self.clouds is None else {**values, "clouds": self.clouds.to_dict()}


def evaluate(task: "SeriesClassTask", split: SplitName, options: "SeriesOptions") -> SeriesScores:
    from saccade.views import confusion
    from saccade.views.document import PICTURES, require_ending

    if options.confusion is not None:
        require_ending(options.confusion, PICTURES)
    if options.data is None:
        table, numbers, truths = (
            task.series.table,
            task.series.splits[split],
            task.series.truths[task.series.splits[split]],
        )
    else:
        table, numbers, truths = _of_file(task, options)
    names = [table.ids[number] for number in numbers]
    scores = score_classes(task.judged(table, numbers), truths, task.classes, names)
    clouds = None
    if table.clouds is not None or options.seasons is not None:
        from saccade.tasks.series_classes.seasons import cloud_scores, draw_seasons

        clouds = cloud_scores(task, table, numbers)
        if options.seasons is not None:
            draw_seasons(task, table, numbers, truths, options.seasons)
    if options.confusion is not None:
        confusion.save(scores.confusion, scores.classes, options.confusion)
    if options.mistakes is not None:
        write_text(options.mistakes, "\n".join([*scores.mistake_lines(), ""]))
    return SeriesScores(scores, clouds)


def _of_file(task: "SeriesClassTask", options: "SeriesOptions") -> tuple[SeriesTable, Numbers, Any]:
    data = task.recipe.data
    path = options.data
    assert path is not None
    if not path.is_file():
        raise UserError(f"--data {path}: there is no such file")
    own = task.series.table
    named = replace(data.named, bands=own.bands, group=None, x=None, y=None, to_predict=True)
    table = with_bands(read_series(path, named, lambda _: None, data.samples), own.bands, str(path))
    table = task.preprocessed(measured_only(table, str(path), lambda _: None, data.longest))
    if table.labels is None:
        raise UserError(
            f"{path} has no label for every series, so there is nothing to judge by: give each one, or use `saccade predict`"
        )
    return table, np.arange(len(table)), _numbers_of(table.labels, task.classes, str(path))


def _numbers_of(labels: Sequence[str], classes: Sequence[str], origin: str) -> Any:
    places = {name: number for number, name in enumerate(classes)}
    unknown = sorted(set(labels) - set(classes))
    if unknown:
        raise UserError(
            f"{origin} has series of the class {unknown[0]}; the classes of this run are {', '.join(classes[:20])}"
        )
    return np.array([places[label] for label in labels], np.int64)
