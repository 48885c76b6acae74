"""Running text from files: a .txt, JSON lines with a field of text, either gzipped or not, or a folder of such files.

    for piece in read_documents(Path("books")):
        piece.text, piece.ends                  # a part of a document, and whether it is the last part

A .txt file is one document, a line of JSON is one, too. A document comes in pieces that end at the end of a line where there is one, so
that it may be larger than memory. Nothing is changed but \\r\\n, which becomes \\n.
"""

import gzip
import io
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from saccade.errors import UserError

PIECE_BYTES = 1 << 16  # of a piece, more or less
_JSON = (".jsonl", ".ndjson", ".json")
_TEXT = (".txt", ".text", ".md")
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class Piece:
    text: str
    ends: bool  # whether its document ends with it


def text_files(path: Path) -> list[Path]:
    """The file itself, or those of a folder and of the folders in it, in the order of their names."""
    if not path.exists():
        raise UserError(f"there is no file or folder {path}: check the path")
    if not path.is_dir():
        return [path]
    inside = sorted(file for file in path.rglob("*") if file.is_file() and not file.name.startswith("."))
    files = [file for file in inside if _ending(file) in (*_TEXT, *_JSON)]
    if not files:
        raise UserError(f"{path} has no text in it: give a folder of .txt or .jsonl files, gzipped or not")
    return files


def read_documents(path: Path, field: str = "text") -> Iterator[Piece]:
    """The documents of a file or a folder, one after the other; `field` is that of JSON lines. There is some text."""
    empty = True
    for file in text_files(path):
        for piece in _pieces(file, field):
            empty = empty and not piece.text.strip()
            yield piece
    if empty:
        raise UserError(f"{path} has no text in it: give a file or a folder with some")


def _pieces(file: Path, field: str) -> Iterator[Piece]:
    try:
        with file.open("rb") as raw:
            gzipped = raw.peek(2)[:2] == _GZIP
            stream = io.BufferedReader(cast(io.RawIOBase, gzip.GzipFile(fileobj=raw))) if gzipped else raw
            lines = _decoded(cast(BinaryIO, stream), file)
            yield from _json_documents(lines, file, field) if _ending(file) in _JSON else _one_document(lines)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise UserError(f"{file} is a damaged or cut-off gzip file; copy it again") from None
    except OSError as error:
        raise UserError(f"{file} cannot be read ({error.strerror}); give a file that you may read") from None


def _decoded(stream: BinaryIO, file: Path) -> Iterator[str]:
    """Lines with their ends; a very long one comes in parts."""
    number, left = 1, b""
    while line := stream.readline(PIECE_BYTES):
        first, line = number == 1 and not left, left + line
        if first:
            line = line.removeprefix(b"\xef\xbb\xbf")
        whole = line.endswith(b"\n")
        left = b"" if whole else line[_complete(line) :]
        yield _text(line[: len(line) - len(left)], file, number).replace("\r\n", "\n")
        number += whole
    if left:
        _text(left, file, number)


def _complete(line: bytes) -> int:
    """Up to where a part of a line has whole characters, and no \\r whose \\n may follow."""
    for back in range(1, min(4, len(line)) + 1):
        byte = line[-back]
        if byte >= 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(line) - back if length > back else len(line)
        if byte < 0x80:
            return len(line) - 1 if line.endswith(b"\r") else len(line)
    return len(line)


def _text(part: bytes, file: Path, number: int) -> str:
    try:
        return part.decode()
    except UnicodeDecodeError as error:
        looks = " (it looks like UTF-16)" if number == 1 and part[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
        byte = f"byte 0x{error.object[error.start]:02x} is not UTF-8{looks}"
        raise UserError(f"{file}, line {number:,}: {byte}; save the file as UTF-8") from None


def _one_document(lines: Iterator[str]) -> Iterator[Piece]:
    """As pieces of many lines each."""
    gathered: list[str] = []
    size = 0
    for line in lines:
        if size >= PIECE_BYTES // 2:
            yield Piece("".join(gathered), False)
            gathered, size = [], 0
        gathered.append(line)
        size += len(line)
    if gathered:
        yield Piece("".join(gathered), True)


def _json_documents(lines: Iterator[str], file: Path, field: str) -> Iterator[Piece]:
    for number, line in enumerate(_whole_lines(lines), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise UserError(f"{file}, line {number:,} is not JSON ({error}); give a JSON object a line") from None
        text = row.get(field) if isinstance(row, dict) else None
        if not isinstance(text, str):
            names = ", ".join(map(str, row)) if isinstance(row, dict) else "no fields"
            raise UserError(
                f'{file}, line {number:,} has no text under "{field}" (it has {names}): name its field with data.field'
            )
        yield from in_pieces(text)


def in_pieces(document: str) -> Iterator[Piece]:
    """A document of any length."""
    parts: Sequence[str] = [document[start : start + PIECE_BYTES] for start in range(0, len(document), PIECE_BYTES)]
    yield from (Piece(part, number == len(parts)) for number, part in enumerate(parts, start=1))


def _whole_lines(parts: Iterator[str]) -> Iterator[str]:
    gathered: list[str] = []
    for part in parts:
        gathered.append(part)
        if part.endswith("\n"):
            yield "".join(gathered)
            gathered = []
    if gathered:
        yield "".join(gathered)


def _ending(file: Path) -> str:
    return os.path.splitext(file.name.lower().removesuffix(".gz"))[1]
