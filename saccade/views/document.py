"""How everything that is shown becomes a file: by the ending of its name."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from saccade.errors import UserError
from saccade.files import replacing

ENDINGS = (".png", ".svg", ".html", ".json")
PICTURES = ENDINGS[:2]


def write_by_ending(
    path: str | Path,
    png: Callable[[], bytes],
    svg: Callable[[], bytes],
    html: Callable[[], str],
    values: Callable[[], dict[str, Any]],
) -> None:
    """A picture (.png, .svg), a page (.html) or data (.json). Missing directories are made."""
    path = Path(path)
    writers: dict[str, Callable[[], bytes]] = {
        ".png": png,
        ".svg": svg,
        ".html": lambda: html().encode("utf-8", "replace"),
        ".json": lambda: json.dumps(values(), ensure_ascii=False).encode("utf-8", "replace"),
    }
    ending = path.suffix.lower()
    if ending not in writers:
        raise UserError(f"cannot write {str(path)!r}: the name must end in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}")
    content = writers[ending]()
    with replacing(path) as aside:
        aside.write_bytes(content)
