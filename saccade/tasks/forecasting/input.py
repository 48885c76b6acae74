"""What a run that forecasts reads: the last rows of a table over time, from a file, from Python or from a request."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from saccade.config.recipe import Config
from saccade.data.series.timeline import Change, Timeline, read_timeline, timeline_from_text
from saccade.errors import UserError
from saccade.tasks.task import Example, Limits, Typed

_EXAMPLE = "date,a,b\n2024-01-01,1.0,2.0\n2024-01-02,1.5,2.5\n"
_SUGGESTIONS = 3
_LONGER = 100  # a table may have so many times the characters of a sentence
_QUIET = {"say": lambda sentence: None}


@dataclass(frozen=True, eq=False)
class Excerpt:
    """Rows to forecast from. Of held-out ones it is known what the model reads (`read`, standardised and without gaps) and what came
    `after` (H, V)."""

    timeline: Timeline
    read: NDArray[Any] | None = None
    after: NDArray[Any] | None = None


class TableFields(Config):
    series: str = Field(
        description="a table as CSV: a line of names, then a row for each moment, the last ones of which are read",
        examples=[_EXAMPLE],
    )


@dataclass(frozen=True)
class Table:
    date: str | None = None  # the column of dates, where a recipe names it
    day_first: bool | None = None
    change: Change = "levels"
    kind: str = "series"
    fields: type[Config] = TableFields

    def from_command_line(self, typed: Typed) -> list[Example[Excerpt]]:
        if typed.words:
            return [
                Example(Excerpt(read_timeline(_file(word), typed.say, self.date, self.day_first)), word)
                for word in typed.words
            ]
        assert typed.stdin is not None
        text = typed.stdin.read().decode("utf-8", "replace")
        return [Example(Excerpt(timeline_from_text(text, typed.say, self.date, self.day_first)), "standard input")]

    def from_python(self, value: object) -> Example[Excerpt]:
        if isinstance(value, Timeline):
            return Example(Excerpt(value))
        if isinstance(value, str | os.PathLike):
            timeline = read_timeline(_file(os.fspath(value)), **_QUIET, date=self.date, day_first=self.day_first)
            return Example(Excerpt(timeline), str(value))
        raise UserError(f"{type(value).__name__} is not a table: give the path of a CSV file, or a Timeline")

    def from_json(self, body: Config, limits: Limits) -> Example[Excerpt]:
        assert isinstance(body, TableFields)
        most = _LONGER * limits.characters
        if len(body.series) > most:
            raise UserError(
                f"the table has {len(body.series):,} characters, and {most:,} are allowed: send its last rows"
            )
        return Example(Excerpt(timeline_from_text(body.series, **_QUIET, date=self.date, day_first=self.day_first)))

    def unknown(self, examples: Sequence[Example[Excerpt]]) -> Sequence[str]:
        return ()

    def suggestions(self, held_out: Sequence[Example[Excerpt]]) -> list[str]:
        """Held-out windows as CSV; where the run reads returns, as prices that begin at 100 and have them."""
        places = np.linspace(0, max(len(held_out) - 1, 0), min(_SUGGESTIONS, len(held_out))).astype(int)
        parts = [held_out[int(place)].content.timeline for place in places]
        return [as_csv(_prices(part) if self.change == "returns" else part) for part in parts]


def _prices(returns: Timeline) -> Timeline:
    """A day before the first return the price of everything is 100."""
    known = np.nan_to_num(returns.values, nan=0.0)
    prices = 100 * np.concatenate([np.ones_like(known[:1]), np.cumprod(1 + known, 0)])
    days = np.concatenate([returns.days[:1] - 1, returns.days])
    return Timeline(returns.variables, days, prices, returns.has_dates)


def as_csv(timeline: Timeline) -> str:
    rows = zip(timeline.labels(slice(None)), timeline.values, strict=True)
    lines = [",".join([day, *("" if np.isnan(value) else f"{value:.6g}" for value in row)]) for day, row in rows]
    return "\n".join([",".join(["date", *timeline.variables]), *lines, ""])


def _file(word: str) -> Path:
    path = Path(word)
    if not path.is_file():
        raise UserError(
            f"there is no file {word}: give a table (CSV, TSV or parquet), or test:0 for the run's own first window"
        )
    return path
