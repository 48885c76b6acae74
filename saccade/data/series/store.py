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

FOLDER = "series"
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
            "places": None if table.places is None else table.places.tolist(),
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


def _read(kind: type[SeriesSet], folder: Path) -> SeriesSet:
    about = json.loads((folder / "series.json").read_text(encoding="utf-8"))
    arrays = {name: _array(folder / f"{name}.npy", wanted) for name, wanted in _ARRAYS.items()}
    ids, bands = tuple(about["ids"]), tuple(about["bands"])
    starts, days, values, clouds = (arrays[name] for name in _ARRAYS)
    rows = len(days)
    if starts.shape != (len(ids) + 1,) or starts[0] != 0 or starts[-1] != rows or (np.diff(starts) < 0).any():
        raise ValueError("its starts do not fit its series")
    if values.shape != (rows, len(bands)) or (clouds is not None and clouds.shape != (rows,)):
        raise ValueError("its values do not fit its days")
    classes = tuple(map(str, about["classes"]))
    numbers = {name: place for place, name in enumerate(classes)}
    splits: dict[SplitName, Numbers] = {name: np.array(about["splits"][name], np.int64) for name in SPLITS}
    if any(len(own) and (own.min() < 0 or own.max() >= len(ids)) for own in splits.values()):
        raise ValueError("its splits name series that are not there")
    table = SeriesTable(
        ids,
        bands,
        starts,
        days,
        values,
        bool(about["has_dates"]),
        tuple(map(str, about["labels"])),
        None if about["groups"] is None else tuple(map(str, about["groups"])),
        None if about["places"] is None else np.array(about["places"], np.float64),
        bool(about["in_degrees"]),
        clouds,
    )
    truths = np.array([numbers[label] for label in table.with_labels()], np.int64)
    scaling = Scaling(tuple(map(float, about["mean"])), tuple(map(float, about["deviation"])))
    if len(scaling.mean) != len(bands) or len(scaling.deviation) != len(bands):
        raise ValueError("its scales do not fit its bands")
    calendar = Calendar(None if about["begins"] is None else int(about["begins"]))
    return kind(
        table, classes, truths, splits, scaling, calendar, tuple(map(float, about["grid"])), bool(about["has_gaps"])
    )


def _array(path: Path, kind: Any) -> Any:
    if not path.exists():
        return None
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    if array.dtype != kind:
        raise ValueError(f"{path.name} holds {array.dtype}")
    return array
