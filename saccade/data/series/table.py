"""Many series in memory: observations one after the other, series by series, each at its own dates.

What was not measured is NaN, never a zero. Days are days since 1970-01-01 (fractions are hours) where there are dates, else positions
from 0.

Axis legend: N series, T observations of all series together, V variables (bands).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saccade.data.series.dates import iso
from saccade.errors import Say, UserError

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class SeriesTable:
    ids: tuple[str, ...]  # (N,)
    bands: tuple[str, ...]  # (V,)
    starts: NDArray[np.int64]  # (N + 1,) where each series begins, and where the last one ends
    days: NDArray[np.float64]  # (T,) rising within each series
    values: NDArray[np.float32]  # (T, V)
    has_dates: bool = True
    labels: tuple[str, ...] | None = None  # (N,)
    groups: tuple[str, ...] | None = None  # (N,) field, region, year, ...
    places: NDArray[np.float64] | None = None  # (N, 2) x and y, or longitude and latitude
    in_degrees: bool = False  # the places
    clouds: NDArray[np.float32] | None = None  # (T,) from 0, clear, to 1

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def lengths(self) -> NDArray[np.int64]:
        lengths: NDArray[np.int64] = np.diff(self.starts)
        return lengths

    def rows(self, number: int) -> slice:
        return slice(int(self.starts[number]), int(self.starts[number + 1]))

    def chosen(self, numbers: Sequence[int] | NDArray[np.integer[Any]]) -> "SeriesTable":
        """Some of the series, in this order."""
        chosen: NDArray[np.int64] = np.asarray(numbers, np.int64)
        lengths = self.lengths[chosen]
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        rows = np.repeat(self.starts[chosen] - starts[:-1], lengths) + np.arange(starts[-1])
        return replace(
            self,
            ids=tuple(self.ids[number] for number in chosen),
            starts=starts,
            days=self.days[rows],
            values=self.values[rows],
            labels=_picked(self.labels, chosen),
            groups=_picked(self.groups, chosen),
            places=None if self.places is None else self.places[chosen],
            clouds=None if self.clouds is None else self.clouds[rows],
        )

    def with_labels(self) -> tuple[str, ...]:
        if self.labels is None:
            raise UserError("these series have no labels: name the column that holds them with data.label")
        return self.labels


def _picked(values: tuple[str, ...] | None, numbers: NDArray[np.int64]) -> tuple[str, ...] | None:
    return None if values is None else tuple(values[number] for number in numbers)


def of_equal_length(
    ids: Sequence[str], bands: Sequence[str], values: Floats, days: Floats | None = None, **more: Any
) -> SeriesTable:
    """From an array (N, length, V); positions from 0 stand for days unless these are given."""
    count, length, variables = values.shape
    has_dates = days is not None
    one = np.arange(length, dtype=np.float64) if days is None else np.asarray(days, np.float64)
    return SeriesTable(
        ids=tuple(ids),
        bands=tuple(bands),
        starts=np.arange(count + 1, dtype=np.int64) * length,
        days=np.tile(one, count),
        values=np.asarray(values, np.float32).reshape(count * length, variables),
        has_dates=has_dates,
        **more,
    )


def joined(tables: Sequence[SeriesTable]) -> SeriesTable:
    """Several tables of the same bands as one."""
    first = tables[0]
    offsets = np.cumsum([0, *(len(table.days) for table in tables[:-1])])
    starts = [table.starts[:-1] + offset for table, offset in zip(tables, offsets, strict=True)]

    def texts(name: str) -> tuple[str, ...] | None:
        parts = [getattr(table, name) for table in tables]
        return None if any(part is None for part in parts) else tuple(text for part in parts for text in part)

    def arrays(name: str) -> Any:
        parts = [getattr(table, name) for table in tables]
        return None if any(part is None for part in parts) else np.concatenate(parts)

    return replace(
        first,
        ids=tuple(name for table in tables for name in table.ids),
        starts=np.concatenate([*starts, [offsets[-1] + len(tables[-1].days)]]).astype(np.int64),
        days=arrays("days"),
        values=arrays("values"),
        labels=texts("labels"),
        groups=texts("groups"),
        places=arrays("places"),
        clouds=arrays("clouds"),
    )


def with_bands(table: SeriesTable, bands: Sequence[str], origin: str) -> SeriesTable:
    """The table with these of its bands, in this order."""
    missing = [band for band in bands if band not in table.bands]
    if missing:
        raise UserError(
            f"{origin} has no {', '.join(missing)}: its bands are {', '.join(table.bands)}, and {', '.join(bands)} are needed"
        )
    columns = [table.bands.index(band) for band in bands]
    return replace(table, bands=tuple(bands), values=table.values[:, columns])


def keeping(table: SeriesTable, rows: NDArray[np.bool_]) -> SeriesTable:
    """Some of the observations; a series may lose all of them."""
    series = np.repeat(np.arange(len(table)), table.lengths)
    counts = np.bincount(series[rows], minlength=len(table))
    return replace(
        table,
        starts=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        days=table.days[rows],
        values=table.values[rows],
        clouds=None if table.clouds is None else table.clouds[rows],
    )


def measured_only(table: SeriesTable, origin: str, say: Say, longest: int) -> SeriesTable:
    """Without observations on which nothing was measured, and series that have no others."""
    is_measured: NDArray[np.bool_] = np.isfinite(table.values).any(axis=1)  # type: ignore[assignment]
    table = keeping(table, is_measured)
    lengths = table.lengths
    empty = np.flatnonzero(lengths == 0)
    if len(empty) == len(table):
        raise UserError(f"{origin}: not one value was measured")
    if len(empty):
        say(
            f"{origin}: {len(empty):,} series without a measured value were left out, the first is {table.ids[empty[0]]}"
        )
        table = table.chosen(np.flatnonzero(lengths > 0))
    if int(table.lengths.max()) > longest:
        number = int(table.lengths.argmax())
        raise UserError(
            f"{origin}: the series {table.ids[number]} has {table.lengths[number]:,} dates, and data.longest = {longest:,}: raise it "
            "(attention takes memory with its square), or give fewer dates"
        )
    return table


def as_text(table: SeriesTable) -> str:
    """One series as CSV, as a request holds it."""
    names = [] if table.clouds is None else ["cloud"]
    lines = [",".join(["date" if table.has_dates else "position", *table.bands, *names])]
    for row, day in enumerate(table.days):
        values = ["" if np.isnan(value) else f"{value:.6g}" for value in table.values[row]]
        cloud = [] if table.clouds is None else [f"{table.clouds[row]:.3g}"]
        lines.append(",".join([iso(day) if table.has_dates else f"{day:g}", *values, *cloud]))
    return "\n".join(lines) + "\n"
