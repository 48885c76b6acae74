"""The path of a glimpse network as a picture for a lecture: where it looked, what it saw there, what it believed after each glimpse.

The image is bright where it was seen sharply, dimmer where only a coarse scale saw it, and dark where nobody looked. Numbers and
colours are the order of the glimpses, the same on the image and beside it. Where glimpses are so close that their numbers would cover each
other, the numbers stand aside, each tied to a dot at its glimpse's place. Places and sizes are inches from the top left corner.

Axis legend: T glimpses, S scales, H rows, W columns, N classes.
"""

from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from saccade.tasks.image_classes.glimpses import GlimpsePath, subtitle_of, title_of
from saccade.views.figures import COLOURS
from saccade.views.layout import number
from saccade.views.lettering import INK, QUIET, Lettering

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The order of the glimpses: from yellow to violet, each bright enough to be seen on black.
ORDER = ("#ffe07a", "#ffb347", "#ff7f50", "#f2557e", "#c45cd6", "#8f7bff")
_UNSEEN = 0.3  # how bright an image is where nobody looked
_MOST_CLASSES = 12
_TALLEST_ROW, _SMALLEST_ROW = 0.72, 0.34
_PICTURE = 4.4  # the longer side of the image
_DISC = 0.23  # across, with a number in it
_DOT = 0.06  # across, where a number stands aside
_INSET = 3.0  # points between frames of the same place
_BETWEEN = 0.06  # patches
_SEES, _BELIEVES = "what it sees", "probability after each glimpse"
_SCALES = "fine → coarse"
_BRIGHTNESS = "bright: seen sharply · dark: not looked at"
_DIMMER = "bright: seen sharply · dimmer: coarsely · dark: not looked at"
_DASHED = "dashed: the coarse windows, of glimpse 1 only"
_SPOKEN = f"0123456789.{_SEES}{_BELIEVES}{_SCALES}{_DIMMER}{_DASHED}"


def png(path: GlimpsePath, title: str = "") -> bytes:
    figure = draw(path, title)
    return _printed(figure, format="png", dpi=min(160, 20000 / max(figure.get_size_inches())))


def svg(path: GlimpsePath, title: str = "") -> bytes:
    return _printed(draw(path, title), format="svg", metadata={"Title": title or title_of(path), "Date": None})


def draw(path: GlimpsePath, title: str = "") -> "Figure":
    """The image with the path on the left; a row for each glimpse on the right: its number, its patches, its probabilities."""
    from matplotlib.figure import Figure

    title, subtitle = title or title_of(path), subtitle_of(path)
    lettering = Lettering([_SPOKEN, title, subtitle, *path.classes])
    shown = _classes_to_show(path)
    names = [path.classes[index] for index in shown]
    places = _Places.of(path, lettering.width(names, 9), len(names))
    figure = Figure(figsize=(places.width, places.height), facecolor="white")

    def axes_at(left: float, top: float, width: float, height: float) -> Any:
        bottom = places.height - top - height
        inches = np.array((left / places.width, bottom / places.height, width / places.width, height / places.height))
        axes = figure.add_axes(tuple(inches))
        axes.set(xticks=(), yticks=())
        axes.spines[:].set_visible(False)
        return axes

    colours = _colours(len(path.locations))
    lettering.write(figure, 0, 1, title, 14, whole=True, va="top", weight="bold")
    lettering.write(figure, 0, 1 - 0.27 / places.height, subtitle, 9, whole=True, va="top", color=QUIET)
    is_scaled = path.patches.shape[1] > 1
    for left, bottom, lines in (
        (0.0, places.top - 0.06, [_DIMMER, _DASHED] if is_scaled else [_BRIGHTNESS]),
        (places.patches, places.top - 0.06, [_SEES, _SCALES] if is_scaled else [_SEES]),
        (places.table, places.names, [_BELIEVES]),
    ):
        x, y = left / places.width, 1 - bottom / places.height
        lettering.write(figure, x, y, "\n".join(lines), 9, whole=True, va="bottom", color=QUIET)
    _draw_path(axes_at(0, places.top, *places.picture), path, colours, lettering)
    for glimpse, seen in enumerate(path.patches):
        top = places.top + glimpse * places.row + (places.row - places.patch) / 2
        _draw_disc(axes_at(places.patches - 0.4, top, 0.4, places.patch), 0.5, 0.5, glimpse, colours, lettering)
        for scale, patch in enumerate(seen):
            left = places.patches + scale * (places.patch + _BETWEEN)
            _draw_patch(axes_at(left, top, places.patch, places.patch), patch, colours[glimpse])
    cells = axes_at(places.table, places.top, places.cell * len(names), places.row * len(path.locations))
    _draw_table(cells, path.probabilities[:, shown], lettering)
    _name_columns(cells, names, path.answer.text, places.slant, lettering)
    return figure


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
    def of(cls, path: GlimpsePath, words: float, columns: int) -> "_Places":
        """`words` is the width of the longest of the `columns` names."""
        slant = 0 if words < 0.62 else 45
        cell = 0.42 if slant else max(0.36, words + 0.1)
        reach = 0.72 * words if slant else 0.1  # of the last name, to the right and up
        names = 0.8
        top = names + 0.15 + max(reach, 0.1)
        left, top_row, right, bottom = _in_view(path)
        pixel = _PICTURE / max(right - left, bottom - top_row)
        picture = ((right - left) * pixel, (bottom - top_row) * pixel)
        row = min(_TALLEST_ROW, max(_SMALLEST_ROW, picture[1] / len(path.locations)))
        patch = 0.88 * row
        patches = picture[0] + 0.75
        table = patches + max(path.patches.shape[1] * (patch + _BETWEEN), 0.9) + 0.3
        width, height = table + cell * columns + reach, top + max(picture[1], row * len(path.locations))
        return cls(width, height, picture, names, top, row, patches, patch, table, cell, slant)


