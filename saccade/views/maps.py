"""One attention map: where it came from, its weights, and what stands along its two sides.

    maps = [AttentionMap("decoder.layers.0.cross_attention", weights, queries=Tokens(...), keys=Tokens(...))]
    save(maps, "alignment.html", title="le chat noir")

Pictures, JSON and the page are made from these maps and know nothing else about the model.

Axis legend: H heads, Q queries, K keys.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from saccade.errors import UserError
from saccade.views.axes import Axis, Tokens, axis_from_dict, axis_of, axis_to_dict
from saccade.views.document import write_by_ending


@dataclass(frozen=True, init=False, repr=False, eq=False)
class AttentionMap:
    """The weights (H, Q, K) of one attention module. A single head may be given as (Q, K)."""

    name: str
    weights: NDArray[np.float32]
    queries: Axis
    keys: Axis

    def __init__(
        self,
        name: str,
        weights: ArrayLike | Tensor,
        queries: Axis | Sequence[str],
        keys: Axis | Sequence[str],
    ):
        queries, keys = axis_of(queries), axis_of(keys)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "weights", _checked(name, weights, queries, keys))
        object.__setattr__(self, "queries", queries)
        object.__setattr__(self, "keys", keys)

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
        return AttentionMap(f"{self.name}, average of {self.heads} heads", mean, self.queries, self.keys)

    def head(self, index: int) -> "AttentionMap":
        """One head, counted from 0, as a map of its own."""
        if not 0 <= index < self.heads:
            numbers = "only head 0" if self.heads == 1 else f"heads 0 to {self.heads - 1}"
            raise UserError(f"Head {index} of {self.name!r} was asked for, but it has {numbers}; choose one of those.")
        return AttentionMap(f"{self.name}, head {index}", self.weights[index], self.queries, self.keys)

    def axis_titles(self) -> tuple[str, str]:
        """What to call the two sides when nobody says: (queries, keys)."""
        if "self" in self.name.rsplit(".", 1)[-1]:
            return "query", "key"
        words = "translation" if isinstance(self.keys, Tokens) else "words"
        kinds = {"grid": "image", "steps": "time"}
        queries = words if isinstance(self.queries, Tokens) else kinds.get(self.queries.kind, self.queries.kind)
        keys = "source" if isinstance(self.keys, Tokens) else kinds.get(self.keys.kind, self.keys.kind)
        return (queries, keys) if queries != keys else (f"{queries} (query)", f"{keys} (key)")

    def to_dict(self) -> dict[str, Any]:
        """JSON values that `from_dict` turns back into the same map, bit for bit."""
        # The shortest decimals that name each float32: 0.1, not 0.10000000149011612.
        weights = self.weights.astype(str).astype(np.float64).tolist()
        return {
            "name": self.name,
            "queries": axis_to_dict(self.queries),
            "keys": axis_to_dict(self.keys),
            "weights": weights,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "AttentionMap":
        try:
            queries, keys = axis_from_dict(values["queries"]), axis_from_dict(values["keys"])
            return cls(str(values["name"]), np.asarray(values["weights"], dtype=np.float32), queries, keys)
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"This is not an attention map ({error!r}): it needs name, queries, keys and weights, "
                "as `saccade look --out map.json` writes them."
            ) from error

    def save(self, path: str | Path, title: str = "") -> None:
        save([self], path, title)

    def __repr__(self) -> str:
        return f"AttentionMap({self.name!r}, heads={self.heads}, queries={len(self.queries)}, keys={len(self.keys)})"

    def _repr_png_(self) -> bytes:
        from saccade.views.figures import png

        return png([self])

    def _repr_html_(self) -> str:
        """The page in a frame of its own, so that its styles and scripts cannot meet the notebook's."""
        from saccade.views.page import page

        height = min(900, 420 + 28 * len(self.queries))
        return (
            f'<iframe srcdoc="{escape(page([self]))}" sandbox="allow-scripts" title="{escape(self.label)}" '
            f'style="width: 100%; height: {height}px; border: 0"></iframe>'
        )


def save(
    maps: Sequence[AttentionMap],
    path: str | Path,
    title: str = "",
    query_title: str | None = None,
    key_title: str | None = None,
) -> None:
    """Write maps as a picture (.png, .svg), a page (.html) or data (.json). Missing directories are made."""
    from saccade.views.figures import png, svg
    from saccade.views.page import page

    if not maps:
        raise UserError(f"There is no attention map to write to {str(path)!r}: record at least one first.")
    titles = (title, query_title, key_title)
    write_by_ending(
        path,
        png=lambda: png(maps, *titles),
        svg=lambda: svg(maps, *titles),
        html=lambda: page(maps, *titles),
        values=lambda: {"title": title, "maps": [each.to_dict() for each in maps]},
    )


def labels(axis: Axis) -> list[str]:
    """A visible name for every position: no label is empty, and spaces at the ends of a word can be seen."""
    return [_visible(text) for text in axis.labels]


def _visible(text: str) -> str:
    text = text.replace("\r\n", "\n").replace("\n", "⏎").replace("\r", "⏎").replace("\t", "⇥")
    text = "".join(character if character.isprintable() or character in "\u200c\u200d" else "�" for character in text)
    core = text.strip()
    start = len(text) - len(text.lstrip())
    return "␣" * start + core + "␣" * (len(text) - start - len(core)) or "∅"


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
