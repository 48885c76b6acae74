"""Attention maps as one HTML file to hover over, tab through and send by mail."""

from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import numpy as np

from saccade.data.images.decoding import Pixels
from saccade.views.axes import Axis, Grid
from saccade.views.document import filled
from saccade.views.maps import AttentionMap, labels

_DIGITS = 5  # of each weight in the page, which shows two; .json files have them all


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
    """The whole document. The titles of the two sides are guessed from each map when not given; the cells of grids lie over `picture`
    (rows, columns, channels), if there is one. It opens on the map number `first`, and each map as seen from a query, if one is given."""
    data: dict[str, Any] = {"maps": [_shown(each, query_title, key_title) for each in maps]}
    data |= {"subtitle": subtitle, "first": first}
    for shown, query in zip(data["maps"], seen_from, strict=False):
        shown["from"] = query
    if picture is not None:
        rows, columns = picture.shape[:2]
        colours = np.broadcast_to(picture, (rows, columns, 3))
        data["picture"] = {"rows": rows, "columns": columns, "pixels": b64encode(colours.tobytes()).decode()}
    return filled("map.html", title or maps[0].label, data)


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
        side |= {"rows": axis.rows, "columns": axis.columns, "extra": len(axis.extra), "cell": axis.cell}
    return side
