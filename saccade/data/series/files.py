"""From a file to a SeriesTable: long and wide tables, archives of series, arrays. What was found is said."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from saccade.data.series import archive
from saccade.data.series.columns import (
    Named,
    dated_columns,
    find_bands,
    find_cloud,
    find_date,
    find_id,
    find_label,
    find_place,
    named_column,
    require_numbers,
)
from saccade.data.series.dates import days_of, iso
from saccade.data.series.reading import is_text, read_table
from saccade.data.series.table import SeriesTable
from saccade.errors import Say, UserError


def read_series(
    path: Path, named: Named, say: Say, samples: Path | None = None, labels: Path | None = None
) -> SeriesTable:
    """`samples` is a second table with a row for each id (place, group, label); `labels` is for arrays of numbers."""
    if archive.is_archive(path):
        return archive.read_archive(path, labels, say)
    frame = read_table(path, say)
    return from_frame(frame, named, str(path), say, None if samples is None else read_table(samples, say))


def from_frame(
    frame: pd.DataFrame, named: Named, origin: str, say: Say, samples: pd.DataFrame | None = None
) -> SeriesTable:
    dated = dated_columns([str(name) for name in frame.columns])
    if dated and named.date is None:
        table, said = _from_wide(frame, dated, named, origin, samples)
    else:
        table, said = _from_long(frame, named, origin, samples, say)
    say(f"{origin}: {said}")
    return table


def _from_long(
    frame: pd.DataFrame, named: Named, origin: str, samples: pd.DataFrame | None, say: Say
) -> tuple[SeriesTable, str]:
    date = find_date(frame, named, origin)
    id_column = find_id(frame, named)
    keys = _keys(frame, id_column, named)
    days, has_dates = days_of(frame[date], date, named.day_first)
    if named.same_date != "refuse":
        frame, keys, days = _once_a_date(frame, keys, days, named, say, origin)
    numbers, ids = pd.factorize(keys, sort=False)
    label, cloud = _own_label(frame, named, samples), find_cloud(frame, named)
    place, group = _own_place(frame, named, samples), _in(frame, named.group)
    taken = {name for name in (id_column, date, label, cloud, group, named.season, *(place or ())) if name}
    grouped = frame.groupby(numbers, sort=False)
    bands, ignored = find_bands(frame, named, taken, lambda name: bool((grouped[name].nunique() > 1).any()), origin)
    if not bands:
        raise UserError(f"{origin} has no column of numbers that change from date to date: name them with data.bands")
    order = np.lexsort((days, numbers))
    _require_single_dates(numbers[order], days[order], ids, has_dates, origin)
    if (order != np.arange(len(order))).any():
        say(f"{origin}: rows were out of order and were sorted by {id_column or 'series'} and {date}")
    counts = np.bincount(numbers, minlength=len(ids))
    values = frame[bands].to_numpy(np.float32)[order]
    require_measured(values, origin)
    first = frame.iloc[np.sort(np.unique(numbers, return_index=True)[1])]
    table = SeriesTable(
        ids=tuple(map(str, ids)),
        bands=tuple(map(str, bands)),
        starts=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        days=days[order],
        values=values,
        has_dates=has_dates,
        labels=_one_label(frame, label, numbers, ids, origin),
        groups=_texts(first, group),
        places=None if place is None else first[list(place)].to_numpy(np.float64),
        in_degrees=_is_in_degrees(place),
        clouds=_clouds(frame, cloud, order),
    )
    fields = _texts(first, id_column)
    table = with_samples(table, samples, named, fields)
    if named.season is not None and table.groups is None and table.places is None:
        table = replace(table, groups=fields)  # the seasons of one field stay on one side of a split
    parts = [f"id {id_column}" if id_column else "one series", f"date {date}", f"bands {', '.join(bands)}"]
    return table, _said(parts, label, place, group, cloud, ignored)


def _from_wide(
    frame: pd.DataFrame,
    dated: dict[str, tuple[str, str]],
    named: Named,
    origin: str,
    samples: pd.DataFrame | None,
) -> tuple[SeriesTable, str]:
    dates = sorted({date for date, _ in dated.values()})
    bands = list(dict.fromkeys(band or "value" for _, band in dated.values()))
    if named.bands is not None:
        missing = [band for band in named.bands if band not in bands]
        if missing:
            raise UserError(f"data.bands names {missing[0]}, and the columns with dates are of {', '.join(bands)}")
        bands = list(named.bands)
    values = np.full((len(frame), len(dates), len(bands)), np.nan, np.float32)
    written: dict[tuple[str, str], str] = {}
    for column, (date, band) in dated.items():
        band = band or "value"
        if band not in bands:
            continue
        if (date, band) in written:
            raise UserError(f"{origin} has {band} of {date} twice: in {written[date, band]} and in {column}")
        written[date, band] = column
        values[:, dates.index(date), bands.index(band)] = _numbers(frame, column, origin)
    id_column = find_id(frame, named)
    label, place = _own_label(frame, named, samples), _own_place(frame, named, samples)
    group = _in(frame, named.group)
    keys = frame[id_column] if id_column else pd.Series(np.arange(1, len(frame) + 1))
    doubled = keys[keys.duplicated()]
    if len(doubled):
        raise UserError(
            f"{origin} has more than one row for {id_column} {doubled.iloc[0]}: each row should be a series of its own; "
            "name the column that tells them apart with data.id"
        )
    require_measured(values, origin)
    days = np.array([np.datetime64(date).astype("datetime64[D]").astype(np.int64) for date in dates], np.float64)
    count = len(frame)
    table = SeriesTable(
        ids=tuple(map(_as_name, keys)),
        bands=tuple(bands),
        starts=np.arange(count + 1, dtype=np.int64) * len(dates),
        days=np.tile(days, count),
        values=values.reshape(-1, len(bands)),
        labels=_one_label(frame, label, np.arange(count), list(keys), origin),
        groups=_texts(frame, group),
        places=None if place is None else frame[list(place)].to_numpy(np.float64),
        in_degrees=_is_in_degrees(place),
    )
    table = with_samples(table, samples, named)
    shown = f"{len(dates)} dates from {dates[0]} to {dates[-1]} as columns of {', '.join(bands)}"
    return table, _said([f"id {id_column}" if id_column else "a series a row", shown], label, place, group, None, [])


def with_samples(
    table: SeriesTable, samples: pd.DataFrame | None, named: Named, fields: tuple[str, ...] | None = None
) -> SeriesTable:
    """With place, group and label from a table that has a row for each id; `fields` are the ids that seasons share."""
    if samples is None:
        if named.group is not None and table.groups is None:
            raise UserError(f"there is no column {named.group} (data.group): check its name")
        return table
    if named.to_predict and table.labels is not None:
        return table
    key = find_id(samples, named)
    if key is None:
        raise UserError("the table of data.samples has no column of ids: name it with data.id")
    rows = samples.set_index(samples[key].map(_as_name))
    rows = rows[~rows.index.duplicated()]
    wanted = fields or table.ids
    missing = [name for name in dict.fromkeys(wanted) if name not in rows.index]
    if missing:
        raise UserError(f"{len(missing):,} ids, such as {missing[0]}, are missing in the table of data.samples")
    rows = rows.loc[list(wanted)]
    place = find_place(rows, named) if table.places is None else None
    label = find_label(rows, named) if table.labels is None else None
    group = named_column(rows, "group", named.group) if table.groups is None else None
    return replace(
        table,
        places=rows[list(place)].to_numpy(np.float64) if place else table.places,
        in_degrees=_is_in_degrees(place) if table.places is None else table.in_degrees,
        labels=_texts(rows, label) if label else table.labels,
        groups=_texts(rows, group) if table.groups is None else table.groups,
    )


def require_measured(values: Any, origin: str) -> None:
    if not np.isfinite(values).any():
        raise UserError(f"{origin}: not one value was measured, all cells of its bands are empty")


def _keys(frame: pd.DataFrame, id_column: str | None, named: Named) -> "pd.Series[Any]":
    if id_column is None:
        return pd.Series(np.zeros(len(frame), np.int64))
    keys = frame[id_column].map(_as_name)
    season = _in(frame, named.season) if named.to_predict else named_column(frame, "season", named.season)
    return keys if season is None else keys + "/" + frame[season].map(_as_name)


def _as_name(value: object) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _once_a_date(
    frame: pd.DataFrame, keys: "pd.Series[Any]", days: Any, named: Named, say: Say, origin: str
) -> tuple[pd.DataFrame, "pd.Series[Any]", Any]:
    """One row for each id and date: the first, or the mean of what was measured."""
    both = pd.DataFrame({"key": keys.to_numpy(), "day": days})
    doubled = both.duplicated().to_numpy()
    if not doubled.any():
        return frame, keys, days
    say(f"{origin}: {int(doubled.sum()):,} rows are of an id and date that another row has: {named.same_date} is taken")
    kept = frame.loc[~doubled].copy()
    if named.same_date == "mean":
        group = both.groupby(["key", "day"], sort=False).ngroup().to_numpy()
        for name in frame.columns[frame.dtypes.map(pd.api.types.is_float_dtype)]:
            kept[name] = frame[name].groupby(group).mean().to_numpy()
    return kept.reset_index(drop=True), keys[~doubled].reset_index(drop=True), days[~doubled]


def _require_single_dates(numbers: Any, days: Any, ids: Any, has_dates: bool, origin: str) -> None:
    twice = np.flatnonzero((np.diff(numbers) == 0) & (np.diff(days) == 0))
    if len(twice):
        place = int(twice[0])
        day = iso(days[place]) if has_dates else f"position {days[place]:g}"
        raise UserError(
            f"{origin} has {day} of {ids[numbers[place]]} more than once ({len(twice):,} such rows): keep one row for each "
            "id and date, or set data.same_date to first or mean; if seasons share an id, tell them apart with data.season"
        )


def _own_label(frame: pd.DataFrame, named: Named, samples: pd.DataFrame | None) -> str | None:
    """The column of labels; none where a person names one that the second table should have, or where gaps do no harm."""
    if samples is not None and named.label is not None and named.label not in frame.columns:
        return None
    label = find_label(frame, named)
    return None if label is not None and named.to_predict and frame[label].isna().any() else label


def _own_place(frame: pd.DataFrame, named: Named, samples: pd.DataFrame | None) -> tuple[str, str] | None:
    is_elsewhere = samples is not None and named.x is not None and named.x not in frame.columns
    return None if is_elsewhere else find_place(frame, named)


def _one_label(frame: pd.DataFrame, label: str | None, numbers: Any, ids: Any, origin: str) -> tuple[str, ...] | None:
    if label is None:
        return None
    column = frame[label]
    if column.isna().any():
        row = int(np.flatnonzero(column.isna())[0])
        raise UserError(f"{origin}: row {row + 1} has no {label}: give every series a label, or leave it out")
    texts = column.map(_as_name)
    codes, names = pd.factorize(texts)
    first = np.full(len(ids), -1, np.int64)
    first[numbers[::-1]] = codes[::-1]
    wrong = np.flatnonzero(first[numbers] != codes)
    if len(wrong):
        series = int(numbers[wrong[0]])
        raise UserError(
            f"{origin} gives {ids[series]} two labels, {names[first[series]]} and {names[codes[wrong[0]]]}: a series has one; "
            "if each season has its own, name the column of seasons with data.season"
        )
    return tuple(str(names[code]) for code in first)


def _clouds(frame: pd.DataFrame, cloud: str | None, order: Any) -> Any:
    if cloud is None:
        return None
    shares = frame[cloud].to_numpy(np.float32)[order]
    largest = float(np.nanmax(shares)) if len(shares) else 1.0
    return np.nan_to_num(shares / (100.0 if largest > 1 else 1.0)).clip(0, 1)


def _numbers(frame: pd.DataFrame, column: str, origin: str) -> Any:
    if is_text(frame[column]):
        require_numbers(frame, column, origin)
    return frame[column].to_numpy(np.float32)


def _in(frame: pd.DataFrame, name: str | None) -> str | None:
    return name if name is not None and name in frame.columns else None


def _texts(frame: pd.DataFrame, name: str | None) -> tuple[str, ...] | None:
    return None if name is None else tuple(_as_name(value) for value in frame[name])


def _is_in_degrees(place: tuple[str, str] | None) -> bool:
    return place is not None and place[0].lower().startswith(("lo", "ln"))


def _said(parts: list[str], label: Any, place: Any, group: Any, cloud: Any, ignored: list[str]) -> str:
    parts += [f"label {label}"] if label else []
    parts += [f"place {place[0]}, {place[1]}"] if place else []
    parts += [f"group {group}"] if group else []
    parts += [f"clouds {cloud}"] if cloud else []
    parts += [f"not used: {', '.join(ignored)}"] if ignored else []
    return "; ".join(parts)
