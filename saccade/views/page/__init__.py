"""Views as one HTML file to hover over, tab through and send by mail.

The file holds its style, its script and its data, and its Content-Security-Policy forbids everything else: it works offline, loads nothing
and sends nothing. Only its own style and script may run, named by their hashes. They are the modules that the served page loads one by one.
"""

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any

from saccade.views.page.bundle import bundle, modules


def document(view: Mapping[str, Any]) -> str:
    """The whole document of a View as JSON values, as `View.to_dict` gives them."""
    parts = {
        "policy": _policy(),
        "title": escape(str(view["title"])),
        "style": _style(),
        "data": _for_script(dict(view)),
        "script": _script(),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _file("shell.html"))


def _for_script(data: Any) -> str:
    """JSON that cannot end the script element it stands in, whatever the sentences say."""
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _file(name: str) -> str:
    return files("saccade.views").joinpath("page").joinpath(name).read_text("utf-8")


@cache
def _style() -> str:
    return _file("views.css")


@cache
def _script() -> str:
    return bundle("file", modules())


@cache
def _policy() -> str:
    def hashed(content: str) -> str:
        return "'sha256-" + b64encode(sha256(content.encode()).digest()).decode() + "'"

    own = f"style-src {hashed(_style())}; script-src {hashed(_script())}; img-src data:"
    return f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"
