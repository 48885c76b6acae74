"""Variables over time as one table: a row for each moment, a column for each variable, as `data/series/reading.py` reads it from a file.

    timeline = read_timeline(Path("prices.csv"), say=print)
    timeline.values[-1], iso(timeline.days[-1])

What is missing is NaN, never a zero. Rows are the calendar: days on which nothing was measured (a stock exchange's weekends) do not exist.

Axis legend: T moments, V variables.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from saccade.config.files import nearest
from saccade.data.series.dates import days_of, iso, looks_like_dates
from saccade.data.series.reading import is_text, read_table, read_text
from saccade.errors import ConfigError, Say, UserError

Change = Literal["levels", "returns"]
_DATE_NAMES = ("date", "datetime", "time", "timestamp", "day", "month", "year")


@dataclass(frozen=True, eq=False)
class Timeline:
    variables: tuple[str, ...]  # (V,)
    days: NDArray[np.float64]  # (T,) rising: days since 1970-01-01, or numbers of rows
    values: NDArray[np.float32]  # (T, V)
    has_dates: bool

    def __len__(self) -> int:
        return len(self.days)

    def labels(self, rows: slice) -> tuple[str, ...]:
        """What stands under those rows: dates, or numbers."""
        return tuple(iso(day) if self.has_dates else f"{day:g}" for day in self.days[rows])

    def changed(self, change: Change) -> "Timeline":
        """Prices as relative returns from one row to the next; the first row has none and is left out."""
        if change == "levels":
            return self
        with np.errstate(divide="ignore", invalid="ignore"):
            returns = self.values[1:] / self.values[:-1] - 1
        returns[~np.isfinite(returns)] = np.nan
        return Timeline(self.variables, self.days[1:], returns.astype(np.float32), self.has_dates)

    def chosen(self, variables: Sequence[str], origin: str) -> "Timeline":
        """Some of the variables, in this order."""
        missing = [name for name in variables if name not in self.variables]
        if missing:
            has = ", ".join(self.variables[:12]) + (", …" if len(self.variables) > 12 else "")
            raise UserError(f"{origin} has no column {missing[0]}, which this run reads: it has {has}")
        columns = [self.variables.index(name) for name in variables]
        return Timeline(tuple(variables), self.days, self.values[:, columns], self.has_dates)


def read_timeline(path: Path, say: Say, date: str | None = None, day_first: bool | None = None) -> Timeline:
    return _timeline(read_table(path, say), str(path), say, date, day_first)


def timeline_from_text(text: str, say: Say, date: str | None = None, day_first: bool | None = None) -> Timeline:
    return _timeline(read_text(text, say), "the table", say, date, day_first)


def _timeline(frame: pd.DataFrame, origin: str, say: Say, date: str | None, day_first: bool | None) -> Timeline:
    frame = _with_names(frame, origin, say)
    date = _date_column(frame, origin, date)
    if date is None:
        say(f"{origin} has no column of dates: its rows are taken as evenly spaced, in their order")
        days, has_dates = np.arange(len(frame), dtype=np.float64), False
    else:
        days, has_dates = days_of(frame[date], date, day_first)
        frame = frame.drop(columns=[date])
    frame = _as_numbers(frame)
    words = [str(name) for name in frame.columns if is_text(frame[name])]
    if words:
        row = int(np.flatnonzero(pd.to_numeric(frame[words[0]], errors="coerce").isna() & frame[words[0]].notna())[0])
        raise UserError(
            f"{origin}: column {words[0]} holds {frame[words[0]].iloc[row]!r} in row {row + 1}, which is no number: "
            "mend it, or leave the column out of the file"
        )
    if not len(frame.columns):
        raise UserError(f"{origin} has no column of numbers beside its dates: add a column for each variable")
    values = np.array(frame, np.float32)
    values[~np.isfinite(values)] = np.nan
    empty = [str(name) for name, column in zip(frame.columns, values.T, strict=True) if np.isnan(column).all()]
    if empty:
        raise UserError(f"{origin}: column {empty[0]} has no value at all: leave it out of the file")
    order = np.argsort(days, kind="stable")
    if (order[1:] < order[:-1]).any():
        say(f"{origin}: rows were sorted by {date}")
    days, values = days[order], values[order]
    doubled = np.flatnonzero(days[1:] == days[:-1])
    if len(doubled):
        shown = iso(days[doubled[0]]) if has_dates else f"{days[doubled[0]]:g}"
        raise UserError(f"{origin} has two rows for {shown} (column {date}): keep one row for each moment")
    return Timeline(tuple(map(str, frame.columns)), days, values, has_dates)


def _as_numbers(frame: pd.DataFrame) -> pd.DataFrame:
    """Columns of text that hold nothing but numbers, as tables of other programs have them."""
    for name in frame.columns:
        if is_text(frame[name]):
            numbers = pd.to_numeric(frame[name], errors="coerce")
            if numbers.notna().sum() == frame[name].notna().sum():
                frame = frame.assign(**{str(name): numbers})
    return frame


def _with_names(frame: pd.DataFrame, origin: str, say: Say) -> pd.DataFrame:
    """A file without a line of names: its first line was taken for one."""
    if any(_number(name) is None for name in frame.columns):
        return frame
    names = [f"variable {number}" for number in range(1, len(frame.columns) + 1)]
    first = pd.DataFrame([[_number(name) for name in frame.columns]], columns=names)
    say(f"{origin} has no line of names: its columns are called {names[0]} to {names[-1]}")
    return pd.concat([first, frame.set_axis(names, axis=1)], ignore_index=True)


def _number(name: object) -> float | None:
    """A name that is a number; one that occurs twice in a line has ".1" behind it."""
    text = re.sub(r"^(-?\d+[.,]\d+)\.\d+$", r"\1", str(name)).replace(",", ".")
    try:
        return float(text)
    except ValueError:
        return None


def _date_column(frame: pd.DataFrame, origin: str, named: str | None) -> str | None:
    names = [str(name) for name in frame.columns]
    if named is not None:
        if named not in names:
            near = nearest(named, names)
            hint = f": did you mean {near}?" if near else f": it has {', '.join(names[:12])}"
            raise ConfigError(f"data.date = {named}: {origin} has no such column{hint}")
        return named
    by_name = [name for name in names if name.lower() in _DATE_NAMES]
    by_content = [name for name in names if is_text(frame[name]) and looks_like_dates(frame[name])]
    sure = [name for name in by_name if looks_like_dates(frame[name])]
    return next(iter([*sure, *by_content, *by_name]), None)
