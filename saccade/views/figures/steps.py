"""Steps that look at a picture through windows, as a glimpse network does: where it looked, what it saw there, what it believed after each.

The image is bright where it was seen sharply, dimmer where only a coarse scale saw it, and dark where nobody looked. Numbers and
colours are the order of the steps, the same on the image and beside it. Where steps are so close that their numbers would cover each
other, the numbers stand aside, each tied to a dot at the middle of its window. Places and sizes are inches from the top left corner.

Axis legend: T steps, S scales, H rows, W columns, N classes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from saccade.views.axes import Steps
from saccade.views.figures.canvas import Block, Canvas
from saccade.views.figures.palette import INK, QUIET, number, order_colours, scale_to
from saccade.views.lettering import Lettering

if TYPE_CHECKING:
    from saccade.views.view import View

_UNSEEN = 0.3  # how bright an image is where nobody looked
_MOST_CLASSES = 12
_TALLEST_ROW, _SMALLEST_ROW = 0.72, 0.34
_PICTURE = 4.4  # the longer side of the image
_DISC = 0.23  # across, with a number in it
_DOT = 0.06  # across, where a number stands aside
_INSET = 3.0  # points between frames of the same place
_BETWEEN = 0.06  # patches
_SEES, _BELIEVES = "what it sees", "probability after each step"
_SCALES = "fine → coarse"
_BRIGHTNESS = "bright: seen sharply · dark: not looked at"
_DIMMER = "bright: seen sharply · dimmer: coarsely · dark: not looked at"
_DASHED = "dashed: the coarse windows, of step 1 only"
SPOKEN = f"{_SEES}{_BELIEVES}{_SCALES}{_DIMMER}{_DASHED}"


@dataclass(frozen=True)
class _Path:
    """A picture and the steps over it."""

    picture: NDArray[np.float64]  # (H, W) or (H, W, 3), from 0 to 1
    windows: NDArray[np.int64]  # (T, S, 3): first row, first column and side of what each scale saw
    patches: tuple[tuple[NDArray[np.float32], ...], ...]  # what each scale saw, if known
    classes: tuple[str, ...]
    probabilities: NDArray[np.float32]  # (T, N)

    @classmethod
    def of(cls, picture: NDArray[np.uint8], steps: Steps) -> "_Path":
        pixels = picture / 255
        pixels = pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels
        probabilities = np.array(steps.probabilities, np.float32).reshape(len(steps), len(steps.classes))
        return cls(pixels, np.array(steps.windows), steps.patches, steps.classes, probabilities)

    def __len__(self) -> int:
        return len(self.windows)

    @property
    def scales(self) -> int:
        return int(self.windows.shape[1])

    @property
    def places(self) -> NDArray[np.float64]:
        """The middle of each step's windows: x and y in pixels, (T, 2)."""
        middles: NDArray[np.float64] = self.windows[:, 0, 1::-1] + self.windows[:, 0, 2:] / 2
        return middles

    def parts(self) -> Iterator[tuple[int, tuple[slice, slice]]]:
        """Every scale of every step with the part of the picture in it."""
        for squares in self.windows.tolist():
            for scale, (row, column, side) in enumerate(squares):
                yield scale, (slice(max(row, 0), max(row + side, 0)), slice(max(column, 0), max(column + side, 0)))


def block(view: "View", steps: Steps, lettering: Lettering) -> Block:
    """The image with the path on the left; a row for each step on the right: its number, its patches, its probabilities."""
    assert view.picture is not None
    path = _Path.of(view.picture, steps)
    shown = _classes_to_show(path)
    names = [path.classes[index] for index in shown]
    places = _Places.of(path, lettering.width(names, 9), len(names))
    return Block(places.width, places.height, lambda canvas, top: _paint(canvas, top, path, shown, names, places))


