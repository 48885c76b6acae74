"""Where an export is written: a new directory, complete or absent."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from saccade.errors import UserError
from saccade.files import replacing_directory


@contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """Yields an empty directory beside `path`; on success it becomes `path`, on any error nothing is left of it."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"{path.absolute()} is there already: choose a new directory, or remove this one first")
    with replacing_directory(path) as aside:
        yield aside
