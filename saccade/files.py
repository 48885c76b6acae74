"""Files that are whole or not there: written under another name, then renamed."""

import glob
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from saccade.errors import UserError

try:
    import fcntl
except ImportError:  # a system without such locks
    fcntl = None  # type: ignore[assignment]


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
        allowed = _mode_of_new(aside)
        yield aside
        if aside.stat().st_mode != allowed:  # some libraries write files that only their owner may read
            with suppress(OSError):
                aside.chmod(allowed)
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


def _mode_of_new(path: Path) -> int:
    """Who may do what with a file that is made there."""
    path.touch()
    mode = path.stat().st_mode
    path.unlink()
    return mode


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
    """Whether the directory belongs to this process alone, until the block ends or the process dies; False: another has it, or
    took it away just now. Among processes of one machine, where system and file system have such locks; elsewhere it is always True."""
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except FileNotFoundError:
        yield False
        return
    except OSError as error:
        if fcntl is not None:
            raise UserError(f"{directory} cannot be opened ({error.strerror or error}): choose another place") from None
        yield True  # a system that opens no directories
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
    """What stays the same of a file or directory as long as it is that very one; None if nothing is there."""
    with suppress(OSError):
        return _numbers(path.stat())
    return None


def _numbers(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


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
