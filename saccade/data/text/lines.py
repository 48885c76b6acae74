"""Lines of text from files and streams, gzipped or not: UTF-8, of a length that a tokenizer can take.

A line ends at \\n and nowhere else: the other separators of Unicode may stand inside a sentence. No more than the longest line that is
allowed is ever read into memory at once.
"""

import gzip
import io
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from saccade.errors import UserError
from saccade.files import open_regular

MAX_CHARACTERS = 100_000  # of a line: a tokenizer needs many times that in memory
_MAX_BYTES = 4 * MAX_CHARACTERS + 2  # in UTF-8, with \r\n


class Stream(Protocol):
    def readline(self, size: int = -1, /) -> bytes: ...


def check_readable(path: Path) -> None:
    if not path.exists():
        raise UserError(f"there is no file {path}: check the path")
    if path.is_dir():
        raise UserError(f"{path} is a directory; give a text file with one sentence per line.")
    if not path.is_file():
        raise UserError(f"{path} is a pipe or a device, which cannot be read twice; give a text file.")
    if not os.access(path, os.R_OK):
        raise UserError(f"{path} cannot be read (permission denied); give a file that you may read.")


def read_lines(path: Path, encoding: str = "utf-8") -> Iterator[str]:
    """The lines of a text file, gzipped or not; it must have some."""
    empty = True
    try:
        with open_regular(path) as raw, _unpacked(raw) as stream:
            for line in decoded_lines(stream, str(path), encoding=encoding):
                empty = False
                yield line
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise UserError(f"{path} is a damaged or cut-off gzip file; copy it again.") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); give a file that you may read.") from None
    if empty:
        raise UserError(f"{path} is empty; give a text file with one sentence per line.")


def decoded_lines(
    stream: Stream, name: str, bad: dict[int, str] | None = None, encoding: str = "utf-8"
) -> Iterator[str]:
    """Lines of UTF-8 text, with or without a byte order mark; the \\r of \\r\\n stays. A line that is not UTF-8, or longer than
    MAX_CHARACTERS, is an error; where `bad` is given, it is an empty line, and `bad` says why under its index."""
    for index, line in enumerate(_lines(stream)):
        try:
            text = line.removesuffix(b"\n").decode("utf-8-sig" if index == 0 and encoding == "utf-8" else encoding)
            problem = "" if len(text) <= MAX_CHARACTERS else f"longer than {MAX_CHARACTERS:,} characters"
            advice = "shorten or delete that line"
        except UnicodeDecodeError as error:
            looks = " (it looks like UTF-16)" if index == 0 and line[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
            text, problem = "", f"byte 0x{error.object[error.start]:02x} is not UTF-8{looks}"
            advice = "save the file as UTF-8"
        if problem and bad is None:
            raise UserError(f"{name}, line {index + 1:,}: {problem}; {advice}")
        if problem and bad is not None:
            bad[index] = f"{name}, line {index + 1:,}: {problem}"
        yield "" if problem else text


def _lines(stream: Stream) -> Iterator[bytes]:
    """The lines with their ends. A line that is too long is replaced by one of question marks that is too long as well."""
    while line := stream.readline(_MAX_BYTES):
        if len(line) == _MAX_BYTES and not line.endswith(b"\n"):
            line = b"?" * (MAX_CHARACTERS + 1)
            while (rest := stream.readline(1 << 20)) and not rest.endswith(b"\n"):
                pass
        yield line


def _unpacked(raw: BinaryIO) -> BinaryIO:
    if cast(io.BufferedReader, raw).peek(2)[:2] != b"\x1f\x8b":
        return raw
    return cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, gzip.GzipFile(fileobj=raw))))