def _paint(canvas: Canvas, down: float, path: _Path, shown: list[int], names: list[str], places: "_Places") -> None:
    lettering, colours = canvas.lettering, order_colours(len(path))
    captions = [(0.0, places.top - 0.06, [_DIMMER, _DASHED] if path.scales > 1 else [_BRIGHTNESS])]
    if path.patches:
        captions.append((places.patches, places.top - 0.06, [_SEES, _SCALES] if path.scales > 1 else [_SEES]))
    if names:
        captions.append((places.table, places.names, [_BELIEVES]))
    for left, bottom, lines in captions:
        canvas.write(left, down + bottom, "\n".join(lines), 9, va="bottom", color=QUIET)
    _draw_path(canvas.axes_at(0, down + places.top, *places.picture), path, colours, lettering)
    for step in range(len(path)):
        top = down + places.top + step * places.row + (places.row - places.patch) / 2
        beside = canvas.axes_at(places.patches - 0.4, top, 0.4, places.patch)
        _draw_disc(beside, 0.5, 0.5, step, colours, lettering)
        for scale, patch in enumerate(path.patches[step] if path.patches else ()):
            left = places.patches + scale * (places.patch + _BETWEEN)
            _draw_patch(canvas.axes_at(left, top, places.patch, places.patch), patch, colours[step])
    if names:
        cells = canvas.axes_at(places.table, down + places.top, places.cell * len(names), places.row * len(path))
        _draw_table(cells, path.probabilities[:, shown], lettering)
        answer = path.classes[int(path.probabilities[-1].argmax())]
        _name_columns(cells, names, answer, places.slant, lettering)


@dataclass(frozen=True)
class _Places:
    """Where everything goes."""

    width: float
    height: float
    picture: tuple[float, float]
    names: float  # the top of the classes' names
    top: float  # of the image and of the first row
    row: float  # the height of a row
    patches: float  # from the left
    patch: float  # the side of one
    table: float  # from the left
    cell: float  # the width of one
    slant: int  # of the classes' names, in degrees

    @classmethod
    def of(cls, path: _Path, words: float, columns: int) -> "_Places":
        """`words` is the width of the longest of the `columns` names."""
        slant = 0 if words < 0.62 else 45
        cell = 0.42 if slant else max(0.36, words + 0.1)
        reach = 0.72 * words if slant else 0.1  # of the last name, to the right and up
        names = 0.2
        top = max(names + 0.15 + max(reach, 0.1), 0.4)
        left, top_row, right, bottom = _in_view(path)
        pixel = _PICTURE / max(right - left, bottom - top_row)
        picture = ((right - left) * pixel, (bottom - top_row) * pixel)
        row = min(_TALLEST_ROW, max(_SMALLEST_ROW, picture[1] / len(path)))
        patch = 0.88 * row
        patches = picture[0] + 0.75
        table = patches + max(path.scales * (patch + _BETWEEN), 0.9) + 0.3
        width, height = table + cell * columns + reach, top + max(picture[1], row * len(path))
        return cls(width, height, picture, names, top, row, patches, patch, table, cell, slant)


