"""The built-in corpus of captioned images: coloured shapes above or left of each other, in any number.

    "a small red circle above two blue squares"
    "three large white stars left of a small green ring left of a large black cross"

One to three groups of one to three equal shapes, named from top to bottom or from left to right. Two groups of a picture differ in shape or
colour. The caption follows from the picture, and every word of it but "above" and "left of" from one place in it. Shapes are rotated,
shifted, shaded and anti-aliased, with a light gradient and noise, so that no single pixel gives an answer away. The region of each group is
known exactly: `Scene.regions`.

No caption is in two splits: held-out captions are new combinations.
"""

import math
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw

from saccade.data.builtin.phrasebook.phrases import split_of
from saccade.data.splits import SplitName

SIDE = 64  # pixels

COLOURS = {
    "red": (208, 32, 38),
    "green": (36, 148, 60),
    "blue": (36, 70, 200),
    "yellow": (244, 216, 38),
    "purple": (138, 44, 170),
    "orange": (240, 128, 20),
    "black": (20, 20, 24),
    "white": (250, 250, 250),
}
SHAPES = {
    "circle": "circles",
    "square": "squares",
    "triangle": "triangles",
    "star": "stars",
    "cross": "crosses",
    "ring": "rings",
}
SIZES = {"small": 4.0, "large": 7.5}  # half the side, in pixels
COUNTS = ("a", "two", "three")
RELATIONS = ("above", "left of")

_FINER = 4  # drawn this many times larger, then averaged: anti-aliasing
_GAP = 2.5  # pixels at least between two shapes


class Region(NamedTuple):
    """The region of the image that a word of the caption names: a box, in shares of the height and width."""

    word: int
    top: float
    left: float
    bottom: float
    right: float


@dataclass(frozen=True)
class Shape:
    """One shape as it is drawn: its middle in pixels, half its side, its rotation in radians."""

    name: str
    colour: tuple[int, int, int]
    row: float
    column: float
    half: float
    turn: float

    def box(self) -> tuple[float, float, float, float]:
        """top, left, bottom, right in pixels."""
        if self.name in ("circle", "ring"):
            return self.row - self.half, self.column - self.half, self.row + self.half, self.column + self.half
        columns, rows = zip(*_outline(self), strict=True)
        return min(rows), min(columns), max(rows), max(columns)


@dataclass(frozen=True)
class Scene:
    caption: str
    regions: tuple[Region, ...]  # one for the noun of each group
    shapes: tuple[Shape, ...]
    background: tuple[int, int, int]
    grain: int  # seeds light and noise


def scenes(split: SplitName, count: int, seed: int = 1) -> list[Scene]:
    """`count` scenes. A larger count starts with those of a smaller one."""
    return list(islice((scene for scene in _endless(seed) if split_of(scene.caption) == split), count))


def draw(scene: Scene) -> Image.Image:
    """64 × 64 pixels in colour; the same scene is always the same picture."""
    canvas = Image.new("RGB", (SIDE * _FINER, SIDE * _FINER), scene.background)
    brush = ImageDraw.Draw(canvas)
    for shape in scene.shapes:
        _paint(brush, shape, scene.background)
    pixels = np.asarray(canvas.reduce(_FINER), np.float32)
    generator = np.random.default_rng(scene.grain)
    slope = generator.uniform(-0.12, 0.12, 2)
    across = np.linspace(-1, 1, SIDE, dtype=np.float32)
    light = 1 + slope[0] * across[:, None] + slope[1] * across
    grain = generator.standard_normal((SIDE, SIDE, 1), np.float32) * 4
    return Image.fromarray(np.clip(pixels * light[..., None] + grain, 0, 255).astype(np.uint8))


# Composing


@dataclass(frozen=True)
class _Group:
    count: int
    size: str
    colour: str
    shape: str

    def words(self) -> list[str]:
        return [COUNTS[self.count - 1], self.size, self.colour, self.shape if self.count == 1 else SHAPES[self.shape]]


def _endless(seed: int) -> Iterator[Scene]:
    uniform = random.Random(seed).random  # the one method whose numbers are the same in every version of Python
    while True:
        yield _scene(uniform)


