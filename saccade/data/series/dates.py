"""Dates as people write them, and as days since 1970-01-01.

2018-02-15, 20180215, 2018/02/15, with a time or without, are read as they stand, and in UTC where they name their distance from it, which
summer time changes. 03/04/2018 may be the third of April or the fourth of
March: other dates of the column decide, and where none does, a person has to.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from saccade.errors import UserError

_COMPACT = re.compile(r"(?<!\d)(19|20)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(?!\d)")
_WITH_MARKS = re.compile(r"(?<!\d)(19|20)\d\d[-_.](0[1-9]|1[0-2])[-_.](0[1-9]|[12]\d|3[01])(?!\d)")
_YEAR_LAST = re.compile(r"^\s*(\d{1,2})[./-](\d{1,2})[./-](\d{4})(?:\s.*)?$")
_CLOCK = re.compile(
    r"^(?P<hour>[01]?\d|2[0-3]):(?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d(?:\.\d+)?))?(?:\s*(?P<half>[AaPp])\.?[Mm]\.?)?$"
)


def date_in(name: str) -> tuple[str, str] | None:
    """The ISO date in the name of a column and the rest of the name: "b04_20210104" is ("2021-01-04", "b04")."""
    match = _COMPACT.search(name) or _WITH_MARKS.search(name)
    if match is None:
        return None
    digits = re.sub(r"\D", "", match[0])
    rest = (name[: match.start()] + name[match.end() :]).strip("_-. :")
    return f"{digits[:4]}-{digits[4:6]}-{digits[6:]}", rest


def looks_like_dates(column: "pd.Series[Any]") -> bool:
    """Whether most of the first values are dates."""
    if pd.api.types.is_datetime64_any_dtype(column):
        return True
    texts = [_text(value) for value in column.dropna().head(20)]
    return bool(texts) and sum(_is_date(text) for text in texts) > len(texts) / 2


def days_of(column: "pd.Series[Any]", name: str, day_first: bool | None = None) -> tuple[NDArray[np.float64], bool]:
    """Days since 1970-01-01 and True; or, where the column has numbers that are no dates, these and False."""
    if pd.api.types.is_datetime64_any_dtype(column):
        return _as_days(column), True
    if not looks_like_dates(column):
        numbers = pd.to_numeric(column, errors="coerce")
        if not pd.api.types.is_bool_dtype(column) and numbers.notna().all():
            return numbers.to_numpy(np.float64), False
    texts = column.map(_text)
    read = _read(texts, name, day_first)
    bad = read.isna()
    if bad.any():
        place = int(np.flatnonzero(bad)[0])
        shown = texts.iloc[place] or "an empty cell"
        raise UserError(
            f"column {name} should hold dates, and row {place + 1} holds {shown}: write dates as 2018-02-15, "
            "or name another column with data.date"
        )
    return _as_days(read), True


def iso(day: float) -> str:
    """The date, and the time of day where there is one."""
    moment = np.datetime64(round(day * 86400), "s")
    text = str(moment)
    return text[:10] if text.endswith("T00:00:00") else text[:16].replace("T", " ")


def _read(texts: "pd.Series[Any]", name: str, day_first: bool | None) -> "pd.Series[Any]":
    parts = [match for text in texts if (match := _YEAR_LAST.match(text))]
    if not parts:
        compact = texts.str.fullmatch(r"\d{8}").to_numpy().all() if len(texts) else False
        if compact:
            return pd.to_datetime(texts, format="%Y%m%d", errors="coerce")
        return pd.to_datetime(texts, format="ISO8601", errors="coerce", utc=True).fillna(
            pd.to_datetime(texts.str.replace(r"[/.]", "-", regex=True), format="ISO8601", errors="coerce", utc=True)
        )
    is_day_first = _order([(int(match[1]), int(match[2])) for match in parts], parts[0][0], name, day_first)
    pattern = "%d-%m-%Y" if is_day_first else "%m-%d-%Y"
    halves = texts.str.split(n=1)
    days = pd.to_datetime(halves.str[0].str.replace(r"[/.]", "-", regex=True), format=pattern, errors="coerce")
    return days + _time_of_day(halves.str[1].fillna("0:00"))


def _time_of_day(clocks: "pd.Series[Any]") -> "pd.Series[Any]":
    """Of 9:30, 09:30:15 and 9:30 PM."""
    found = clocks.str.extract(_CLOCK)
    hours, minutes, seconds = (pd.to_numeric(found[name]) for name in ("hour", "minute", "second"))
    half = found["half"].str.lower()
    hours = hours.where(half.isna(), hours % 12 + 12 * (half == "p"))
    return pd.to_timedelta((hours * 60 + minutes) * 60 + seconds.fillna(0), unit="s")


def _order(pairs: Sequence[tuple[int, int]], shown: str, name: str, day_first: bool | None) -> bool:
    """Whether the day stands first: as the dates themselves show, else as a person says."""
    first_is_day = any(first > 12 for first, _ in pairs)
    second_is_day = any(second > 12 for _, second in pairs)
    if first_is_day and second_is_day:
        raise UserError(
            f"column {name} has dates with the day first and with the month first: write them as 2018-02-15"
        )
    if first_is_day or second_is_day:
        if day_first is not None and day_first != first_is_day:
            other = "month" if second_is_day else "day"
            raise UserError(
                f"column {name} has the {other} first in some dates, and data.day_first = {str(day_first).lower()} says "
                "otherwise: leave data.day_first out"
            )
        return first_is_day
    if day_first is None:
        raise UserError(
            f"the dates of column {name}, such as {shown}, may have the day or the month first: "
            "set data.day_first to true or false, or write them as 2018-02-15"
        )
    return day_first


def _is_date(text: str) -> bool:
    year_first = re.match(r"(19|20)\d\d[-/._](0?[1-9]|1[0-2])[-/._](0?[1-9]|[12]\d|3[01])(\D|$)", text)
    return bool(year_first or _COMPACT.fullmatch(text) or _YEAR_LAST.match(text))


def _text(value: Any) -> str:
    if value is None or value != value:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def _as_days(moments: "pd.Series[Any]") -> NDArray[np.float64]:
    plain = moments.dt.tz_convert(None) if getattr(moments.dt, "tz", None) is not None else moments
    seconds: NDArray[np.float64] = plain.to_numpy("datetime64[s]").astype(np.int64).astype(np.float64)
    return seconds / 86400
