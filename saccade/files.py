"""Files that are complete or absent: written under another name, then renamed. Only files are read, and of a limited size."""

import glob
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from saccade.errors import UserError

try:
    import fcntl
except ImportError:  # a system without such locks
    fcntl = None  # type: ignore[assignment]


MOST_BYTES = 1 << 26  # of a file that is read whole, unless its reader says otherwise


def expanded(path: str | os.PathLike[str]) -> Path:
    """The path with ~ expanded; unchanged where there is no such home, so that the error names the missing file."""
    with suppress(ValueError):  # a null byte
        return Path(os.path.expanduser(path))
    return Path(path)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a name beside `path` to write to. On success the file replaces `path`, on any error nothing changes."""
    aside = _aside(path)
    with _cleaned_up(path, aside):
        allowed = _mode_of_new(aside)
        yield aside
        if aside.stat().st_mode != allowed:  # some libraries write files that only their owner may read
            with suppress(OSError):
                aside.chmod(allowed)
        _flush(aside)
        aside.replace(path)


@contextmanager
def replacing_directory(path: Path) -> Iterator[Path]:
    """Yields an empty directory beside `path` to fill. On success it replaces `path`, on any error nothing changes."""
    path = path.absolute()
    aside = _aside(path)
    with _cleaned_up(path, aside):
        aside.mkdir()
        yield aside
        for file in aside.rglob("*"):
            if file.is_file():
                _flush(file)
        if not path.exists():
            aside.rename(path)
            return
        older = path.with_name(f".{path.name}.older.{os.getpid()}.partial")
        path.rename(older)
        aside.rename(path)
        _remove(older)


@contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """The same for a directory that must not exist yet, or be empty."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"{path.absolute()} exists already: choose a new directory, or remove this one first")
    with replacing_directory(path) as aside:
        yield aside


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.partial")


@contextmanager
def _cleaned_up(path: Path, aside: Path) -> Iterator[None]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path)
        _remove(aside)
        yield
    except OSError as error:
        raise UserError(
            f"{path} cannot be written ({error.strerror or error}): choose another place or free some space"
        ) from error
    finally:
        _remove(aside)


def _mode_of_new(path: Path) -> int:
    """The permissions of a file that is created there."""
    path.touch()
    mode = path.stat().st_mode
    path.unlink()
    return mode


def _flush(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _remove(path: Path) -> None:
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _sweep(path: Path) -> None:
    """Removes what killed processes left half-written beside `path`."""
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.*.partial"):
        process = leftover.name.split(".")[-2]
        if process.isdigit() and not _is_alive(int(process)):
            _remove(leftover)


def _is_alive(process: int) -> bool:
    if os.name != "posix":
        return True  # there is no such simple test elsewhere: nothing is removed
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextmanager
def held(directory: Path) -> Iterator[bool]:
    """Whether this process has locked the directory, until the block ends or the process dies. False: another holds the lock, or has
    just replaced the directory. It works between processes of one machine, where the file system has locks; elsewhere it is always True."""
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except FileNotFoundError:
        yield False
        return
    except OSError as error:
        if fcntl is not None:
            raise UserError(f"{directory} cannot be opened ({error.strerror or error}): choose another place") from None
        yield True  # a system that cannot open directories
        return
    try:
        yield _is_locked(descriptor) and identity(directory) == _numbers(os.fstat(descriptor))
    finally:
        os.close(descriptor)


def _is_locked(descriptor: int) -> bool:
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def identity(path: Path) -> tuple[int, int] | None:
    """Device and inode number: equal as long as it is the same file or directory; None if there is none."""
    with suppress(OSError):
        return _numbers(path.stat())
    return None


def _numbers(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def make_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{path} cannot be created ({error.strerror or error}): choose another place") from None


def write_text(path: Path, text: str) -> None:
    with replacing(path) as aside:
        aside.write_text(text, encoding="utf-8")


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """The file, opened to read. A pipe, a socket or a device would block for ever or never end."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        kind = "a folder" if stat.S_ISDIR(mode) else "a pipe" if stat.S_ISFIFO(mode) else "a device or a socket"
        raise NotAFile(f"it is {kind}, not a file")
    return open(descriptor, "rb")


class NotAFile(OSError):
    """A pipe, a device, a socket or a folder where a file is wanted."""

    @property
    def strerror(self) -> str:  # type: ignore[override]
        return str(self)


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise ValueError(f"it has {size:,} bytes and may have at most {most:,}")
        return file.read(size)


def read_text(path: Path, most: int = MOST_BYTES) -> str:
    return read_bytes(path, most).decode("utf-8")
