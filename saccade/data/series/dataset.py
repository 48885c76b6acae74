"""The `data` section of a task of series, and the series of a run: read, split, clouded if wanted, scaled, and kept in its directory."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from saccade.config.recipe import Config, ExistingFile
from saccade.data.builtin.seasons import seasons
from saccade.data.series import clouds as cloud_data
from saccade.data.series.calendar import Calendar
from saccade.data.series.clouds import CloudsConfig, with_clouds
from saccade.data.series.columns import Named
from saccade.data.series.files import read_series
from saccade.data.series.splits import (
    Numbers,
    SplitBy,
    class_sentence,
    cut,
    require_disjoint,
    warn_of_neighbours,
)
from saccade.data.series.store import MOST_DAYS, Scaling, SeriesSet
from saccade.data.series.table import SeriesTable, joined, measured_only, with_bands
from saccade.data.splits import SplitName
from saccade.errors import Say, UserError


class SeriesConfig(Config):
    train: ExistingFile | None = Field(
        None, description="a table of series; the built-in generated seasons unless given"
    )
    valid: ExistingFile | None = Field(None, description="cut from the training table unless given")
    test: ExistingFile | None = Field(None, description="cut from the training table unless given")
    samples: ExistingFile | None = Field(
        None, description="a second table with a row for each id: its place, group, label"
    )
    labels: ExistingFile | None = Field(None, description="the labels of a .npy array: .npy or a text with one a line")
    fields: int = Field(600, ge=40, le=100_000, description="of the built-in seasons")

    id: str | None = Field(None, description="the column of ids; found unless given, as are the others")
    date: str | None = None
    label: str | None = None
    bands: list[str] | None = Field(None, min_length=1, description="the columns to learn from")
    group: str | None = Field(
        None, description="a column (field, region, year): its series stay on one side of a split"
    )
    season: str | None = Field(None, description="a column that makes several series of one id, such as the year")
    x: str | None = Field(None, description="the column of longitude, or metres to the east")
    y: str | None = Field(None, description="the column of latitude, or metres to the north")
    cloud: str | None = Field(
        None, description="the column that says which observations are clouded, 0 to 1 or percent"
    )
    day_first: bool | None = Field(None, description="whether 03/04/2018 is in April")

    same_date: Literal["refuse", "first", "mean"] = Field("refuse", description="of several rows of an id and date")

    split_by: SplitBy = Field(
        "auto", description="auto: by group where one is named, by place where there are coordinates"
    )
    block_size: float = Field(5.0, gt=0, description="kilometres on a side of the blocks of split_by: blocks")
    folds: int = Field(5, ge=2, le=100, description="parts of the table, one of which is the test")
    fold: int = Field(0, ge=0, description="which part is the test")
    held_out: float = Field(0.1, gt=0, le=0.5, description="share of the rest to validate")
    split_seed: int = Field(1, ge=0)
    fewest: int = Field(2, ge=2, description="classes of fewer series are left out, and said")
    longest: int = Field(3000, ge=1, description="dates of a series at most")

    clouds: CloudsConfig = Field(CloudsConfig.model_validate({}), description="generated clouds")
    clouded: Literal["keep", "interpolate", "remove"] = Field(
        "keep", description="what is done to clouded observations before training and predicting"
    )
    batch_size: int = Field(64, ge=1)

    @model_validator(mode="after")
    def _parts_fit(self) -> "SeriesConfig":
        if self.fold >= self.folds:
            raise ValueError(f"fold {self.fold} must be below folds {self.folds}: folds count from 0")
        if self.train is None and (self.valid or self.test or self.samples):
            raise ValueError("valid, test and samples need train: name the table to train on")
        return self

    @property
    def named(self) -> Named:
        bands = None if self.bands is None else tuple(self.bands)
        return Named(
            self.id,
            self.date,
            self.label,
            bands,
            self.group,
            self.x,
            self.y,
            self.cloud,
            self.season,
            self.day_first,
            self.same_date,
        )


def prepare(config: SeriesConfig, directory: Path, say: Say) -> SeriesSet:
    series = gather(config, say)
    series.save(directory)
    return SeriesSet.open(directory)


def gather(config: SeriesConfig, say: Say) -> SeriesSet:
    """Everything that a run keeps, in memory."""
    table, splits = _with_splits(config, say)
    table = preprocessed(table, config)
    classes = tuple(sorted(set(table.with_labels()), key=_in_order))
    _say_counts(table, splits, classes, say)
    warn_of_neighbours(table, splits, say)
    truths = np.array([classes.index(label) for label in table.with_labels()], np.int64)
    train = table.chosen(splits["train"])
    calendar = Calendar.of(train)
    numbers = calendar.numbers(train.days, train.starts)
    partly = np.isfinite(table.values)
    has_gaps = bool((partly.any(1) & ~partly.all(1)).any())
    return SeriesSet(
        table,
        classes,
        truths,
        splits,
        Scaling.of(train.values),
        calendar,
        regular_grid(numbers, train.starts),
        has_gaps,
    )


def preprocessed(table: SeriesTable, config: SeriesConfig, training: bool = True) -> SeriesTable:
    """With generated clouds where the recipe has some (in training and its own test), and without clouds where it takes them away."""
    if training and config.clouds.share:
        table = with_clouds(table, config.clouds)
    if config.clouded == "keep" or (not training and table.clouds is None):
        return table
    return cloud_data.interpolated(table) if config.clouded == "interpolate" else cloud_data.removed(table)


def regular_grid(days: Any, starts: Any, most: int = MOST_DAYS) -> tuple[float, ...]:
    """Day numbers for models of a fixed length: those of the data where all series share them, else as many as a series has, evenly."""
    lengths = np.diff(starts)
    first = days[: lengths[0]]
    if (lengths == lengths[0]).all() and len(first) <= most:
        rows = np.asarray(days).reshape(len(lengths), -1)
        if np.abs(rows - rows.mean(0)).max() <= 8:  # the calendar's leap days, the satellite's turns
            return tuple(float(day) for day in np.round(np.median(rows, axis=0)))
    count = int(min(max(np.median(lengths), 2), most))
    low, high = np.quantile(days, [0.002, 0.998])
    return tuple(float(day) for day in np.linspace(low, max(high, low + 1), count))


def _with_splits(config: SeriesConfig, say: Say) -> tuple[SeriesTable, dict[SplitName, Numbers]]:
    if config.train is None:
        table = seasons(config.fields, config.split_seed)
        say(f"{config.fields:,} generated fields of {', '.join(sorted(set(table.with_labels())))}, seen through clouds")
    else:
        table = _read(config.train, config, say)
    table = _enough(table, config, say)
    given: dict[SplitName, Path] = {}
    if config.valid is not None:
        given["valid"] = config.valid
    if config.test is not None:
        given["test"] = config.test
    if not given:
        return table, cut(
            table,
            config.split_by,
            config.block_size,
            config.folds,
            config.fold,
            config.held_out,
            config.split_seed,
            say,
        )
    return _with_files(table, given, config, say)


def _with_files(
    table: SeriesTable, given: dict[SplitName, Path], config: SeriesConfig, say: Say
) -> tuple[SeriesTable, dict[SplitName, Numbers]]:
    """Held-out parts from files; what has none is cut from the training table."""
    tables = [table]
    splits: dict[SplitName, Numbers] = {}
    total = len(table)
    for split, path in given.items():
        other = _like(table, _read(path, config, say), path)
        require_disjoint(table, other, str(path), say)
        unknown = sorted(set(other.with_labels()) - set(table.with_labels()))
        if unknown:
            raise UserError(f"{path} has series of the class {unknown[0]}, which the training table has none of")
        splits[split] = np.arange(total, total + len(other))
        tables.append(other)
        total += len(other)
    if len(given) == 2:
        splits["train"] = np.arange(len(table))
        return joined(tables), splits
    parts = cut(
        table,
        config.split_by,
        config.block_size,
        max(2, round(1 / config.held_out)),
        0,
        0.5,
        config.split_seed,
        lambda _: None,
    )
    # One part is held out, for whichever of the two has no file.
    splits["train"] = np.sort(np.concatenate([parts["train"], parts["valid"]]))
    splits["valid" if config.valid is None else "test"] = parts["test"]
    return joined(tables), splits


def _read(path: Path, config: SeriesConfig, say: Say) -> SeriesTable:
    labels = config.labels if path == config.train else None
    table = read_series(path, config.named, say, config.samples, labels)
    if table.labels is None:
        raise UserError(f"{path} has no column of labels: name it with data.label, or add one called label")
    return measured_only(table, str(path), say, config.longest)


def _like(table: SeriesTable, other: SeriesTable, path: Path) -> SeriesTable:
    """The other table with the bands of the first, and clouds only where that has them."""
    other = with_bands(other, table.bands, str(path))
    if other.has_dates != table.has_dates:
        raise UserError(f"{path} has {'dates' if other.has_dates else 'positions'} and the training table has not")
    if table.clouds is None:
        return replace(other, clouds=None)
    return other if other.clouds is not None else replace(other, clouds=np.zeros(len(other.days), np.float32))


def _enough(table: SeriesTable, config: SeriesConfig, say: Say) -> SeriesTable:
    labels = np.array(table.with_labels())
    names, counts = np.unique(labels, return_counts=True)
    rare = names[counts < config.fewest]
    if len(rare):
        left = int(counts[counts < config.fewest].sum())
        shown = ", ".join(rare[:10]) + (", …" if len(rare) > 10 else "")
        say(f"left out {len(rare):,} classes of fewer than {config.fewest} series ({left:,} series): {shown}")
        table = table.chosen(np.flatnonzero(~np.isin(labels, rare)))
    kinds = set(table.with_labels()) if len(table) else set()
    if len(kinds) < 2:
        only = next(iter(kinds), "none")
        raise UserError(
            f"the series are all of one class ({only}): there is nothing to tell apart; check data.label or data.fewest"
        )
    return table


def _say_counts(table: SeriesTable, splits: dict[SplitName, Numbers], classes: Sequence[str], say: Say) -> None:
    labels = table.with_labels()
    say(class_sentence(labels, classes))
    lengths, missing = table.lengths, 1 - float(np.isfinite(table.values).mean())
    dates = f"{lengths.min()}" if lengths.min() == lengths.max() else f"{lengths.min()} to {lengths.max()}"
    say(
        f"{len(splits['train']):,} series to train on, {len(splits['valid']):,} to validate, {len(splits['test']):,} to test; "
        f"{dates} dates, {len(table.bands)} band{'s' if len(table.bands) > 1 else ''}"
        + (f", {100 * missing:.1f} % of the values missing" if missing else "")
    )
    if table.clouds is not None:
        say(f"{100 * float((table.clouds >= cloud_data.CLOUDED).mean()):.1f} % of the observations are clouded")
    trained = {labels[number] for number in splits["train"]}
    absent = [name for name in classes if name not in trained]
    if absent:
        say(f"warning: no series to train on is of the class {', '.join(absent[:10])}: it can never be predicted")
    if not all(len(numbers) for numbers in splits.values()):
        raise UserError("one part of the split has no series: set data.folds or data.held_out so that each gets some")


def _in_order(name: str) -> tuple[int, float, str]:
    """Numbers by their size, then words."""
    return (0, float(name), "") if name.lstrip("-").isdigit() else (1, 0.0, name)