def _in_view(path: _Path) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of what is shown, in pixels of the image: all of it, and the finest window of every glimpse."""
    rows, columns = path.picture.shape[:2]
    top, left, side = path.windows[:, 0].T
    return min(0, left.min()), min(0, top.min()), max(columns, (left + side).max()), max(rows, (top + side).max())


def _draw_path(axes: Any, path: _Path, colours: NDArray[np.float64], lettering: Lettering) -> None:
    """The image, as bright as it was seen, with the windows and the way between them."""
    from matplotlib.patches import Rectangle

    rows, columns = path.picture.shape[:2]
    clarity = _clarity(path)
    shown = path.picture * (clarity if path.picture.ndim == 2 else clarity[..., None])
    axes.imshow(shown, cmap="gray", vmin=0, vmax=1, extent=(0, columns, rows, 0), interpolation="nearest")
    left_edge, top_edge, right_edge, bottom_edge = _in_view(path)
    axes.set(xlim=(left_edge, right_edge), ylim=(bottom_edge, top_edge))
    inch = max(right_edge - left_edge, bottom_edge - top_edge) / _PICTURE  # in pixels of the image
    coarse: dict[str, Any] = {"linewidth": 1.0, "alpha": 0.8, "linestyle": (0, (4, 3))}
    for glimpse, (squares, inset, colour) in enumerate(zip(path.windows, _insets(path, inch), colours, strict=True)):
        # Coarse windows are shown once: those of later glimpses lie around their own middle in the same way.
        for scale, (top, left, side) in enumerate(squares if glimpse == 0 else squares[:1]):
            line = coarse if scale else {"linewidth": 2.0, "clip_on": False}
            corner, length = (left + inset, top + inset), side - 2 * inset
            axes.add_patch(Rectangle(corner, length, length, fill=False, edgecolor=colour, **line))
    places = path.places
    discs = _apart(places, 1.08 * _DISC * inch, _in_view(path))
    aside = np.linalg.norm(discs - places, axis=-1) > 0.1 * _DISC * inch
    covered = np.where(aside, _DOT, _DISC) / 2  # inches around each place
    for step, colour in enumerate(colours[1:], start=1):
        hop = float(np.linalg.norm(places[step] - places[step - 1])) / inch
        _draw_hop(axes, places[step - 1], places[step], (covered[step - 1], covered[step]), hop, colour)
    for glimpse, ((x, y), place) in enumerate(zip(discs, places, strict=True)):
        if aside[glimpse]:
            _draw_tie(axes, place, (x, y), colours[glimpse])
        _draw_disc(axes, x, y, glimpse, colours, lettering)


def _insets(path: _Path, inch: float) -> list[float]:
    """How far each finest frame is drawn inside of its window, in pixels of the image: further for each earlier one of the same window."""
    windows = [tuple(window) for window in path.windows[:, 0].tolist()]
    most = max(windows.count(window) for window in windows)
    return [
        windows[:glimpse].count(window) * min(_INSET / 72 * inch, 0.3 * window[2] / most)
        for glimpse, window in enumerate(windows)
    ]


def _draw_hop(
    axes: Any,
    before: NDArray[np.float64],
    after: NDArray[np.float64],
    covered: tuple[float, float],
    hop: float,
    colour: NDArray[np.float64],
) -> None:
    """An arrow between two places that are `hop` inches apart, of which so many are `covered` at both ends. A short one keeps a third of
    its length at least; one that stays where it is has none."""
    from matplotlib.patches import FancyArrowPatch

    if hop < 0.01:
        return
    scale = min(1.0, 2 / 3 * hop / sum(covered))
    shrink: dict[str, Any] = {"shrinkA": 72 * scale * covered[0], "shrinkB": 72 * scale * covered[1]}
    length = 72 * (hop - scale * sum(covered))  # points
    style: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": min(11, max(6, length)), "linewidth": 1.8}
    axes.add_patch(
        FancyArrowPatch(tuple(before), tuple(after), color=colour, clip_on=False, zorder=3, **style, **shrink)
    )


def _draw_tie(axes: Any, place: NDArray[np.float64], disc: tuple[float, float], colour: NDArray[np.float64]) -> None:
    """A dot where a glimpse was, and a thread to its number."""
    limits = (axes.get_xlim(), axes.get_ylim())
    x, y = zip(place, disc, strict=True)
    axes.plot(x, y, color=colour, linewidth=0.8, zorder=3, clip_on=False)
    dot = {"color": [colour], "edgecolors": INK, "linewidths": 0.5, "zorder": 3.5, "clip_on": False}
    axes.scatter(x[:1], y[:1], s=(72 * _DOT) ** 2, **dot)
    axes.set(xlim=limits[0], ylim=limits[1])


def _draw_disc(axes: Any, x: float, y: float, glimpse: int, colours: NDArray[np.float64], lettering: Lettering) -> None:
    limits = (axes.get_xlim(), axes.get_ylim())
    dot = {"color": [colours[glimpse]], "edgecolors": INK, "linewidths": 0.8, "zorder": 4, "clip_on": False}
    axes.scatter([x], [y], s=(72 * _DISC) ** 2, **dot)
    axes.set(xlim=limits[0], ylim=limits[1])  # a dot does not move what it is on
    centred: dict[str, Any] = {"ha": "center", "va": "center_baseline", "zorder": 5, "weight": "bold"}
    lettering.write(axes, x, y, str(glimpse + 1), 9 if glimpse < 9 else 8, **centred)


def _draw_patch(axes: Any, patch: NDArray[np.float32], colour: NDArray[np.float64]) -> None:
    axes.imshow(patch, cmap="gray", vmin=0, vmax=1, interpolation="nearest", aspect="auto")
    axes.spines[:].set(visible=True, color=colour, linewidth=1.6)


def _draw_table(axes: Any, probabilities: NDArray[np.float32], lettering: Lettering) -> None:
    """(T, N) as coloured cells with their numbers; the answer is framed."""
    from matplotlib.patches import Rectangle

    colours = scale_to(1.0)
    axes.pcolormesh(probabilities, norm=colours.norm, cmap=colours.cmap, edgecolors="white", linewidth=1.0)
    axes.set(xlim=(0, probabilities.shape[1]), ylim=(len(probabilities), 0))
    for row, column in np.argwhere(probabilities >= 0.005):
        chance = float(probabilities[row, column])
        colour = "white" if chance > 0.55 else INK
        centred: dict[str, Any] = {"ha": "center", "va": "center"}
        lettering.write(axes, column + 0.5, row + 0.5, number(chance), 8.5, color=colour, **centred)
    answer = (int(probabilities[-1].argmax()), len(probabilities) - 1)
    axes.add_patch(Rectangle(answer, 1, 1, fill=False, edgecolor=INK, linewidth=1.4, clip_on=False))


def _name_columns(axes: Any, names: list[str], answer: str, slant: int, lettering: Lettering) -> None:
    from matplotlib.transforms import ScaledTranslation

    above = axes.get_xaxis_transform() + ScaledTranslation(0, 0.06, axes.figure.dpi_scale_trans)
    options: dict[str, Any] = {"rotation": slant, "rotation_mode": "anchor", "ha": "left" if slant else "center"}
    for column, name in enumerate(names):
        weight = "bold" if name == answer else "normal"
        lettering.write(axes, column + 0.5, 1, name, 9, transform=above, va="baseline", weight=weight, **options)


def _classes_to_show(path: _Path) -> list[int]:
    """All in their order, or the likeliest ones of the whole path, best answer first, where there are too many to read."""
    if len(path.classes) <= _MOST_CLASSES:
        return list(range(len(path.classes)))
    likeliest = np.argsort(-path.probabilities.max(axis=0), kind="stable")[:_MOST_CLASSES]
    return sorted(map(int, likeliest), key=lambda index: -path.probabilities[-1, index])


def _clarity(path: _Path) -> NDArray[np.float64]:
    """How sharply each pixel was seen at best, (H, W): 1 by the finest scale, half of that by the next, and so on."""
    clarity = np.full(path.picture.shape[:2], _UNSEEN)
    for scale, part in path.parts():
        clarity[part] = np.maximum(clarity[part], _UNSEEN + (1 - _UNSEEN) * 0.5**scale)
    return clarity


def _apart(
    places: NDArray[np.float64], distance: float, view: tuple[float, float, float, float]
) -> NDArray[np.float64]:
    """The places (T, 2), those that would cover each other pushed apart until none is nearer to another than `distance` and none of them
    stands on a place itself. They stay in `view`: left, top, right, bottom."""
    moved: NDArray[np.float64] = places.astype(np.float64).copy()
    crowded = _lengths(moved[:, None] - moved[None]).min(1) < 0.99 * distance
    turn = np.arange(len(moved)) * 2.4  # radians: equal places leave in different directions
    moved[crowded] += 1e-3 * np.stack((np.cos(turn), np.sin(turn)), -1)[crowded]
    room = (_DISC / 2 + _DOT) / _DISC * distance
    for _ in range(400):
        between = moved[:, None] - moved[None]  # (T, T, 2)
        off = moved[crowded, None] - places[None, crowded]
        push = np.clip(distance - _lengths(between), 0, None)
        lengths = np.maximum(np.linalg.norm(off, axis=-1), 1e-9)  # the edge of the view may put one on a place
        push_off = np.clip(room - lengths, 0, None)
        if max(push.max(), push_off.max(initial=0)) <= 0.01 * distance:
            break
        moved += (between / _lengths(between)[..., None] * push[..., None]).sum(1) * 0.25
        moved[crowded] += (off / lengths[..., None] * push_off[..., None]).sum(1) * 0.25
        moved = moved.clip(view[:2], view[2:])
    return moved


def _lengths(between: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of what lies between places (T, T, 2); nothing is near itself."""
    lengths: NDArray[np.float64] = np.maximum(np.linalg.norm(between, axis=-1), 1e-9)
    return lengths + np.eye(len(between)) * 1e9
