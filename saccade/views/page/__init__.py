"""Views as one HTML file to hover over, tab through and send by mail.

The file holds its style, its script and its data, and its Content-Security-Policy forbids everything else: it works offline, loads nothing
and sends nothing. Only its own style and script may run, named by their hashes. They are the modules that the served page loads one by one.
"""

import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np

from saccade.data.images.decoding import Pixels
from saccade.views.axes import axis_to_dict
from saccade.views.maps import AttentionMap
from saccade.views.page.bundle import bundle, modules
from saccade.views.view import picture_to_dict

_DIGITS = 5  # of each weight in the page, which shows two; .json files have them all


def document(view: Mapping[str, Any]) -> str:
    """The whole document of a View as JSON values, as `View.to_dict` gives them."""
    maps = [{**values, "weights": np.asarray(values["weights"]).round(_DIGITS).tolist()} for values in view["maps"]]
    parts = {
        "policy": _policy(),
        "title": escape(str(view["title"])),
        "style": _style(),
        "data": _for_script({**view, "maps": maps}),
        "script": _script(),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _file("shell.html"))


def page(
    maps: Sequence[AttentionMap],
    title: str = "",
    query_title: str | None = None,
    key_title: str | None = None,
    picture: Pixels | None = None,
    *,
    subtitle: str = "",
    seen_from: Sequence[int | None] = (),
    first: int = 0,
) -> str:
    """The document of maps alone. The titles of the two sides are guessed from each map when not given; the cells of grids lie over
    `picture` (rows, columns, channels), if there is one. It opens on the map number `first`, each map as seen from a query, if one is
    given."""
    shown = [map_to_dict(attention, query_title, key_title) for attention in maps]
    for values, query in zip(shown, seen_from, strict=False):
        values["from"] = query
    return document(
        {
            "title": title or maps[0].label,
            "subtitle": subtitle,
            "picture": None if picture is None else picture_to_dict(picture),
            "maps": shown,
            "first": first,
        }
    )


def map_to_dict(
    attention: AttentionMap, query_title: str | None = None, key_title: str | None = None
) -> dict[str, Any]:
    """A map as the page reads it."""
    queries, keys = attention.axis_titles()
    return {
        "name": attention.name,
        "label": attention.label,
        "queries": axis_to_dict(attention.queries),
        "keys": axis_to_dict(attention.keys),
        "query_title": queries if query_title is None else query_title,
        "key_title": keys if key_title is None else key_title,
        "weights": attention.weights.astype(float).tolist(),
    }


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
