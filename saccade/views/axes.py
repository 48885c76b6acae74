"""What stands along the two sides of an attention map. An axis knows its labels and its form as JSON; it knows no model and no task."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Window = tuple[int, int, int]  # first row, first column and side, in pixels; may reach over the edge of the picture


@dataclass(frozen=True)
class Tokens:
    """Words or subwords, in reading order."""

    kind: ClassVar[str] = "tokens"

    words: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.words)

    @property
    def labels(self) -> tuple[str, ...]:
        return self.words


@dataclass(frozen=True)
class Grid:
    """The cells of an image (patches, pixels or feature-map cells), row by row. `extra` names leading non-cell tokens ("[class]")."""

    kind: ClassVar[str] = "grid"

    rows: int
    columns: int
    extra: tuple[str, ...] = ()
    cell: int | None = None  # pixels on a side of a cell; unless given, the cells share the image evenly

    def __len__(self) -> int:
        return len(self.extra) + self.rows * self.columns

    @property
    def labels(self) -> tuple[str, ...]:
        cells = (f"row {row} column {column}" for row in range(self.rows) for column in range(self.columns))
        return (*self.extra, *cells)

    def covered(self, rows: int, columns: int) -> tuple[int, int]:
        """The rows and columns of pixels under all cells of an image of that size: more, where the last cells reach over its edge."""
        return (rows, columns) if self.cell is None else (self.rows * self.cell, self.columns * self.cell)


@dataclass(frozen=True)
class Steps:
    """Steps of a model that looks again and again (glimpses, drawing steps): where it looked and what it believed after each, if known."""

    kind: ClassVar[str] = "steps"

    labels: tuple[str, ...]
    windows: tuple[tuple[Window, ...], ...] = ()  # of each step and scale
    classes: tuple[str, ...] = ()
    probabilities: tuple[tuple[float, ...], ...] = ()  # of each class after each step
    # what each step and scale saw
    patches: tuple[tuple[NDArray[np.float32], ...], ...] = field(default=(), compare=False)

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Dates:
    """Days of a series in order, with the series that were measured on them."""

    kind: ClassVar[str] = "dates"

    labels: tuple[str, ...]  # ISO dates
    # by name, a value a day; None is missing
    series: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict, hash=False)
    marked: tuple[bool, ...] = ()  # days to mark, such as clouded ones

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Variables:
    """Named variables of a table (bands, prices)."""

    kind: ClassVar[str] = "variables"

    labels: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Objects:
    """Detected objects, each with its box on the picture: left, top, width, height as shares of it."""

    kind: ClassVar[str] = "objects"

    labels: tuple[str, ...]
    boxes: tuple[tuple[float, float, float, float], ...]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Scales:
    """The scales of one picture (1, 1/2, 1/4, ...) between which a model weighs."""

    kind: ClassVar[str] = "scales"

    labels: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)


Axis = Tokens | Grid | Steps | Dates | Variables | Objects | Scales


def pixels(axis: Axis) -> Grid:
    """An axis of which a model knows that it is the picture's: its pixels."""
    assert isinstance(axis, Grid)
    return axis


def dates(axis: Axis) -> Dates:
    """An axis of which a model knows that it is the series': its days."""
    assert isinstance(axis, Dates)
    return axis


def axis_of(labels: "Axis | Sequence[str]") -> Axis:
    """A list of words is an axis of tokens; an axis is itself."""
    return Tokens(tuple(labels)) if isinstance(labels, list | tuple) else labels  # type: ignore[return-value]


def labels(axis: Axis) -> list[str]:
    """A visible name for every position: no label is empty, and spaces at the ends of a word can be seen."""
    return [_visible(text) for text in axis.labels]


def _visible(text: str) -> str:
    text = text.replace("\r\n", "\n").replace("\n", "⏎").replace("\r", "⏎").replace("\t", "⇥")
    text = "".join(character if character.isprintable() or character in "\u200c\u200d" else "�" for character in text)
    core = text.strip()
    start = len(text) - len(text.lstrip())
    return "␣" * start + core + "␣" * (len(text) - start - len(core)) or "∅"


def axis_to_dict(axis: Axis) -> dict[str, Any]:
    """JSON values from which `axis_from_dict` makes an equal axis; the patches of steps are for pages only."""
    values: dict[str, Any] = {"kind": axis.kind}
    match axis:
        case Tokens():
            values |= {"words": list(axis.words), "labels": labels(axis)}
        case Grid():
            values |= {"rows": axis.rows, "columns": axis.columns, "extra": list(axis.extra), "cell": axis.cell}
        case Steps():
            values["labels"] = list(axis.labels)
            if axis.windows:
                values["windows"] = [[list(window) for window in scales] for scales in axis.windows]
            if axis.probabilities:
                values["classes"] = list(axis.classes)
                values["probabilities"] = [[round(float(share), 5) for share in row] for row in axis.probabilities]
            if axis.patches:
                values["patches"] = [[data_address(as_bytes(patch)) for patch in scales] for scales in axis.patches]
        case Dates():
            values |= {"labels": list(axis.labels), "series": {name: list(row) for name, row in axis.series.items()}}
            if axis.marked:
                values["marked"] = list(axis.marked)
        case Objects():
            values |= {"labels": list(axis.labels), "boxes": [list(box) for box in axis.boxes]}
        case Variables() | Scales():
            values["labels"] = list(axis.labels)
    return values


def as_bytes(pixels: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Pixels from 0 to 1 as bytes."""
    scaled: NDArray[np.uint8] = (255 * np.clip(pixels, 0, 1)).round().astype(np.uint8)
    return scaled


def data_address(pixels: NDArray[np.uint8]) -> str:
    """Pixels (H, W), (H, W, 1) or (H, W, 3) as a PNG in a data: address."""
    content = BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels).save(content, "PNG")
    return "data:image/png;base64," + b64encode(content.getvalue()).decode()


def axis_from_dict(values: Mapping[str, Any]) -> Axis:
    kind = values["kind"]
    if kind == "tokens":
        return Tokens(tuple(map(str, values["words"])))
    if kind == "grid":
        cell = values.get("cell")
        extra = tuple(map(str, values["extra"]))
        return Grid(int(values["rows"]), int(values["columns"]), extra, None if cell is None else int(cell))
    labels = tuple(map(str, values["labels"]))
    if kind == "steps":
        windows = tuple(tuple((int(r), int(c), int(s)) for r, c, s in scales) for scales in values.get("windows", ()))
        probabilities = tuple(tuple(map(float, row)) for row in values.get("probabilities", ()))
        return Steps(labels, windows, tuple(map(str, values.get("classes", ()))), probabilities)
    if kind == "dates":
        series = {str(name): tuple(row) for name, row in values["series"].items()}
        return Dates(labels, series, tuple(map(bool, values.get("marked", ()))))
    if kind == "objects":
        boxes = tuple((float(a), float(b), float(c), float(d)) for a, b, c, d in values["boxes"])
        return Objects(labels, boxes)
    if kind == "variables":
        return Variables(labels)
    if kind == "scales":
        return Scales(labels)
    raise ValueError(f"unknown axis {kind!r}: an axis is tokens, grid, steps, dates, variables, objects or scales")
