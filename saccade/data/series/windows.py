"""A table over time as windows: what is read, and what comes after it; trained on the beginning, validated and tested on what follows.

    windows = prepare(config, directory, say)
    values, after = windows.examples(windows.places("test")[:64])

Every window of a held-out part is judged. The look-back of its first windows reaches back into the part before: that is known by then.
Scaling is learned from the training part alone. A missing value is read as the last known one, and never judged.

Axis legend: B batch, L look-back, H horizon, V variables, T moments.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, ValidationInfo, field_validator, model_validator
from torch import Tensor

from saccade.config.files import nearest
from saccade.config.recipe import Config as BaseConfig
from saccade.config.recipe import ExistingFile, files_may_be_missing
from saccade.data.builtin.timelines import BUILT_IN
from saccade.data.series.timeline import Change, Timeline, read_timeline
from saccade.data.splits import SPLITS, SplitName
from saccade.errors import ConfigError, Say, UserError
from saccade.files import replacing_directory
from saccade.stored import Stored, map_array, read_json

FOLDER = "timeline"  # of a run directory
Count = Annotated[int, Field(ge=0, lt=1 << 40)]


class TimelineConfig(BaseConfig):
    corpus: Literal["files", "tides", "companies"] = "files"
    train: ExistingFile | None = Field(
        None, description="CSV, TSV or parquet: a row for each moment, a column each variable"
    )
    date: str | None = Field(None, description="the column of dates; found by its name or content unless given")
    day_first: bool | None = Field(None, description="whether 03/04/2018 is the third of April")
    target: str | None = Field(
        None, description="what to forecast: a column, or several with commas; unless given, all"
    )
    change: Change = Field("levels", description="levels as they are, or prices as relative returns")
    look_back: int = Field(96, ge=1, description="rows that are read")
    horizon: int = Field(24, ge=1, description="rows that are forecast")
    same_day: bool = Field(
        False, description="nowcasting: tell each target's last row from the other variables' instead of later rows"
    )
    season: int | None = Field(None, ge=1, description="rows of a season, for the seasonal yardstick; such as 24 or 7")
    rows: int | None = Field(None, ge=1, description="use the first so many rows only")
    valid: float | int = Field(0.1, gt=0, description="rows to validate by: a number, or a share of all")
    test: float | int = Field(0.2, gt=0, description="rows to test by, the last ones: a number, or a share of all")
    batch_size: int = Field(32, ge=1)

    @model_validator(mode="after")
    def _same_day_is_one_row(self) -> "TimelineConfig":
        if self.same_day:
            self._refuse_unused("later rows: data.same_day tells the last one", "horizon", "season")
        elif self.look_back < 2:
            raise ValueError("look_back = 1 leaves nothing to see a change in: give 2 or more")
        return self

    @field_validator("valid", "test")
    @classmethod
    def _whole_or_share(cls, rows: float | int) -> float | int:
        if isinstance(rows, float) and rows >= 1:
            raise ValueError(f"{rows} is neither a share below 1 nor a whole number of rows")
        return rows

    @model_validator(mode="after")
    def _file_is_named(self, info: ValidationInfo) -> "TimelineConfig":
        if self.corpus == "files" and self.train is None and not files_may_be_missing(info):
            raise ValueError("train is missing: name a table, for example --set data.train=prices.csv")
        if self.corpus != "files":
            self._refuse_unused("corpus=files", "train", "date", "day_first")
        return self

    @property
    def steps(self) -> int:
        """Rows that are told of each window."""
        return 1 if self.same_day else self.horizon

    @property
    def targets(self) -> list[str] | None:
        return None if self.target is None else [name.strip() for name in self.target.split(",") if name.strip()]


@dataclass(frozen=True, eq=False)
class Windows:
    timeline: Timeline  # as it is read: levels or returns, not scaled
    mean: NDArray[np.float32]  # (V,) of the training part
    deviation: NDArray[np.float32]  # (V,)
    borders: tuple[int, int, int]  # the rows at which training, validation and test end
    look_back: int
    steps: int
    same_day: bool

    @cached_property
    def scaled(self) -> NDArray[np.float32]:
        """(T, V) with NaN where nothing is known."""
        scaled: NDArray[np.float32] = (self.timeline.values - self.mean) / self.deviation
        return scaled

    @cached_property
    def filled(self) -> NDArray[np.float32]:
        """The same with the last known value where one is missing; with the mean where none is known yet."""
        return fill_forward(self.scaled)

    def places(self, split: SplitName) -> range:
        """The row at which what is told of each window begins."""
        number = SPLITS.index(split)
        begin = 0 if number == 0 else self.borders[number - 1]
        before = self.look_back - 1 if self.same_day else self.look_back
        return range(max(begin, before), self.borders[number] - self.steps + 1)

    def examples(self, places: Sequence[int] | NDArray[np.integer[Any]]) -> tuple[Tensor, Tensor]:
        """Windows (B, L, V), and what is to be told of them (B, H, V), NaN where it is unknown."""
        firsts = np.asarray(places, np.int64)[:, None]
        end = firsts + 1 if self.same_day else firsts
        values = self.filled[end + np.arange(-self.look_back, 0)]
        after = self.scaled[firsts + np.arange(self.steps)]
        return torch.from_numpy(values), torch.from_numpy(after)

    def original(self, scaled: NDArray[Any], variable: int) -> NDArray[Any]:
        """Values of one variable in the units of the table."""
        restored: NDArray[Any] = scaled * self.deviation[variable] + self.mean[variable]
        return restored


def fill_forward(values: NDArray[np.float32]) -> NDArray[np.float32]:
    known = np.isfinite(values)
    if known.all():
        return values
    last = np.maximum.accumulate(np.where(known, np.arange(len(values))[:, None], 0), axis=0)
    filled = np.take_along_axis(values, last, axis=0)
    return np.nan_to_num(filled, nan=0.0).astype(np.float32)


def prepare(config: TimelineConfig, directory: Path, say: Say) -> Windows:
    """Reads the table, learns its scale and keeps both in the run directory."""
    if config.corpus == "files":
        assert config.train is not None
        origin, timeline = str(config.train), read_timeline(config.train, say, config.date, config.day_first)
    else:
        origin, timeline = config.corpus, BUILT_IN[config.corpus]()
    if config.rows is not None:
        timeline = Timeline(
            timeline.variables, timeline.days[: config.rows], timeline.values[: config.rows], timeline.has_dates
        )
    timeline = timeline.changed(config.change)
    check_targets(config, timeline, origin)
    borders = _borders(config, len(timeline), origin)
    told = timeline.values[: borders[0]]
    empty = [name for name, column in zip(timeline.variables, told.T, strict=True) if not np.isfinite(column).any()]
    if empty:
        raise UserError(
            f"{origin}: {empty[0]} has no value in the training part (the first {borders[0]:,} rows): leave it out"
        )
    mean, deviation = np.nanmean(told, 0), np.nanstd(told, 0)
    windows = Windows(
        timeline,
        mean.astype(np.float32),
        np.where(deviation > 0, deviation, 1).astype(np.float32),
        borders,
        config.look_back,
        config.steps,
        config.same_day,
    )
    _say_what_it_is(windows, origin, say)
    _save(windows, directory)
    return windows


def check_targets(config: TimelineConfig, timeline: Timeline, origin: str) -> None:
    for name in config.targets or ():
        if name not in timeline.variables:
            near = nearest(name, timeline.variables)
            has = ", ".join(timeline.variables[:12]) + (", …" if len(timeline.variables) > 12 else "")
            hint = f"did you mean {near}? (it has {has})" if near else f"it has {has}"
            raise ConfigError(f"data.target = {name}: {origin} has no such column: {hint}")
    if config.same_day and len(timeline.variables) < 2:
        raise ConfigError(f"data.same_day tells a column from the others, and {origin} has one column: add others")


def _borders(config: TimelineConfig, rows: int, origin: str) -> tuple[int, int, int]:
    valid, test = (round(part * rows) if isinstance(part, float) else int(part) for part in (config.valid, config.test))
    train = rows - valid - test
    before = config.look_back if config.same_day else config.look_back + config.steps
    if train < before or min(valid, test) < config.steps:
        raise ConfigError(
            f"{origin} has {rows:,} rows: {max(train, 0):,} to train on, {valid:,} to validate by and {test:,} to test by, "
            f"and a window takes {config.look_back} rows and {config.steps} after them: lower data.look_back or data.horizon"
        )
    return train, train + valid, rows


def _say_what_it_is(windows: Windows, origin: str, say: Say) -> None:
    timeline = windows.timeline
    train, valid, rows = windows.borders
    first, last = timeline.labels(slice(0, 1))[0], timeline.labels(slice(rows - 1, rows))[0]
    say(f"{origin}: {len(timeline.variables)} variables, {rows:,} rows from {first} to {last}")
    starts = timeline.labels(slice(train, train + 1))[0], timeline.labels(slice(valid, valid + 1))[0]
    say(f"trained on the rows before {starts[0]}, validated before {starts[1]}, tested on the rest")
    missing = int((~np.isfinite(timeline.values)).sum())
    if missing:
        say(f"{missing:,} values are missing: read as the last known one, and never judged")


def _save(windows: Windows, directory: Path) -> None:
    with replacing_directory(directory / FOLDER) as folder:
        np.save(folder / "values.npy", windows.timeline.values)
        np.save(folder / "days.npy", windows.timeline.days)
        about = {
            "variables": list(windows.timeline.variables),
            "has_dates": windows.timeline.has_dates,
            "mean": windows.mean.tolist(),
            "deviation": windows.deviation.tolist(),
            "borders": list(windows.borders),
        }
        (folder / "timeline.json").write_text(json.dumps(about), encoding="utf-8")


class _Stored(Stored):
    """timeline.json"""

    variables: list[str] = Field(min_length=1, max_length=100_000)
    has_dates: bool
    mean: list[float]
    deviation: list[Annotated[float, Field(gt=0)]]
    borders: tuple[Count, Count, Count]


def reopen(config: TimelineConfig, directory: Path) -> Windows:
    folder = directory / FOLDER
    try:
        about = read_json(folder / "timeline.json", _Stored)
        variables = tuple(about.variables)
        values = map_array(folder / "values.npy", "<f4", (None, len(variables)))
        days = np.array(map_array(folder / "days.npy", "<f8", (len(values),)))
        mean, deviation = np.array(about.mean, np.float32), np.array(about.deviation, np.float32)
        if {mean.shape, deviation.shape} != {(len(variables),)} or not np.isfinite(days).all():
            raise ValueError("its parts do not fit together")
        if list(about.borders) != sorted(set(about.borders)) or about.borders[-1] != len(values):
            raise ValueError(f"its parts end at {about.borders} of {len(values)} rows")
    except (OSError, ValueError) as error:
        raise UserError(f"{folder} is damaged ({error}): train the run again, with another --out") from None
    timeline = Timeline(variables, days, values, about.has_dates)
    return Windows(timeline, mean, deviation, about.borders, config.look_back, config.steps, config.same_day)