def _scene(uniform: Callable[[], float]) -> Scene:
    groups: list[_Group] = []
    wanted = 1 + sum(uniform() < share for share in (0.9, 0.4))
    while len(groups) < wanted:
        group = _Group(1 + int(3 * uniform()), _pick(SIZES, uniform), _pick(COLOURS, uniform), _pick(SHAPES, uniform))
        if all((group.colour, group.shape) != (other.colour, other.shape) for other in groups):
            groups.append(group)
    relation = _pick(RELATIONS, uniform)
    placed = _placed(groups, relation == "left of", uniform)
    words: list[str] = []
    regions = []
    for group, members in zip(groups, placed, strict=True):
        words += [*(relation.split() if words else ()), *group.words()]
        tops, lefts, bottoms, rights = zip(*(member.box() for member in members), strict=True)
        edges = (min(tops), min(lefts), max(bottoms), max(rights))
        regions.append(Region(len(words) - 1, *(edge / SIDE for edge in edges)))
    shapes = tuple(member for members in placed for member in members)
    grey = 105 + 90 * uniform()
    red, green, blue = (int(grey + 24 * (uniform() - 0.5)) for _ in range(3))
    return Scene(" ".join(words), tuple(regions), shapes, (red, green, blue), int(2**32 * uniform()))


def _pick(choices: Iterable[str], uniform: Callable[[], float]) -> str:
    names = list(choices)
    return names[int(len(names) * uniform())]


def _placed(groups: list[_Group], sideways: bool, uniform: Callable[[], float]) -> list[list[Shape]]:
    """The shapes of each group: groups along one axis, the members of a group along the other, around one common line."""
    halves = [SIZES[group.size] * (0.9 + 0.2 * uniform()) for group in groups]
    reach = [half * 1.18 for half in halves]  # half the space that a rotated shape needs
    spread = [2 * room * group.count + _GAP * (group.count - 1) for room, group in zip(reach, groups, strict=True)]
    along = _spaced([2 * room for room in reach], uniform)
    widest = max(spread)
    line = widest / 2 + (SIDE - widest) * uniform()
    placed = []
    for group, half, room, length, middle in zip(groups, halves, reach, spread, along, strict=True):
        members = []
        # Only a little off the common line, so that "above" and "left of" stay distinct.
        shift = max(0.0, min(4.0, (widest - length) / 2))
        start = line - length / 2 + shift * (2 * uniform() - 1)
        for number in range(group.count):
            across = start + room + number * (2 * room + _GAP)
            row, column = (across, middle) if sideways else (middle, across)
            turn = (2 * uniform() - 1) * math.radians(14)
            members.append(Shape(group.shape, _shaded(COLOURS[group.colour], uniform), row, column, half, turn))
        placed.append(members)
    return placed


def _spaced(lengths: list[float], uniform: Callable[[], float]) -> list[float]:
    """The middles of things of these lengths, one after another, with random room before, between and after them."""
    free = SIDE - sum(lengths) - _GAP * (len(lengths) - 1)
    shares = [0.2 + uniform() for _ in range(len(lengths) + 1)]
    middles, place = [], 0.0
    for length, share in zip(lengths, shares, strict=False):
        place += free * share / sum(shares)
        middles.append(place + length / 2)
        place += length + _GAP
    return middles


def _shaded(colour: tuple[int, int, int], uniform: Callable[[], float]) -> tuple[int, int, int]:
    red, green, blue = (max(0, min(255, int(part + 24 * (uniform() - 0.5)))) for part in colour)
    return red, green, blue


# Drawing


def _paint(brush: ImageDraw.ImageDraw, shape: Shape, background: tuple[int, int, int]) -> None:
    if shape.name in ("circle", "ring"):
        brush.ellipse(_ellipse(shape, shape.half), fill=shape.colour)
        if shape.name == "ring":
            brush.ellipse(_ellipse(shape, 0.5 * shape.half), fill=background)
    else:
        brush.polygon([(_FINER * column, _FINER * row) for column, row in _outline(shape)], fill=shape.colour)


def _ellipse(shape: Shape, half: float) -> list[float]:
    middle = (shape.column, shape.row)
    return [_FINER * (place - half) for place in middle] + [_FINER * (place + half) - 1 for place in middle]


def _outline(shape: Shape) -> list[tuple[float, float]]:
    """The corners (column, row) of a shape in the picture."""
    sine, cosine = math.sin(shape.turn), math.cos(shape.turn)
    return [
        (shape.column + shape.half * (x * cosine - y * sine), shape.row + shape.half * (x * sine + y * cosine))
        for x, y in _CORNERS[shape.name]
    ]


def _star() -> list[tuple[float, float]]:
    points = []
    for tip in range(10):
        radius, angle = (1.1 if tip % 2 == 0 else 0.45), math.pi * tip / 5
        points.append((radius * math.sin(angle), -radius * math.cos(angle)))
    return points


_CORNERS: dict[str, list[tuple[float, float]]] = {
    "square": [(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
    "triangle": [(0, -1), (1, 0.85), (-1, 0.85)],
    "star": _star(),
    "cross": [
        (-0.32, -1), (0.32, -1), (0.32, -0.32), (1, -0.32), (1, 0.32), (0.32, 0.32),
        (0.32, 1), (-0.32, 1), (-0.32, 0.32), (-1, 0.32), (-1, -0.32), (-0.32, -0.32),
    ],
}  # fmt: skip