def _in_view(path: GlimpsePath) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of what is shown, in pixels of the image: all of it, and the finest window of every glimpse."""
    rows, columns = path.picture.shape[:2]
    top, left, side = path.windows[:, 0].T
    return min(0, left.min()), min(0, top.min()), max(columns, (left + side).max()), max(rows, (top + side).max())


def _draw_path(axes: Any, path: GlimpsePath, colours: NDArray[np.float64], lettering: Lettering) -> None:
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
    places = (path.locations[:, ::-1] + 1) / 2 * (columns, rows)  # rows and columns -> x and y in pixels
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


def _insets(path: GlimpsePath, inch: float) -> list[float]:
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
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.patches import Rectangle

    ink = LinearSegmentedColormap.from_list("ink", COLOURS)
    axes.pcolormesh(probabilities, vmin=0, vmax=1, cmap=ink, edgecolors="white", linewidth=1.0)
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


def _classes_to_show(path: GlimpsePath) -> list[int]:
    """All in their order, or the likeliest ones of the whole path, best answer first, where there are too many to read."""
    if len(path.classes) <= _MOST_CLASSES:
        return list(range(len(path.classes)))
    likeliest = np.argsort(-path.probabilities.max(axis=0), kind="stable")[:_MOST_CLASSES]
    return sorted(map(int, likeliest), key=lambda index: -path.probabilities[-1, index])


def _colours(count: int) -> NDArray[np.float64]:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("order", ORDER)(np.linspace(0, 1, count))


def _clarity(path: GlimpsePath) -> NDArray[np.float64]:
    """How sharply each pixel was seen at best, (H, W): 1 by the finest scale, half of that by the next, and so on."""
    clarity = np.full(path.picture.shape[:2], _UNSEEN)
    for _, scale, _, part in path.parts():
        clarity[part] = np.maximum(clarity[part], _UNSEEN + (1 - _UNSEEN) * 0.5**scale)
    return clarity


def _apart(
    places: NDArray[np.float64], distance: float, view: tuple[float, float, float, float]
) -> NDArray[np.float64]:
    """The places (T, 2), those that would cover each other pushed apart until none is nearer to another than `distance` and none of them
    stands on a place itself. They stay in `view`: left, top, right, bottom."""
    moved = places.astype(np.float64).copy()
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
    return np.maximum(np.linalg.norm(between, axis=-1), 1e-9) + np.eye(len(between)) * 1e9


def _printed(figure: "Figure", **options: Any) -> bytes:
    content = BytesIO()
    figure.savefig(content, bbox_inches="tight", pad_inches=0.2, **options)
    return content.getvalue()
