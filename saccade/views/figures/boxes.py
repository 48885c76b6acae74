"""Objects on the picture: a numbered box for each, in the colours and with the numbers that stand along the edges of matrices."""

from typing import TYPE_CHECKING, Any

from saccade.views.axes import Objects
from saccade.views.figures.canvas import Block, Canvas
from saccade.views.figures.overlay import enlarged
from saccade.views.figures.palette import INK, order_colours
from saccade.views.lettering import Lettering

if TYPE_CHECKING:
    from saccade.views.view import View

_SIDE = 3.0  # inches on the longer side of the picture


def block(view: "View", objects: Objects, lettering: Lettering) -> Block:
    assert view.picture is not None
    picture = view.picture
    rows, columns = picture.shape[:2]
    width, height = _SIDE * columns / max(rows, columns), _SIDE * rows / max(rows, columns)

    def paint(canvas: Canvas, top: float) -> None:
        axes = canvas.axes_at(0, top, width, height)
        axes.imshow(enlarged(picture), extent=(0, 1, 1, 0), aspect="auto", interpolation="none")
        _draw_boxes(axes, objects, lettering)

    return Block(width, height, paint)


def _draw_boxes(axes: Any, objects: Objects, lettering: Lettering) -> None:
    from matplotlib.patches import Rectangle

    for index, ((left, top, width, height), colour) in enumerate(
        zip(objects.boxes, order_colours(len(objects)), strict=True)
    ):
        for edge, line in ((INK, 3.2), (colour, 1.8)):
            frame: dict[str, Any] = {"fill": False, "edgecolor": edge, "linewidth": line, "clip_on": False}
            axes.add_patch(Rectangle((left, top), width, height, **frame))
        label: dict[str, Any] = {"ha": "left", "va": "top", "weight": "bold", "zorder": 5}
        label["bbox"] = {"facecolor": colour, "edgecolor": INK, "linewidth": 0.6, "pad": 1.5}
        lettering.write(axes, left, top, str(index + 1), 8, **label)
