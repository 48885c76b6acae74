"""Ways to damage a file of a run: blindly, or as somebody would who knows its format."""

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import yaml

from saccade.training.weights import read_tensors, write_tensors

Damage = Callable[[Path, random.Random], str]  # damages the file and says how


# Any file


def flip_a_bit(path: Path, draw: random.Random) -> str:
    content = bytearray(path.read_bytes() or b"\0")
    place = draw.randrange(min(len(content), draw.choice([64, 4096, len(content)])))
    content[place] ^= 1 << draw.randrange(8)
    path.write_bytes(content)
    return f"bit {place}"


def cut(path: Path, draw: random.Random) -> str:
    content = path.read_bytes()
    path.write_bytes(content[: draw.randrange(len(content) + 1)])
    return "cut"


def insert(path: Path, draw: random.Random) -> str:
    content = path.read_bytes()
    place = draw.randrange(len(content) + 1)
    some = draw.choice(
        [b"\0" * 8, b"[" * 5000, b"\xff" * 9, b"'", b"\x1b[2J", bytes(draw.randbytes(20)), b"-", b"9" * 20]
    )
    path.write_bytes(content[:place] + some + content[place:])
    return f"{some[:9]!r} at {place}"


def overwrite(path: Path, draw: random.Random) -> str:
    content = bytearray(path.read_bytes())
    place, size = draw.randrange(len(content) + 1), draw.choice([1, 8, 100])
    content[place : place + size] = draw.choice([b"\0", b"\xff", b"9", b"["]) * len(content[place : place + size])
    path.write_bytes(content)
    return f"{size} at {place}"


def remove(path: Path, draw: random.Random) -> str:
    path.unlink()
    return "gone"


def empty(path: Path, draw: random.Random) -> str:
    path.write_bytes(b"")
    return "empty"


def huge(path: Path, draw: random.Random) -> str:
    os.truncate(path, 20 << 30)
    return "20 GB of zeros at its end"


def special(path: Path, draw: random.Random) -> str:
    path.unlink()
    kind = draw.choice(["pipe", "folder", "/dev/zero", "/dev/full", "/nowhere", "/proc/self/mem"])
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(kind)
    return kind


# Values

STRANGE: list[Any] = [
    -1,
    0,
    1,
    2,
    7,
    255,
    4096,
    100_000,
    10**9,
    2**31,
    2**63,
    10**30,
    0.5,
    -0.5,
    1e308,
    float("nan"),
    float("inf"),
]
STRANGE += [
    "",
    "x",
    "auto",
    "\x1b[31m",
    "a" * 100_000,
    "../../etc/passwd",
    "${HOME}",
    None,
    True,
    False,
    [],
    {},
    [1],
    ["x"],
]


def changed(value: Any, draw: random.Random) -> tuple[Any, str]:
    """The same with one thing in it changed."""
    if isinstance(value, dict) and value and draw.random() < 0.9:
        name = draw.choice(list(value))
        if draw.random() < 0.1:
            return {key: inner for key, inner in value.items() if key != name}, f"without {name}"
        inner, what = changed(value[name], draw)
        return {**value, name: inner}, f"{name}.{what}"
    if isinstance(value, list) and value and draw.random() < 0.9:
        place = draw.randrange(len(value))
        if draw.random() < 0.2:
            return value[:place] + value[place + 1 :] if draw.random() < 0.5 else value + value[
                place:
            ], "another length"
        inner, what = changed(value[place], draw)
        return [*value[:place], inner, *value[place + 1 :]], f"{place}.{what}"
    near = (
        [value * 1000, value + 1, value - 1, -value]
        if isinstance(value, int | float) and not isinstance(value, bool)
        else []
    )
    new = draw.choice([*STRANGE, *near * 3])
    return new, f"= {str(new)[:20]}"


def json_value(path: Path, draw: random.Random) -> str:
    value, what = changed(json.loads(path.read_text()), draw)
    path.write_text(json.dumps(value))
    return what


def json_line(path: Path, draw: random.Random) -> str:
    lines = path.read_text().splitlines()
    place = draw.randrange(len(lines))
    value, what = changed(json.loads(lines[place]), draw)
    lines[place] = json.dumps(value)
    path.write_text("\n".join(lines) + "\n")
    return f"line {place}: {what}"


def nested(path: Path, draw: random.Random) -> str:
    path.write_text("[" * 100_000)
    return "nested"


def yaml_value(path: Path, draw: random.Random) -> str:
    value, what = changed(yaml.safe_load(path.read_text()), draw)
    path.write_text(yaml.safe_dump(value, sort_keys=False))
    return what


def npy_header(path: Path, draw: random.Random) -> str:
    content = path.read_bytes()
    size = int.from_bytes(content[8:10], "little")
    header = content[10 : 10 + size].decode("latin1")
    for old, new in draw.sample(
        [
            ("|u1", "|O"), ("<i8", "|O"), ("|u1", "<f8"), ("<i8", ">i8"), ("False", "True"), ("(", "(-"),
            ("(", "(99999999999999999999, "), ("(", "(2, "), ("'shape'", "'sh'"), ("{", "{{"), ("(", "(" * 90), ("|u1", "V1000000000"),
        ],
        12,
    ):  # fmt: skip
        if old in header:
            header = header.replace(old, new, 1)
            break
    path.write_bytes(content[:8] + len(header).to_bytes(2, "little") + header.encode("latin1") + content[10 + size :])
    return header[:60]


def tensor_header(path: Path, draw: random.Random) -> str:
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    value, what = changed(json.loads(content[8 : 8 + size]), draw)
    header = json.dumps(value).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + content[8 + size :])
    return what


def tensors(path: Path, draw: random.Random) -> str:
    """With right checksums, as a stranger would write them."""
    values, about = read_tensors(path)
    if draw.random() < 0.5:
        about, what = changed(about, draw)
        write_tensors(path, values, about if isinstance(about, dict) else {})
        return what
    name = draw.choice(list(values))
    tensor = values.pop(name)
    kinds = [None, tensor.double(), tensor.to(torch.int64), tensor.to(torch.complex64)]
    numbers = [tensor * torch.nan, tensor * 1e38, torch.zeros(()), torch.zeros(0)]
    shapes = [tensor.reshape(-1), tensor[..., None], torch.cat([tensor.reshape(-1)] * 2)]
    new = draw.choice([*kinds, *numbers, *shapes])
    if new is not None:
        values[name] = new
    write_tensors(path, values, about)
    return f"{name} {None if new is None else (tuple(new.shape), new.dtype)}"


ANY: list[Damage] = [flip_a_bit, flip_a_bit, flip_a_bit, cut, insert, overwrite, remove, empty, huge, special]
KNOWN: dict[str, list[Damage]] = {
    ".json": [json_value, nested],
    ".jsonl": [json_line, nested],
    ".yaml": [yaml_value, nested],
    ".npy": [npy_header],
    ".safetensors": [tensor_header, tensors],
}


def damage(path: Path, draw: random.Random) -> str:
    known = KNOWN.get(path.suffix, [])
    way = draw.choice(known) if known and draw.random() < 0.6 else draw.choice(ANY)
    try:
        return f"{way.__name__}: {way(path, draw)}"
    except (ValueError, IndexError, UnicodeError) as error:  # nothing to change
        shutil.copyfile(os.devnull, path)
        return f"empty instead of {way.__name__} ({error})"
