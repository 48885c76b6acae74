"""Attention maps as one HTML file to hover over, tab through and send by mail.

The file holds its styles, its script and its data, and its Content-Security-Policy forbids everything else: it works
offline, loads nothing and sends nothing. Only the template's own style and script may run, named by their hashes.
"""

import json
import re
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any

from saccade.data.axes import Axis, Grid
from saccade.explain.maps import AttentionMap, labels

_DIGITS = 5  # of each weight in the page, which shows two; .json files have them all


def page(
    maps: Sequence[AttentionMap], title: str = "", query_title: str | None = None, key_title: str | None = None
) -> str:
    """The whole document. The titles of the two sides are guessed from each map when not given."""
    data = [_shown(each, query_title, key_title) for each in maps]
    parts = {
        "policy": _policy(),
        "title": escape(title or maps[0].label),
        "data": _for_script(data),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _template())


def _shown(attention: AttentionMap, query_title: str | None, key_title: str | None) -> dict[str, Any]:
    queries, keys = attention.axis_titles()
    return {
        "label": attention.label,
        "queries": _side(attention.queries, queries if query_title is None else query_title),
        "keys": _side(attention.keys, keys if key_title is None else key_title),
        "weights": attention.weights.astype(float).round(_DIGITS).tolist(),
    }


def _side(axis: Axis, title: str) -> dict[str, Any]:
    side: dict[str, Any] = {"title": title, "labels": labels(axis)}
    if isinstance(axis, Grid):
        side |= {"columns": axis.columns, "extra": len(axis.extra)}
    return side


def _for_script(data: Any) -> str:
    """JSON that cannot end the script element it stands in, whatever the sentences say."""
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _template() -> str:
    return files("saccade.explain").joinpath("map.html").read_text("utf-8")


@cache
def _policy() -> str:
    def named(element: str) -> str:
        content = re.search(rf"<{element}>(.*?)</{element}>", _template(), re.DOTALL)
        assert content is not None
        return "'sha256-" + b64encode(sha256(content[1].encode()).digest()).decode() + "'"

    own = f"style-src {named('style')}; script-src {named('script')}"
    return f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"
