"""Directories that are whole or not there: filled under another name, then renamed."""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from saccade.errors import UserError


@contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """Yields an empty directory beside `path`; on success it becomes `path`, on any error nothing is left of it."""
    path = path.absolute()
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"{path} is there already: choose a new directory, or remove this one first")
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        aside.mkdir(parents=True)
        yield aside
        for file in aside.rglob("*"):
            if file.is_file():
                _flush(file)
        if path.exists():
            path.rmdir()
        aside.rename(path)
    except OSError as error:
        raise UserError(
            f"{path} cannot be written ({error.strerror or error}): choose another place or free some space"
        ) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _flush(file: Path) -> None:
    with file.open("rb") as written:
        os.fsync(written.fileno())
