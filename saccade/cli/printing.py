"""How commands print what they found."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def print_json(values: object) -> None:
    import json

    print(json.dumps(values, ensure_ascii=False, indent=1))


def print_columns(columns: list[tuple[str, list[str]]]) -> None:
    """A table on a terminal, tab-separated lines elsewhere."""
    if not sys.stdout.isatty():
        print("\t".join(heading for heading, _ in columns))
        for row in zip(*(cells for _, cells in columns), strict=True):
            print("\t".join(row))
        return
    from rich.console import Console

    Console().print(_table(columns))


def _table(columns: list[tuple[str, list[str]]]) -> "Table":
    from rich.table import Table

    table = Table()
    for index, (heading, _) in enumerate(columns):
        table.add_column(heading, justify="left" if index == 0 else "right")
    for row in zip(*(cells for _, cells in columns), strict=True):
        table.add_row(*row)
    return table
