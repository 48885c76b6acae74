"""A file of a table into columns: CSV, TSV, semicolons, .gz, parquet; decimal commas are recognised and said."""

import csv
import gzip
import re
import zlib
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd

from saccade.errors import Say, UserError

_COMMA = re.compile(r"-?\d+,\d+(?:[eE][-+]?\d+)?")
_SEEN = 200  # rows that decide whether a column of text is one of numbers


def ending_of(path: Path) -> str:
    """ ".csv" of a.csv and of a.csv.gz."""
    return Path(path.stem).suffix.lower() if path.suffix.lower() == ".gz" else path.suffix.lower()


def read_table(path: Path, say: Say) -> pd.DataFrame:
    if ending_of(path) == ".parquet":
        return _parquet(path)
    start = first_lines(path)
    if not start.strip():
        raise UserError(f"{path} is empty: a table needs a line of names and a row for each observation")
    separator = _separator(start)
    try:
        frame = pd.read_csv(path, sep=separator, low_memory=False, skipinitialspace=True)
    except (pd.errors.ParserError, UnicodeDecodeError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"{path} cannot be read as a table ({reason}): is it a CSV file with a line of names?"
        ) from None
    frame.columns = [str(name).strip().removeprefix("\ufeff") for name in frame.columns]
    if not len(frame):
        raise UserError(f"{path} has names of columns and no rows: add a row for each observation")
    return with_decimal_points(frame, path, say)


def read_text(text: str, say: Say) -> pd.DataFrame:
    """A table that came as text."""
    try:
        frame = pd.read_csv(StringIO(text), sep=_separator(text[:20_000]), skipinitialspace=True)
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"the text cannot be read as a table ({reason}): give CSV with a line of names") from None
    frame.columns = [str(name).strip() for name in frame.columns]
    if not len(frame):
        raise UserError("the text has names of columns and no rows: add a row for each observation")
    return with_decimal_points(frame, Path("the text"), say)


def first_lines(path: Path, characters: int = 20_000) -> str:
    """The start of a text file, unpacked."""
    try:
        if path.suffix.lower() == ".gz":
            with gzip.open(path, "rt", encoding="utf-8-sig", errors="replace") as file:
                return str(file.read(characters))
        with path.open(encoding="utf-8-sig", errors="replace") as plain:
            return plain.read(characters)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path} cannot be read ({reason}): check the file") from None


def with_decimal_points(frame: pd.DataFrame, path: Path, say: Say) -> pd.DataFrame:
    """Columns of numbers with decimal commas become numbers."""
    changed = []
    for name in frame.columns:
        column = frame[name]
        if not is_text(column):
            continue
        known = column.dropna().astype(str).str.strip()
        seen = known.head(_SEEN)
        if len(seen) and seen.map(lambda text: bool(_COMMA.fullmatch(text) or re.fullmatch(r"-?\d+", text))).all():
            with_points = column.astype(str).str.strip().str.replace(",", ".", regex=False)
            numbers = pd.to_numeric(with_points.where(column.notna()), errors="coerce")
            if numbers.notna().sum() == len(known):
                frame[name] = numbers
                changed.append(str(name))
    if changed:
        say(f"{path} writes decimals with commas: {', '.join(changed)} were read as numbers")
    return frame


def is_text(column: "pd.Series[Any]") -> bool:
    return bool(pd.api.types.is_object_dtype(column) or pd.api.types.is_string_dtype(column))


def _separator(start: str) -> str:
    line = next((line for line in start.splitlines() if line.strip()), "")
    names = next(csv.reader([line], delimiter=",")) if line else []
    counts = {mark: line.count(mark) for mark in ("\t", ";", "|")} | {",": len(names) - 1}
    best = max(counts, key=lambda mark: counts[mark])
    return best if counts[best] > 0 else ","


def _parquet(path: Path) -> pd.DataFrame:
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise UserError(f"{path} needs pyarrow, which is not installed: pip install 'saccade[tables]'") from None
    try:
        frame = pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read as parquet ({' '.join(str(error).split())}): check the file") from None
    frame = frame.reset_index() if frame.index.name else frame
    frame.columns = [str(name) for name in frame.columns]
    return frame
