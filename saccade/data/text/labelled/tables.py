"""Rows of named cells from CSV, TSV, JSON lines and parquet files, gzipped or not.

A CSV or TSV without a line of names has the columns "1", "2", ...; `has_names` says which it is.
"""

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saccade.data.text.lines import check_readable, read_lines
from saccade.errors import UserError

JSON_ENDINGS = (".jsonl", ".ndjson", ".json")
ENDINGS = (".csv", ".tsv", ".parquet", *JSON_ENDINGS)
_DELIMITERS = (",", ";", "\t", "|")


@dataclass(frozen=True)
class Table:
    path: Path
    columns: tuple[str, ...]
    rows: list[Sequence[Any]]  # a cell for each column
    places: list[str]  # of each row, for messages: "reviews.csv, line 7"
    may_be_nameless: bool = False  # the first row of a CSV or TSV may hold names

    def column(self, name: str) -> list[Any]:
        place = self.columns.index(name)
        return [row[place] for row in self.rows]

    def named(self) -> "Table":
        """With the first row as names."""
        names = tuple(str(cell).strip() for cell in self.rows[0])
        return Table(self.path, names, self.rows[1:], self.places[1:])


def ending_of(path: Path) -> str:
    return Path(path.name.lower().removesuffix(".gz")).suffix


def read_table(path: Path, encoding: str = "utf-8") -> Table:
    check_readable(path)
    ending = ending_of(path)
    if ending == ".parquet":
        return _parquet(path)
    return _json(path, encoding) if ending in JSON_ENDINGS else _separated(path, ending == ".tsv", encoding)


def _separated(path: Path, by_tabs: bool, encoding: str) -> Table:
    lines = (f"{line}\n" for line in read_lines(path, encoding))
    first = next(lines)
    delimiter = "\t" if by_tabs else max(_DELIMITERS, key=first.count)

    def every() -> Iterator[str]:
        yield first
        yield from lines

    # Tables with tabs are rarely quoted, and quotation marks in a text are no quoting.
    reader = csv.reader(every(), delimiter=delimiter, quoting=csv.QUOTE_NONE if by_tabs else csv.QUOTE_MINIMAL)
    rows, places = list[Sequence[Any]](), list[str]()
    try:
        begin = 1
        for row in reader:
            place, begin = f"{path}, line {begin:,}", reader.line_num + 1
            if not row:
                continue
            if rows and len(row) != len(rows[0]):
                raise UserError(
                    f"{place}: {len(row)} columns instead of {len(rows[0])}; correct that line, "
                    'or put texts that contain the separator in "quotation marks"'
                )
            rows.append(row)
            places.append(place)
    except csv.Error as error:
        raise UserError(f"{path}, line {reader.line_num:,}: {error}; correct that line") from None
    if not rows:
        raise UserError(f"{path} is empty: give a file with a text and its label in every line")
    return Table(path, tuple(str(number + 1) for number in range(len(rows[0]))), rows, places, may_be_nameless=True)


def _json(path: Path, encoding: str) -> Table:
    """A record in every line, or one list of records."""
    records, places = list[dict[str, Any]](), list[str]()
    lines = list(read_lines(path, encoding))
    if lines[0].lstrip().startswith("["):
        whole = _record("\n".join(lines), f"{path}")
        parts = [(record, f"{path}, record {number:,}") for number, record in enumerate(whole, 1)]
    else:
        parts = [
            (_record(line, f"{path}, line {n:,}"), f"{path}, line {n:,}")
            for n, line in enumerate(lines, 1)
            if line.strip()
        ]
    for record, place in parts:
        if not isinstance(record, dict):
            raise UserError(f'{place}: not a record; write one {{"text": "...", "label": "..."}} per line')
        records.append(record)
        places.append(place)
    columns = tuple(dict.fromkeys(name for record in records for name in record))
    if not columns:
        raise UserError(f"{path} is empty: give a file with a text and its label in every line")
    return Table(path, columns, [[record.get(name) for name in columns] for record in records], places)


def _record(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        problem = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise UserError(
            f'{place}: not valid JSON ({problem}); write one {{"text": "...", "label": "..."}} per line'
        ) from None


def _parquet(path: Path) -> Table:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise UserError(f"{path} needs the package pyarrow: pip install 'saccade[tables]'") from None
    try:
        table = parquet.read_table(path)
    except (ArrowException, OSError) as error:
        raise UserError(f"{path} cannot be read as parquet ({error}): copy it again") from None
    columns = tuple(table.column_names)
    rows: list[Sequence[Any]] = list(zip(*(table.column(name).to_pylist() for name in columns), strict=True))
    return Table(path, columns, rows, [f"{path}, row {number + 1:,}" for number in range(len(rows))])
