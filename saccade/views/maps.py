"""One attention map: where it came from, its weights, and what stands along its two sides.

    maps = [AttentionMap("decoder.layers.0.cross_attention", weights, queries=Tokens(...), keys=Tokens(...))]
    save(maps, "alignment.html", title="le chat noir")

Pictures, JSON and the page are made from these maps and know nothing else about the model.

Axis legend: H heads, Q queries, K keys.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from saccade.errors import UserError
from saccade.views.axes import Axis, Tokens, axis_from_dict, axis_of, axis_to_dict, labels

if TYPE_CHECKING:
    from saccade.views.view import View

AVERAGE_CELL = "the average cell"
_TITLES = {
    "grid": "image",
    "steps": "step",
    "dates": "date",
    "variables": "variable",
    "objects": "object",
    "scales": "scale",
}


@dataclass(frozen=True, init=False, repr=False, eq=False)
class AttentionMap:
    """The weights (H, Q, K) of one attention module. A single head may be given as (Q, K), and a list of words as an axis. The titles of
    the two sides say what stands along them ("translation", "source"); unless given they follow from the axes."""

    name: str
    weights: NDArray[np.float32]
    queries: Axis
    keys: Axis
    query_title: str
    key_title: str

    def __init__(
        self,
        name: str,
        weights: ArrayLike | Tensor,
        queries: Axis | Sequence[str],
        keys: Axis | Sequence[str],
        query_title: str | None = None,
        key_title: str | None = None,
    ):
        queries, keys = axis_of(queries), axis_of(keys)
        query_default, key_default = _titles(queries, keys)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "weights", _checked(name, weights, queries, keys))
        object.__setattr__(self, "queries", queries)
        object.__setattr__(self, "keys", keys)
        object.__setattr__(self, "query_title", query_default if query_title is None else query_title)
        object.__setattr__(self, "key_title", key_default if key_title is None else key_title)

    @property
    def heads(self) -> int:
        return len(self.weights)

    @property
    def label(self) -> str:
        """The name for people: "decoder.layers.3.cross_attention" is "decoder · layer 3 · cross attention"; a number that follows a number
        counts blocks."""
        name = re.sub(r"(\.\d+)\.(?=\d)", r"\1.blocks.", self.name)
        return re.sub(r"(\w+?)s?\.(\d+)", r"\1 \2", name).replace("_", " ").replace(".", " · ")

    def averaged(self) -> "AttentionMap":
        """The mean over heads, as a map of one head."""
        if self.heads == 1:
            return self
        mean = self.weights.mean(axis=0, keepdims=True)  # (H, Q, K) -> (1, Q, K)
        return self.changed(name=f"{self.name}, average of {self.heads} heads", weights=mean)

    def head(self, index: int) -> "AttentionMap":
        """One head, counted from 0, as a map of its own."""
        if not 0 <= index < self.heads:
            numbers = "only head 0" if self.heads == 1 else f"heads 0 to {self.heads - 1}"
            raise UserError(f"Head {index} of {self.name!r} was asked for, but it has {numbers}; choose one of those.")
        return self.changed(name=f"{self.name}, head {index}", weights=self.weights[index])

    def from_query(self, query: int | None) -> "AttentionMap":
        """One query as a map of its own; None is the mean of all queries."""
        if query is None:
            mean = self.weights.mean(1, keepdims=True)  # (H, Q, K) -> (H, 1, K)
            return self.changed(weights=mean, queries=Tokens((AVERAGE_CELL,)))
        row = self.weights[:, query : query + 1]  # (H, Q, K) -> (H, 1, K)
        return self.changed(weights=row, queries=Tokens((labels(self.queries)[query],)))

    def changed(
        self,
        *,
        name: str | None = None,
        weights: ArrayLike | None = None,
        queries: Axis | None = None,
        query_title: str | None = None,
        key_title: str | None = None,
    ) -> "AttentionMap":
        """The same map but for what is given."""
        return AttentionMap(
            self.name if name is None else name,
            self.weights if weights is None else weights,
            self.queries if queries is None else queries,
            self.keys,
            self.query_title if query_title is None else query_title,
            self.key_title if key_title is None else key_title,
        )

    def to_dict(self, digits: int | None = None) -> dict[str, Any]:
        """JSON values that `from_dict` turns back into the same map, bit for bit; with `digits`, weights are rounded for a page."""
        # The shortest decimals that name each float32: 0.1, not 0.10000000149011612.
        weights = self.weights.astype(str if digits is None else np.float64).astype(np.float64)
        weights = weights if digits is None else weights.round(digits)
        return {
            "name": self.name,
            "label": self.label,
            "queries": axis_to_dict(self.queries),
            "keys": axis_to_dict(self.keys),
            "query_title": self.query_title,
            "key_title": self.key_title,
            "weights": weights.tolist(),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "AttentionMap":
        try:
            queries, keys = axis_from_dict(values["queries"]), axis_from_dict(values["keys"])
            weights = np.asarray(values["weights"], dtype=np.float32)
            titles = (values.get("query_title"), values.get("key_title"))
            return cls(str(values["name"]), weights, queries, keys, *titles)
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"This is not an attention map ({error!r}): it needs name, queries, keys and weights, "
                "as `saccade look --out map.json` writes them."
            ) from error

    def save(self, path: str | Path, title: str = "") -> None:
        save([self], path, title)

    def __repr__(self) -> str:
        return f"AttentionMap({self.name!r}, heads={self.heads}, queries={len(self.queries)}, keys={len(self.keys)})"

    def _repr_png_(self) -> bytes | None:
        return _view([self])._repr_png_()

    def _repr_html_(self) -> str:
        return _view([self])._repr_html_()


def save(
    maps: Sequence[AttentionMap],
    path: str | Path,
    title: str = "",
    query_title: str | None = None,
    key_title: str | None = None,
) -> None:
    """Write maps as a picture (.png, .svg, .pdf), a page (.html) or data (.json). Missing directories are made."""
    _view([attention.changed(query_title=query_title, key_title=key_title) for attention in maps], title).save(path)


def _view(maps: Sequence[AttentionMap], title: str = "") -> "View":
    from saccade.views.view import View

    return View(title or (maps[0].label if len(maps) == 1 else ""), tuple(maps))


def _titles(queries: Axis, keys: Axis) -> tuple[str, str]:
    """What the two sides are called unless somebody says: by what stands along them."""
    query, key = _TITLES.get(queries.kind, "query"), _TITLES.get(keys.kind, "key")
    return (query, key) if query != key else (f"{query} (query)", f"{key} (key)")


def _checked(name: str, weights: ArrayLike | Tensor, queries: Axis, keys: Axis) -> NDArray[np.float32]:
    if isinstance(weights, Tensor):
        weights = weights.detach().float().cpu().numpy()
    array = np.array(weights, dtype=np.float32)
    if array.ndim == 2:
        array = array[None]  # (Q, K) -> (1, Q, K)
    if array.ndim != 3:
        raise UserError(
            f"The weights of {name!r} have shape {array.shape}; a map is (heads, queries, keys) or (queries, keys): "
            "take one example out of the batch."
        )
    for side, size, axis in (("queries", array.shape[1], queries), ("keys", array.shape[2], keys)):
        if size != len(axis):
            raise UserError(
                f"The weights of {name!r} have {size} {side}, but its {side} axis names {len(axis)}: "
                f"give one label for each of the {side}."
            )
    if array.size == 0:
        raise UserError(f"The attention map {name!r} of shape {array.shape} is empty: there is nothing to look at.")
    if not np.isfinite(array).all() or (array < 0).any():
        raise UserError(f"The weights of {name!r} contain negative or non-finite numbers; attention weights are >= 0.")
    array.flags.writeable = False
    return array
