"""Files that are whole or not there: written under another name, then renamed."""

import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from saccade.errors import UserError


def expanded(path: str | os.PathLike[str]) -> Path:
    """The path with ~ as the home it stands for; as it is where there is no such home, so that the file is what is missed."""
    with suppress(ValueError):  # a null byte, which no path has
        return Path(os.path.expanduser(path))
    return Path(path)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a name beside `path` to write to; on success it takes the place of `path`, on any error nothing changes."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path)
        aside.touch()
        allowed = aside.stat().st_mode
        yield aside
        aside.chmod(allowed)  # some libraries write files that only their owner may read
        with aside.open("rb") as written:
            os.fsync(written.fileno())
        aside.replace(path)
    except OSError as error:
        raise UserError(
            f"{path} cannot be written ({error.strerror or error}): choose another place or free some space"
        ) from error
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)


def _sweep(path: Path) -> None:
    """Removes what killed processes left half-written beside `path`."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.partial"):
        owner = left.name.split(".")[-2]
        if owner.isdigit() and not _is_alive(int(owner)):
            with suppress(OSError):
                left.unlink()


def _is_alive(process: int) -> bool:
    if os.name != "posix":
        return True  # elsewhere asking is not so simple; then nothing is swept
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextmanager
def held(directory: Path) -> Iterator[bool]:
    """Whether the directory belongs to this process alone, until the block ends or the process dies; False: another has it."""
    try:
        import fcntl
    except ImportError:  # a system without such locks
        yield True
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        free = True
    except BlockingIOError:
        free = False
    except OSError:  # a file system without them
        free = True
    try:
        yield free
    finally:
        os.close(descriptor)


def make_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"{path} cannot be made a directory ({error.strerror or error}): choose another place"
        ) from None


def write_text(path: Path, text: str) -> None:
    with replacing(path) as aside:
        aside.write_text(text, encoding="utf-8")
