"""The series of a run in its directory: arrays that are read where they lie (never unpickled), names and scales as JSON."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saccade.data.series.batch import SeriesBatch, SeriesShape, collate
from saccade.data.series.calendar import Calendar
from saccade.data.series.splits import Numbers
from saccade.data.series.table import SeriesTable
from saccade.data.splits import SPLITS, SplitName
from saccade.errors import UserError
from saccade.files import replacing_directory
from saccade.stored import Stored, map_array, read_json

FOLDER = "series"
MOST_DAYS = 512  # of the grid that models of a fixed length read
_LARGEST_HEADER = 1 << 30  # bytes: names and splits of millions of series
_ARRAYS = {"starts": np.int64, "days": np.float64, "values": np.float32, "clouds": np.float32}


@dataclass(frozen=True)
class Scaling:
    """(value - mean) / deviation of each band, fitted on what is trained on."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @classmethod
    def of(cls, values: NDArray[np.float32]) -> "Scaling":
        measured = np.isfinite(values)
        counts = np.maximum(measured.sum(0), 1)
        mean = np.where(measured, values, 0).sum(0, dtype=np.float64) / counts
        square = np.where(measured, (values - mean) ** 2, 0).sum(0, dtype=np.float64) / counts
        deviation = np.sqrt(square)
        return cls(tuple(mean.tolist()), tuple(np.where(deviation > 1e-12, deviation, 1.0).tolist()))

    def __call__(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        scaled: NDArray[np.float32] = ((values - np.array(self.mean)) / np.array(self.deviation)).astype(np.float32)
        return scaled


@dataclass(frozen=True, eq=False)
class SeriesSet:
    """All series of a run, and which of them are trained on."""

    table: SeriesTable
    classes: tuple[str, ...]
    truths: NDArray[np.int64]  # (N,) the class of each series
    splits: dict[SplitName, Numbers]
    scaling: Scaling
    calendar: Calendar
    grid: tuple[float, ...]
    has_gaps: bool

    @property
    def shape(self) -> SeriesShape:
        return SeriesShape(len(self.table.bands), self.grid, self.has_gaps)

    def batch(self, numbers: Numbers, table: SeriesTable | None = None) -> SeriesBatch:
        """Standardised, on day numbers of the run's calendar. Of other series where a table is given."""
        part = (self.table if table is None else table).chosen(numbers)
        days = self.calendar.numbers(part.days, part.starts)
        return collate(part.starts, days, self.scaling(part.values), np.arange(len(part)))

    def save(self, directory: Path) -> None:
        table = self.table
        about: dict[str, Any] = {
            "ids": table.ids,
            "bands": table.bands,
            "has_dates": table.has_dates,
            "labels": table.labels,
            "groups": table.groups,
            "places": None if table.places is None else _plain(table.places),
            "in_degrees": table.in_degrees,
            "classes": self.classes,
            "splits": {name: numbers.tolist() for name, numbers in self.splits.items()},
            "mean": self.scaling.mean,
            "deviation": self.scaling.deviation,
            "begins": self.calendar.begins,
            "grid": self.grid,
            "has_gaps": self.has_gaps,
        }
        with replacing_directory(directory / FOLDER) as aside:
            for name, kind in _ARRAYS.items():
                array = getattr(table, name)
                if array is not None:
                    np.save(aside / f"{name}.npy", np.ascontiguousarray(array, kind), allow_pickle=False)
            (aside / "series.json").write_text(json.dumps(about), encoding="utf-8")

    @classmethod
    def open(cls, directory: Path) -> "SeriesSet":
        folder = directory / FOLDER
        try:
            return _read(cls, folder)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise UserError(
                f"{folder} is damaged or incomplete ({' '.join(str(error).split())[:200]}): train the run anew"
            ) from None


def _plain(places: NDArray[np.float64]) -> list[list[float | None]]:
    """JSON has no NaN: a place that is not known is null."""
    return [[None if np.isnan(part) else float(part) for part in place] for place in places]


class _Header(Stored):
    """series.json"""

    ids: list[str]
    bands: list[str]
    has_dates: bool
    labels: list[str]
    groups: list[str] | None
    places: list[tuple[float | None, float | None]] | None
    in_degrees: bool
    classes: list[str]
    splits: dict[SplitName, list[int]]
    mean: list[float]
    deviation: list[float]
    begins: int | None
    grid: list[float]
    has_gaps: bool


def _read(kind: type[SeriesSet], folder: Path) -> SeriesSet:
    about = read_json(folder / "series.json", _Header, _LARGEST_HEADER)
    count = len(about.ids)
    starts = map_array(folder / "starts.npy", "<i8", (count + 1,))
    days = map_array(folder / "days.npy", "<f8", (None,))
    rows = len(days)
    values = map_array(folder / "values.npy", "<f4", (rows, len(about.bands)))
    place = folder / "clouds.npy"
    clouds = map_array(place, "<f4", (rows,)) if place.exists() else None
    if starts[0] != 0 or starts[-1] != rows or (np.diff(starts) < 0).any():
        raise ValueError("its starts do not fit its series")
    if len(about.labels) != count or any(
        part is not None and len(part) != count for part in (about.groups, about.places)
    ):
        raise ValueError("it has not one label, group and place for each series")
    if not len(about.mean) == len(about.deviation) == len(about.bands) or not about.grid or len(about.grid) > MOST_DAYS:
        raise ValueError("its scales or its grid do not fit its bands")
    splits: dict[SplitName, Numbers] = {name: np.array(about.splits[name], np.int64) for name in SPLITS}
    if any(len(own) and (own.min() < 0 or own.max() >= count) for own in splits.values()):
        raise ValueError("its splits name series that are not there")
    table = SeriesTable(
        tuple(about.ids),
        tuple(about.bands),
        starts,
        days,
        values,
        about.has_dates,
        tuple(about.labels),
        None if about.groups is None else tuple(about.groups),
        None if about.places is None else np.array(about.places, np.float64),
        about.in_degrees,
        clouds,
    )
    numbers = {name: place for place, name in enumerate(about.classes)}
    truths = np.array([numbers[label] for label in about.labels], np.int64)
    scaling = Scaling(tuple(about.mean), tuple(about.deviation))
    calendar = Calendar(about.begins)
    return kind(table, tuple(about.classes), truths, splits, scaling, calendar, tuple(about.grid), about.has_gaps)
