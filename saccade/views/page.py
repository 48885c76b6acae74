"""A view as one HTML file to hover over, tab through and send by mail."""

from base64 import b64encode
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from saccade.views.axes import Axis, Grid, Steps, as_bytes, labels
from saccade.views.document import filled
from saccade.views.maps import AttentionMap

if TYPE_CHECKING:
    from saccade.views.view import View

_DIGITS = 5  # of each weight in the page, which shows two; .json files have them all
_MOST_WEIGHTS = 1_000_000  # that a page may hold before maps between cells get only the rows that are shown first


def page(view: "View") -> str:
    """The whole document, which holds everything it shows, loads nothing and sends nothing."""
    first = view.maps[0]
    if view.picture is not None and isinstance(first.keys, Grid):
        if isinstance(first.queries, Steps) and first.queries.windows:
            return _steps_page(view, view.picture, first.queries)
        if not isinstance(first.queries, Grid) and len(first.queries) > 1:
            return _words_page(view, view.picture, first)
    return _maps_page(view)


def _maps_page(view: "View") -> str:
    """It opens on the mean of the layers, if there is one, else on the map number `first`; each as seen from a query, if one is given."""
    is_light = sum(attention.weights.size for attention in view.maps) <= _MOST_WEIGHTS
    maps: Sequence[AttentionMap] = view.maps if is_light else view.rows()
    known = {attention.name for attention in view.maps}
    means = (
        []
        if view.picture is not None
        else [mean for mean in view.summary[:1] if mean.name.partition(",")[0] not in known]
    )
    opening = (
        sorted(range(len(maps)), key=lambda place: place != view.first) if view.picture is None else range(len(maps))
    )
    shown = [*means, *(maps[place] for place in opening)]
    viewer = "" if is_light else f" · only as seen from {_viewers(maps)}: there are too many cells for a page"
    data: dict[str, Any] = {
        "maps": [_shown(attention) for attention in shown],
        "subtitle": view.line_below_title + viewer,
    }
    data["first"] = view.first if view.picture is not None else 0
    for values, attention in zip(data["maps"], shown, strict=True):
        values["from"] = view.seen_from.get(attention.name) if is_light else 0 if view.picture is not None else None
    if view.picture is not None:
        data["picture"] = {"rows": len(view.picture), "columns": len(view.picture[0]), "pixels": _pixels(view.picture)}
    return filled("map.html", view.title or view.maps[0].label, data)


def _words_page(view: "View", picture: NDArray[np.uint8], first: AttentionMap) -> str:
    """Hovering a word lights its region."""
    assert isinstance(first.keys, Grid)
    data = {
        "rows": len(picture),
        "columns": len(picture[0]),
        "pixels": _pixels(picture),
        "grid": [first.keys.rows, first.keys.columns],
        "words": labels(first.queries),
        "maps": [
            {"label": attention.label, "weights": attention.weights.astype(float).round(_DIGITS).tolist()}
            for attention in view.maps
        ],
    }
    return filled("captions.html", view.title, data)


def _steps_page(view: "View", picture: NDArray[np.uint8], steps: Steps) -> str:
    """Step through the glimpses."""
    rows, columns = picture.shape[:2]
    middles = [(row + side / 2, column + side / 2) for ((row, column, side), *_) in steps.windows]
    data = {
        "rows": rows,
        "columns": columns,
        "pixels": _pixels(picture),
        "patch": len(steps.patches[0][0]) if steps.patches else 0,
        "patches": [[_pixels(as_bytes(patch)) for patch in scales] for scales in steps.patches],
        "windows": steps.windows,
        "locations": [[round(2 * y / rows - 1, 5), round(2 * x / columns - 1, 5)] for y, x in middles],
        "probabilities": [[round(float(share), 5) for share in row] for row in steps.probabilities],
        "classes": steps.classes,
        "subtitle": view.line_below_title,
    }
    return filled("glimpses.html", view.title, data)


def _viewers(maps: Sequence[AttentionMap]) -> str:
    """All who look in maps of one row."""
    names = (labels(attention.queries)[0] for attention in maps)
    return " and ".join(dict.fromkeys("the pixel" if name.startswith("row ") else name for name in names))


def _pixels(picture: NDArray[np.uint8]) -> str:
    """Red, green and blue of every pixel, a byte each."""
    rows, columns = picture.shape[:2]
    colours = np.broadcast_to(picture if picture.ndim == 3 else picture[..., None], (rows, columns, 3))
    return b64encode(colours.tobytes()).decode()


def _shown(attention: AttentionMap) -> dict[str, Any]:
    return {
        "label": attention.label,
        "queries": _side(attention.queries, attention.query_title),
        "keys": _side(attention.keys, attention.key_title),
        "weights": attention.weights.astype(float).round(_DIGITS).tolist(),
    }


def _side(axis: Axis, title: str) -> dict[str, Any]:
    side: dict[str, Any] = {"title": title, "labels": labels(axis)}
    if isinstance(axis, Grid):
        side |= {"rows": axis.rows, "columns": axis.columns, "extra": len(axis.extra), "cell": axis.cell}
    return side
