"""How everything that is shown becomes a file: by the ending of its name."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from saccade.errors import UserError
from saccade.files import replacing

ENDINGS = (".png", ".svg", ".pdf", ".html", ".json")
PICTURES = ENDINGS[:3]


def write_by_ending(
    path: str | Path,
    png: Callable[[], bytes],
    svg: Callable[[], bytes],
    pdf: Callable[[], bytes],
    html: Callable[[], str],
    values: Callable[[], dict[str, Any]],
) -> None:
    """A picture (.png, .svg, .pdf), a page (.html) or data (.json). Missing directories are made."""
    writers: dict[str, Callable[[], bytes]] = {
        ".png": png,
        ".svg": svg,
        ".pdf": pdf,
        ".html": lambda: html().encode("utf-8", "replace"),
        ".json": lambda: json.dumps(values(), ensure_ascii=False).encode("utf-8", "replace"),
    }
    write(path, writers)


def write(path: str | Path, writers: Mapping[str, Callable[[], bytes]]) -> None:
    """The content that belongs to the ending of the path. Missing directories are made."""
    path = Path(path)
    content = writers[require_ending(path, tuple(writers))]()
    with replacing(path) as aside:
        aside.write_bytes(content)


def require_ending(path: Path, endings: Sequence[str] = ENDINGS) -> str:
    """The ending of a name that can be written under."""
    ending = path.suffix.lower()
    if ending not in endings:
        raise UserError(f"cannot write {str(path)!r}: the name must end in {', '.join(endings[:-1])} or {endings[-1]}")
    return ending
