"""checksums.json of a run: digests of what was written before its training began, and the text of its config.yaml.

    write(run, config_text)         hashes every file that the task left; weights and states carry checksums of their own
    check(run)                      a ValueError names the first file that is not as it was written
    edits(run)                      the settings of config.yaml that somebody has changed since

A run of before there were checksums, or one that was copied without them, is read as it is.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from saccade.config.files import format_place, parse, quoted
from saccade.files import open_regular, read_bytes, write_text
from saccade.stored import Stored, read_json

NAME = "checksums.json"
_CONFIG = "config.yaml"
_MOST_CONFIG = 1 << 20  # bytes
_WRITTEN_LATER = {_CONFIG, NAME, "model.safetensors", "metrics.jsonl", "state", "samples", "tensorboard"}
_SMALL = 1 << 24  # bytes: a larger file in a folder is checked when it is opened, not whenever the run is


class _Record(Stored):
    version: Literal[1]
    files: dict[str, str]
    config: str
    digest: str  # of all above


@dataclass(frozen=True)
class Edit:
    place: str  # train.seed
    before: str
    now: str

    def __str__(self) -> str:
        return f"{self.place} {self.before} → {self.now}"


def write(run: Path, config: str) -> None:
    """Of everything that is there; to be called once the task has prepared the run."""
    _save(run, {name: _digest(run / name) for name in sorted(_names(run))}, config)


def accept(run: Path, config: str) -> None:
    """The config as it is written now; the other files stay those of the beginning."""
    record = _read(run)
    if record is not None:
        _save(run, record.files, config)


def check(run: Path) -> None:
    """All files of the run but large ones in its folders; one that is not there is for whoever needs it to miss."""
    record = _read(run)
    for name, digest in ({} if record is None else record.files).items():
        path = run / name
        if path.is_file() and (path.parent == run or path.stat().st_size <= _SMALL):
            _require(path, name, digest)


def check_file(run: Path, name: str) -> None:
    """One file, however large."""
    record = _read(run)
    if record is not None and name in record.files:
        _require(run / name, name, record.files[name])


def edits(run: Path) -> list[Edit]:
    """What is set otherwise in config.yaml than when the training wrote it."""
    record = _read(run)
    path = run / _CONFIG
    if record is None:
        return []
    now = read_bytes(path, _MOST_CONFIG).decode("utf-8-sig")
    if now == record.config:
        return []
    before, after = (_flat(parse(text, str(path))[0]) for text in (record.config, now))
    places = dict.fromkeys([*before, *after])
    return [
        Edit(place, before.get(place, "nothing"), after.get(place, "nothing"))
        for place in places
        if before.get(place) != after.get(place)
    ]


def _names(run: Path) -> Iterator[str]:
    for folder, folders, files in os.walk(run):
        top = Path(folder) == run
        for names in (folders, files):
            names[:] = [name for name in names if not name.startswith(".") and not (top and name in _WRITTEN_LATER)]
        for name in files:
            path = Path(folder, name)
            if path.is_file():
                yield path.relative_to(run).as_posix()


def _read(run: Path) -> _Record | None:
    path = run / NAME
    if not path.exists():
        return None
    try:
        record = read_json(path, _Record)
        if record.digest != _digest_of(record.files, record.config):
            raise ValueError("its own checksum is wrong")
    except (OSError, ValueError) as error:
        raise ValueError(f"{NAME} is damaged: {error}") from None
    for name in record.files:
        place = PurePosixPath(name)
        if place.is_absolute() or ".." in place.parts:
            raise ValueError(f"{NAME} names {quoted(name)}, which is outside of the run")
    return record


def _save(run: Path, files: Mapping[str, str], config: str) -> None:
    content = {"version": 1, "files": files, "config": config, "digest": _digest_of(files, config)}
    write_text(run / NAME, json.dumps(content, ensure_ascii=False, indent=1))


def _digest_of(files: Mapping[str, str], config: str) -> str:
    return hashlib.blake2b(json.dumps([dict(files), config], sort_keys=True).encode(), digest_size=16).hexdigest()


def _require(path: Path, name: str, digest: str) -> None:
    if _digest(path) != digest:
        raise ValueError(f"{name} is not as the training wrote it")


def _digest(path: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with open_regular(path) as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


def _flat(value: Any, place: tuple[str | int, ...] = ()) -> dict[str, str]:
    if isinstance(value, dict) and value:
        return {name: text for key, inner in value.items() for name, text in _flat(inner, (*place, key)).items()}
    return {format_place(place): quoted(value)}
