"""What people see while a command works and nobody knows for how long."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def elapsing(what: str) -> Iterator[None]:
    """Says on a terminal what is being done and for how long already, where nobody knows how long it will take."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as progress:
        progress.add_task(what, total=None)
        yield
