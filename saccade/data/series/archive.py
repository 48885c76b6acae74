"""Files of series without a line of names: .ts, .arff and .tsv of the UCR and UEA archives, and .npy with labels beside it."""

import re
from pathlib import Path

import numpy as np
import pandas as pd

from saccade.data.series.reading import ending_of, first_lines
from saccade.data.series.table import Floats, SeriesTable, joined, of_equal_length
from saccade.errors import Say, UserError


def is_archive(path: Path) -> bool:
    """By the ending; a table of tabs with numbers alone in its first line is one of the UCR archive."""
    ending = ending_of(path)
    if ending in (".ts", ".arff", ".npy"):
        return True
    if ending not in (".tsv", ".txt"):
        return False
    line = next((line for line in first_lines(path).splitlines() if line.strip()), "")
    cells = line.split()
    return len(cells) > 3 and all(_is_number(cell) for cell in cells)


def read_archive(path: Path, labels: Path | None, say: Say) -> SeriesTable:
    ending = ending_of(path)
    if ending == ".npy":
        table = _arrays(path, labels)
    elif ending == ".ts":
        table = _ts(path)
    elif ending == ".arff":
        table = _arff(path)
    else:
        table = _tsv(path)
    if not np.isfinite(table.values).any():
        raise UserError(f"{path}: not one value was measured")
    lengths = table.lengths
    shown = f"{lengths.min()}" if lengths.min() == lengths.max() else f"{lengths.min()} to {lengths.max()}"
    say(f"{path}: {len(table):,} series of {shown} values, bands {', '.join(table.bands)}, positions for dates")
    return table


def _tsv(path: Path) -> SeriesTable:
    frame = pd.read_csv(path, sep=r"\s+", header=None)
    values = frame.iloc[:, 1:].to_numpy(np.float32)[..., None]
    names = tuple(_as_label(value) for value in frame[0])
    return of_equal_length(_ids(len(frame)), ("value",), values, labels=names)


def _ts(path: Path) -> SeriesTable:
    lines = [line.strip() for line in _all_lines(path)]
    head = [line.lower() for line in lines if line.startswith("@")]
    has_labels = any(line.startswith("@classlabel true") for line in head)
    start = next((place for place, line in enumerate(lines) if line.lower() == "@data"), None)
    if start is None:
        raise UserError(f"{path} has no line @data: is it a .ts file of the UEA archive?")
    rows = [line for line in lines[start + 1 :] if line and not line.startswith("#")]
    return _of_rows(path, [_ts_row(row, has_labels, path) for row in rows])


def _ts_row(line: str, has_labels: bool, path: Path) -> tuple[list[list[float]], str | None]:
    if "(" in line:
        raise UserError(
            f"{path} gives a time with every value, which is not read: write it as a CSV of id, date and value"
        )
    parts = line.split(":")
    label = parts.pop().strip() if has_labels else None
    return [[_number(cell, path) for cell in part.split(",")] for part in parts], label


def _arff(path: Path) -> SeriesTable:
    lines = [line.strip() for line in _all_lines(path)]
    start = next((place for place, line in enumerate(lines) if line.lower() == "@data"), None)
    if start is None:
        raise UserError(f"{path} has no line @data: is it an .arff file?")
    rows = []
    for line in lines[start + 1 :]:
        if not line or line.startswith("%"):
            continue
        quoted = re.fullmatch(r"""(['"])(.*)\1\s*,\s*(.*)""", line)
        inside, label = (quoted[2], quoted[3]) if quoted else line.rsplit(",", 1)
        variables = inside.replace("\\n", "\n").split("\n")
        rows.append(([[_number(cell, path) for cell in part.split(",")] for part in variables], label.strip("'\" ")))
    return _of_rows(path, rows)


def _of_rows(path: Path, rows: "list[tuple[list[list[float]], str | None]]") -> SeriesTable:
    """Rows of variables by positions, each as long as it likes."""
    if not rows:
        raise UserError(f"{path} has no series after @data")
    variables = len(rows[0][0])
    tables = []
    for number, (row, label) in enumerate(rows, 1):
        longest = max(len(part) for part in row)
        if len(row) != variables:
            raise UserError(f"{path}: series {number} has {len(row)} variables and the first one has {variables}")
        values = np.full((1, longest, variables), np.nan, np.float32)
        for place, part in enumerate(row):
            values[0, : len(part), place] = part
        bands = ("value",) if variables == 1 else tuple(f"dimension {place}" for place in range(1, variables + 1))
        tables.append(of_equal_length((str(number),), bands, values, labels=None if label is None else (label,)))
    return joined(tables)


def _arrays(path: Path, labels: Path | None) -> SeriesTable:
    """(series, length) or (series, length, variables), and the labels beside it: NAME_labels.npy, unless another file is named."""
    values = _array(path)
    if values.ndim not in (2, 3) or not np.issubdtype(values.dtype, np.number):
        raise UserError(
            f"{path} is an array {values.shape} of {values.dtype}: give numbers (series, dates) or (series, dates, bands)"
        )
    values = values[..., None] if values.ndim == 2 else values
    place = labels or next(
        (
            near
            for name in (f"{path.stem}_labels", f"{path.stem}_y", "labels", "y")
            if (near := path.with_name(f"{name}.npy")).is_file()
        ),
        None,
    )
    names = None if place is None else _labels(place, len(values))
    bands = ("value",) if values.shape[2] == 1 else tuple(f"band {number}" for number in range(1, values.shape[2] + 1))
    return of_equal_length(_ids(len(values)), bands, values, labels=names)


def _labels(path: Path, count: int) -> tuple[str, ...]:
    found = _array(path) if path.suffix == ".npy" else np.array(path.read_text(encoding="utf-8").split("\n")[:count])
    if found.shape != (count,):
        raise UserError(f"{path} has labels of shape {found.shape} for {count:,} series: give one for each")
    return tuple(_as_label(value) for value in found.tolist())


def _array(path: Path) -> Floats:
    try:
        array: Floats = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} cannot be read as an array ({' '.join(str(error).split())}): save it with numpy.save"
        ) from None
    return array


def _all_lines(path: Path) -> list[str]:
    return first_lines(path, 1 << 31).splitlines()


def _ids(count: int) -> tuple[str, ...]:
    return tuple(str(number) for number in range(1, count + 1))


def _as_label(value: object) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _number(cell: str, path: Path) -> float:
    cell = cell.strip()
    if cell in ("?", "NaN", "nan", ""):
        return float("nan")
    try:
        return float(cell)
    except ValueError:
        raise UserError(
            f"{path} has {cell[:40]!r} where a number should stand: write ? where nothing was measured"
        ) from None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
