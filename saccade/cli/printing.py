"""How commands print what they found."""

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from saccade.printable import cell, visible_json

if TYPE_CHECKING:
    from rich.table import Table


Printed = TypeVar("Printed")

_MANY = 100  # what a person would wait for without a word


def with_progress(answers: Iterable[Printed], count: int, printed_meanwhile: bool) -> Iterator[Printed]:
    """The same, under a bar on the terminal where there are many and one does not see them come."""
    if count < _MANY or not sys.stderr.isatty() or (printed_meanwhile and sys.stdout.isatty()):
        yield from answers
        return
    from rich.console import Console
    from rich.progress import Progress

    # Unless told not to, it would take what is printed to the terminal, too.
    with Progress(console=Console(stderr=True), transient=True, redirect_stdout=False) as progress:
        yield from progress.track(answers, count, description="working")


def print_json(values: object) -> None:
    import json

    print(visible_json(json.dumps(values, ensure_ascii=False, indent=1)))


def print_columns(columns: list[tuple[str, list[str]]]) -> None:
    """A table on a terminal, tab-separated lines elsewhere."""
    columns = [(cell(heading), [cell(text) for text in cells]) for heading, cells in columns]
    if not sys.stdout.isatty():
        print("\t".join(heading for heading, _ in columns))
        for row in zip(*(cells for _, cells in columns), strict=True):
            print("\t".join(row))
        return
    from rich.console import Console

    Console().print(_table(columns))


def _table(columns: list[tuple[str, list[str]]]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for index, (heading, _) in enumerate(columns):
        table.add_column(Text(heading), justify="left" if index == 0 else "right")
    for row in zip(*(cells for _, cells in columns), strict=True):
        table.add_row(*map(Text, row))
    return table
