"""Day numbers that mean the same in every year: day 200 is in July, whichever year it was, and a season may run over New Year.

Seasons begin where the fewest series do: the middle of the widest gap between the days of the year on which series start. A day number
counts from the first of January of the series' season, so it goes on rising over New Year and over several years.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saccade.data.series.table import SeriesTable

Days = NDArray[np.float64]
YEAR = 365


@dataclass(frozen=True)
class Calendar:
    """`begins` is the day of the year on which a season ends and the next one begins; None: positions, not dates."""

    begins: int | None

    @classmethod
    def of(cls, table: SeriesTable) -> "Calendar":
        if not table.has_dates:
            return cls(None)
        first = table.days[table.starts[:-1][table.lengths > 0]]
        days = np.unique(_day_of_year(first)[0])
        gaps = np.diff(np.append(days, days[0] + YEAR))
        widest = int(gaps.argmax())
        return cls(int(days[widest] + gaps[widest] // 2) % YEAR if len(days) > 1 else int(days[0] - YEAR // 2) % YEAR)

    def numbers(self, days: Days, starts: NDArray[np.int64]) -> Days:
        """Days since 1970-01-01 of several series as day numbers."""
        if self.begins is None:
            return days
        lengths = np.diff(starts)
        first = days[np.minimum(starts[:-1], max(len(days) - 1, 0))]
        day, january = _day_of_year(first)
        if self.begins > YEAR // 2:  # a season that begins late in the year is that of the next one
            start = np.where(day >= self.begins, _january(january, 1), january)
        else:
            start = np.where(day < self.begins, _january(january, -1), january)
        return days - np.repeat(start, lengths)


def _day_of_year(days: Days) -> tuple[NDArray[np.int64], Days]:
    """The day of the year from 0, and the days since 1970-01-01 of its first of January."""
    dates: Any = np.floor(days).astype("datetime64[D]")
    january = dates.astype("datetime64[Y]").astype("datetime64[D]")
    return (dates - january).astype(np.int64), january.astype(np.int64).astype(np.float64)


def _january(january: Days, years: int) -> Days:
    """The first of January so many years later."""
    dates: Any = january.astype("datetime64[D]")
    other = (dates.astype("datetime64[Y]") + years).astype("datetime64[D]")
    moved: Days = other.astype(np.int64).astype(np.float64)
    return moved
