"""How everything that is shown becomes a file: by the ending of its name, and as a page that needs nobody else.

A page holds its styles, its script and its data, and its Content-Security-Policy forbids everything else: it works offline, loads nothing
and sends nothing. Only the template's own style and script may run, named by their hashes.
"""

import json
import re
from base64 import b64encode
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
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
    path = Path(path)
    writers: dict[str, Callable[[], bytes]] = {
        ".png": png,
        ".svg": svg,
        ".pdf": pdf,
        ".html": lambda: html().encode("utf-8", "replace"),
        ".json": lambda: json.dumps(values(), ensure_ascii=False).encode("utf-8", "replace"),
    }
    ending = path.suffix.lower()
    if ending not in writers:
        raise UserError(f"cannot write {str(path)!r}: the name must end in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}")
    content = writers[ending]()
    with replacing(path) as aside:
        aside.write_bytes(content)


def filled(template: str, title: str, data: Any) -> str:
    """A template of this package as a whole document: {{policy}}, {{title}} and {{data}} are filled in."""
    parts = {"policy": _policy(template), "title": escape(title), "data": _for_script(data)}
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _text(template))


def _for_script(data: Any) -> str:
    """JSON that cannot end the script element it stands in, whatever the sentences say."""
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _text(template: str) -> str:
    return files("saccade.views").joinpath(template).read_text("utf-8")


@cache
def _policy(template: str) -> str:
    def named(element: str) -> str:
        content = re.search(rf"<{element}>(.*?)</{element}>", _text(template), re.DOTALL)
        assert content is not None
        return "'sha256-" + b64encode(sha256(content[1].encode()).digest()).decode() + "'"

    own = f"style-src {named('style')}; script-src {named('script')}"
    return f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"
