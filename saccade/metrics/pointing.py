"""Does a word attend to what it names? Where the objects of an image are known, attention can be scored.

    pointing   share of the named objects for which the cell of the largest weight touches the object's box
    mass       weight that lies on the object: Σ_cells weight · share of the cell inside the box
    chance     share of the cells that touch the box: the pointing of a random cell

Axis legend: T words, K cells.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Box = tuple[float, float, float, float]  # top, left, bottom, right in shares of the image


class Pointing(NamedTuple):
    """Percent, mean over named objects."""

    pointing: float
    mass: float
    chance: float


class Pointed(NamedTuple):
    """Of one word."""

    hit: bool
    mass: float
    chance: float


def pointed(weights: NDArray[Any], regions: Iterable[Sequence[float]], rows: int, columns: int) -> list[Pointed]:
    """For each word that names objects: weights (T, K), and regions as (word, top, left, bottom, right)."""
    boxes: dict[int, list[Box]] = {}
    for word, top, left, bottom, right in regions:
        boxes.setdefault(int(word), []).append((top, left, bottom, right))
    scores = []
    for word, own in boxes.items():
        inside = covered(own, rows, columns)
        scores.append(
            Pointed(bool(inside[weights[word].argmax()] > 0), float(weights[word] @ inside), float((inside > 0).mean()))
        )
    return scores


def together(scores: Sequence[Pointed]) -> Pointing:
    hits, masses, chances = (100 * float(np.mean(column)) for column in zip(*scores, strict=True))
    return Pointing(hits, masses, chances)


def covered(boxes: Sequence[Box], rows: int, columns: int) -> NDArray[np.float64]:
    """The share of each cell (K,) inside a box; boxes must not overlap."""
    inside = np.zeros((rows, columns))
    for top, left, bottom, right in boxes:
        inside += np.outer(_along(top, bottom, rows), _along(left, right, columns))
    return inside.clip(max=1).ravel()


def _along(start: float, end: float, cells: int) -> NDArray[np.float64]:
    """How much of each cell of a side lies between start and end."""
    edges = np.arange(cells + 1)
    return (np.minimum(edges[1:], end * cells) - np.maximum(edges[:-1], start * cells)).clip(min=0)
