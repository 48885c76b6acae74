"""Reading files that a stranger may have written: headers, lists and arrays of a run, checked before anything is done with them.

    read_json(path, Header)                      the types, lengths and limits of a `Stored` class, nothing else
    map_array(path, "|u1", (None, 3, 32, 32))    an array of just this dtype and shape, in a file of just this size

Whatever is wrong is an OSError or a ValueError with a reason, for the caller's sentence. A pipe or a device is refused, never waited for.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.lib import format as npy
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from saccade.files import MOST_BYTES, open_regular, read_bytes

_LONGEST_NPY_HEADER = 1 << 10

Kind = TypeVar("Kind")


class Stored(BaseModel):
    """What a JSON file holds: no value is turned into another type, and keys of later versions are ignored."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", allow_inf_nan=False)


def read_json(path: Path, kind: type[Kind], most: int = MOST_BYTES) -> Kind:
    return parsed(read_bytes(path, most), kind)


def read_json_lines(path: Path, kind: type[Kind], most: int = MOST_BYTES) -> Iterator[Kind]:
    return parsed_lines(read_bytes(path, most).split(b"\n")[:-1], kind)


def parsed_lines(lines: Iterable[bytes], kind: type[Kind], first: int = 1) -> Iterator[Kind]:
    """Lines of JSON as values of this type; `first` is the number of the first one."""
    adapter = TypeAdapter(kind)
    for number, line in enumerate(lines, first):
        try:
            yield adapter.validate_json(line)
        except ValidationError as error:
            raise ValueError(f"line {number:,}: {_first(error)}") from None


def parsed(text: str | bytes, kind: type[Kind]) -> Kind:
    """JSON as a value of this type; nesting is limited by the parser."""
    try:
        return TypeAdapter(kind).validate_json(text)
    except ValidationError as error:
        raise ValueError(_first(error)) from None


def _first(error: ValidationError) -> str:
    """The first mistake, as `image.rows: Input should be less than or equal to 4096`; never the content of the file."""
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    if first["type"] == "missing":
        return f"it lacks '{'.'.join(map(str, first['loc']))}'"
    place = ".".join(map(str, first["loc"]))
    return f"{place}: {first['msg']}" if place else first["msg"]


def map_array(path: Path, dtype: str, shape: tuple[int | None, ...]) -> np.ndarray[Any, np.dtype[Any]]:
    """A .npy file as a view of it. None in the shape stands for any number. Do not write to it."""
    with open_regular(path) as file:
        version = npy.read_magic(file)
        if version != (1, 0):
            raise ValueError(f"a .npy file of version {version}")
        try:
            found, fortran, stored = npy.read_array_header_1_0(file, max_header_size=_LONGEST_NPY_HEADER)
        except (
            Exception
        ) as error:  # it is read as a literal of Python, whose tokenizer and parser have errors of their own
            raise ValueError(f"its header cannot be read ({error})") from None
        wanted = stored.str == dtype and not fortran and len(found) == len(shape)
        if not wanted or any(one not in (None, other) or other < 0 for one, other in zip(shape, found, strict=True)):
            raise ValueError(f"{_sizes(found)} of {stored.str}, not {_sizes(shape)} of {dtype}")
        count = 1
        for size in found:
            count *= size  # of Python's integers, which do not overflow
        start, size = file.tell(), os.fstat(file.fileno()).st_size
        if size != start + count * stored.itemsize:
            raise ValueError(f"{path.name} has {size:,} bytes, not {start + count * stored.itemsize:,}")
        if not count:
            return np.empty(found, stored)
        return np.memmap(file, stored, mode="r", offset=start, shape=found).view(np.ndarray)


def _sizes(shape: tuple[int | None, ...]) -> str:
    return " × ".join("?" if size is None else f"{size:,}" for size in shape) or "one number"
