"""What each column of a table is for: found by its name and by what is in it, or named by a person."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from saccade.config.files import nearest
from saccade.data.series.dates import date_in, looks_like_dates
from saccade.data.series.reading import is_text
from saccade.errors import UserError

_IDS = (
    *("id", "fid", "sample_id", "field_id", "fieldid", "series", "series_id", "sample", "field", "parcel", "plot"),
    *("parcel_id", "plot_id", "point", "point_id", "pixel", "pixel_id", "objectid", "uid", "unique_id", "key"),
)
_DATES = ("date", "datetime", "timestamp", "day", "datum", "acquisition_date", "time", "position", "index", "step", "t")
_LABELS = ("label", "class", "target", "crop", "crop_type", "croptype", "landcover", "land_cover", "category", "labels")
_CLOUDS = ("cloud", "clouds", "cloudy", "clouded", "is_cloud", "cloud_mask", "clm", "cloud_cover")
_PLACES = (
    ("longitude", "latitude"),
    ("lon", "lat"),
    ("lng", "lat"),
    ("long", "lat"),
    ("x", "y"),
    ("easting", "northing"),
    ("col", "row"),
    ("column", "row"),
)
_NEVER_BANDS = (
    "doy",
    "dayofyear",
    "day_of_year",
    "year",
    "month",
    "week",
    "day",
    "cloud_prob",
    "cloud_probability",
    "clp",
)
_FEWEST_DATES = 3  # columns with a date in their name that make a table a wide one


@dataclass(frozen=True)
class Named:
    """The columns that a person named; None where they are to be found."""

    id: str | None = None
    date: str | None = None
    label: str | None = None
    bands: tuple[str, ...] | None = None
    group: str | None = None
    x: str | None = None
    y: str | None = None
    cloud: str | None = None
    season: str | None = None
    day_first: bool | None = None
    same_date: Literal["refuse", "first", "mean"] = "refuse"
    to_predict: bool = False  # then the column of seasons may be missing, and labels with gaps count as none


def dated_columns(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Of a wide table: the date and the band of each column that has a date in its name; empty for a long one."""
    dated = {name: found for name in names if (found := date_in(name)) is not None}
    return dated if len(dated) >= _FEWEST_DATES else {}


def find_id(frame: pd.DataFrame, named: Named) -> str | None:
    return named_column(frame, "id", named.id) or first_of(frame, _IDS)


def find_date(frame: pd.DataFrame, named: Named, origin: str) -> str:
    """By its name if it holds dates or numbers, else the one column that holds dates."""
    chosen = named_column(frame, "date", named.date)
    if chosen is not None:
        return chosen
    by_name = [name for name in frame.columns if name.lower() in _DATES and _may_be_dates(frame[name])]
    by_content = [name for name in frame.columns if name not in by_name and _holds_dates(frame[name])]
    with_dates = [name for name in by_name if looks_like_dates(frame[name])]
    if with_dates or len(by_content) == 1 or by_name:
        return (with_dates or (by_content if len(by_content) == 1 else []) or by_name)[0]
    if len(by_content) > 1:
        raise UserError(f"{origin} has dates in {' and '.join(by_content)}: name the one to use with data.date")
    shown = ", ".join(map(str, frame.columns[:12])) + (", …" if len(frame.columns) > 12 else "")
    raise UserError(
        f"{origin} has no column of dates, nor columns with dates in their names: name it with data.date "
        f"(the columns are {shown})"
    )


def find_label(frame: pd.DataFrame, named: Named) -> str | None:
    return named_column(frame, "label", named.label) or first_of(frame, _LABELS)


def find_cloud(frame: pd.DataFrame, named: Named) -> str | None:
    chosen = named_column(frame, "cloud", named.cloud)
    if chosen is not None:
        return chosen
    found = first_of(frame, _CLOUDS)
    return found if found is not None and pd.api.types.is_numeric_dtype(frame[found]) else None


def find_place(frame: pd.DataFrame, named: Named) -> tuple[str, str] | None:
    if named.x is not None or named.y is not None:
        x, y = named_column(frame, "x", named.x), named_column(frame, "y", named.y)
        if x is None or y is None:
            raise UserError("a place needs data.x and data.y: name the columns of both")
        return x, y
    lower = {name.lower(): name for name in frame.columns}
    for x, y in _PLACES:
        if x in lower and y in lower and pd.api.types.is_numeric_dtype(frame[lower[x]]):
            return lower[x], lower[y]
    return None


def find_bands(
    frame: pd.DataFrame, named: Named, taken: set[str], is_varying: Callable[[str], bool], origin: str
) -> tuple[list[str], list[str]]:
    """The columns of numbers that change within a series, and what was left out, with the reason."""
    if named.bands is not None:
        for name in named.bands:
            named_column(frame, "bands", name)
            require_numbers(frame, name, origin)
        return list(named.bands), []
    bands, ignored = [], []
    for name in frame.columns:
        if name in taken:
            continue
        if name.lower() in _NEVER_BANDS or name.startswith("Unnamed"):
            ignored.append(name)
        elif is_text(frame[name]):
            if _is_mostly_numbers(frame[name]):
                require_numbers(frame, name, origin)
            ignored.append(f"{name} (text)")
        elif not is_varying(name):
            ignored.append(f"{name} (the same on every date)")
        else:
            bands.append(name)
    return bands, ignored


def require_numbers(frame: pd.DataFrame, name: str, origin: str) -> None:
    column = frame[name]
    if not is_text(column) and not pd.api.types.is_datetime64_any_dtype(column):
        return
    numbers = pd.to_numeric(column, errors="coerce")
    wrong = (numbers.isna() & column.notna()).to_numpy().nonzero()[0]
    place = int(wrong[0]) if len(wrong) else 0
    raise UserError(
        f"{origin}: the band {name} should hold numbers, and row {place + 1} holds {str(column.iloc[place])!r}: "
        "leave an empty cell where nothing was measured, or choose the bands with data.bands"
    )


def named_column(frame: pd.DataFrame, setting: str, name: str | None) -> str | None:
    """The column of this name, which must be there."""
    if name is None:
        return None
    if name in frame.columns:
        return name
    names = [str(column) for column in frame.columns]
    near = nearest(name, names)
    shown = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
    hint = f"did you mean {near}?" if near else f"the columns are {shown}"
    raise UserError(f"there is no column {name} (data.{setting}): {hint}")


def first_of(frame: pd.DataFrame, names: Sequence[str]) -> str | None:
    lower = {str(column).lower(): str(column) for column in reversed(frame.columns)}
    return next((lower[name] for name in names if name in lower), None)


def _may_be_dates(column: "pd.Series[Any]") -> bool:
    return looks_like_dates(column) or pd.api.types.is_numeric_dtype(column)


def _holds_dates(column: "pd.Series[Any]") -> bool:
    """Of a column that is not called after dates: numbers such as 20180215 could be anything."""
    return not pd.api.types.is_numeric_dtype(column) and looks_like_dates(column)


def _is_mostly_numbers(column: "pd.Series[Any]") -> bool:
    seen = column.dropna().head(1000).astype(str)
    return (
        bool(len(seen))
        and seen.map(lambda text: bool(re.fullmatch(r"\s*[-+]?[\d.]+(e[-+]?\d+)?\s*", text))).mean() > 0.5
    )
