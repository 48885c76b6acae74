"""What did the model look at in this picture? One forward pass while recording.

A map of an image classifier has thousands of rows, one for each cell that looks. What people ask for is one of them: the row of the class
token, out of which the class is read, or the mean of all where there is none; or that of the cell at a pixel. Layers
that all look over the same cells are also multiplied into one (attention rollout, see rollout.py), which says what reaches the class from
the picture itself.

Axis legend: H heads, Q queries, K keys.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from saccade.attention import Attend, LocalSelfAttention2d, record_attention
from saccade.data.images.store import AnyImage
from saccade.errors import UserError
from saccade.layers.windows import WindowAttention
from saccade.tasks.image_classes.glimpses import path_of
from saccade.tasks.image_classes.options import ImageOptions
from saccade.tasks.task import Example
from saccade.views.axes import Axis, Grid, Tokens
from saccade.views.maps import AttentionMap
from saccade.views.rollout import rollout
from saccade.views.view import View

if TYPE_CHECKING:
    from saccade.models.glimpse import GlimpseNetwork
    from saccade.tasks.classified import Classified
    from saccade.tasks.image_classes.task import ImageClassTask

Pixel = tuple[int, int]  # row, column

_LARGEST = 1 << 28  # weights recorded at a time: 1 GB


@torch.no_grad()
def look(
    task: "ImageClassTask", example: Example[AnyImage], pixel: Pixel | None = None, only: str | None = None
) -> View:
    """The attention modules whose name matches (all that fit in memory unless given), seen from what the class is read from or from the
    cell at `pixel` (row, column). Of a network that glimpses: its path."""
    pixels = task.picture(example.content)
    _check_pixel(pixel, pixels.shape[1:])
    task.model.eval()
    answer = next(task.answers([example], ImageOptions(best=None)))
    if task.glimpses is not None:
        return _glimpses(task, task.glimpses, answer, pixels, example.truth)
    if not attentions(task.model) and only is None:
        return View(**_headed(answer, pixels, [], example.truth), maps=(), hint=NO_ATTENTION)
    layers, left_out = _recorded(task, pixels, only)
    is_whole = len(layers) == len(attentions(task.model))  # a rollout of some layers only would start nowhere
    if pixel is not None:
        layers = _looking_from_cells(layers)
    together = _rollout(layers) if is_whole else []
    maps = (*together, *layers)
    starts = {attention.name: start_of(attention.queries, pixel, pixels.shape[1:]) for attention in maps}
    summary, hint = _summary(maps, layers) if only is None else ((), "")
    without = f"without the first {left_out} attentions, which need much memory" if left_out else ""
    return View(
        **_headed(answer, pixels, [without], example.truth),
        maps=maps,
        seen_from={name: query for name, query in starts.items() if query is not None},
        summary=summary,
        hint=hint,
        first=0 if together else len(maps) - 1,
        details={
            "pixel": None if pixel is None else dict(zip(("row", "column"), pixel, strict=True)),
            "left_out": left_out,
        },
    )


NO_ATTENTION = (
    "this model has no attention to look at: train one that attends, such as vit or cnn, "
    "or a resnet with model.attention=after-stem"
)


def _headed(
    answer: "Classified", pixels: NDArray[np.uint8], remarks: Sequence[str], truth: str | None
) -> dict[str, Any]:
    """What every view of a classified image says: the class, the image, what else it might be."""
    others = zip(answer.classes[1:4], answer.probabilities[1:4], strict=True)
    runners_up = f"else {', '.join(f'{name} {share:.2f}' for name, share in others)}" if len(answer.classes) > 1 else ""
    title = f"{answer.text} (probability {answer.probability:.2f})"
    return {
        "title": title,
        "text": title,
        "answer": answer.to_dict(),
        "source": answer.source,
        "subtitle": " · ".join(part for part in (runners_up, *remarks) if part),
        "picture": pixels.transpose(1, 2, 0),
        "truth": truth,
    }


def _glimpses(
    task: "ImageClassTask", model: "GlimpseNetwork", answer: "Classified", pixels: NDArray[np.uint8], truth: str | None
) -> View:
    path = path_of(task, model, pixels)
    count = len(path.queries)
    remark = f"after {count} glimpse{'s' if count > 1 else ''}"
    return View(**_headed(answer, pixels, [remark], truth), maps=(path,))


def _check_pixel(pixel: Pixel | None, size: Sequence[int]) -> None:
    rows, columns = size
    if pixel is not None and not (0 <= pixel[0] < rows and 0 <= pixel[1] < columns):
        raise UserError(
            f"the pixel {pixel[0]},{pixel[1]} was asked for, but the model sees {rows} rows and {columns} columns: "
            f"give a row from 0 to {rows - 1} and a column from 0 to {columns - 1}"
        )


def start_of(axis: Axis, pixel: Pixel | None, size: Sequence[int]) -> int | None:
    """The query to show first: that of the cell at the pixel, else the class token. None is the mean of all."""
    if not isinstance(axis, Grid):
        return None
    if pixel is None:
        return 0 if axis.extra else None
    (row, column), (down, across) = pixel, axis.covered(size[0], size[1])
    return len(axis.extra) + row * axis.rows // down * axis.columns + column * axis.columns // across


def _recorded(task: "ImageClassTask", pixels: NDArray[np.uint8], only: str | None) -> tuple[list[AttentionMap], int]:
    """The maps of one forward pass, and how many of the first layers would not have fitted in memory with the others."""
    _, rows, columns = pixels.shape
    heads = attentions(task.model)
    axes = _axes(task.model, heads, rows, columns, only)
    with record_attention(task.model, axes) as recorded:
        task.model(task.standardise(torch.tensor(pixels, device=task.device)[None]))
    layers = [AttentionMap(name, recorded.joined(name)[0], *axes[name], "looks from", "looks at") for name in recorded]
    return layers, len(heads) - len(axes) if only is None else 0


def _summary(maps: Sequence[AttentionMap], layers: Sequence[AttentionMap]) -> tuple[tuple[AttentionMap, ...], str]:
    """A picture shows the heads of the last layer that has several, and every layer's mean."""
    headed = [attention for attention in layers if attention.heads > 1]
    if len(headed) < 2:
        return (), ""
    left_out = {attention.name for attention in headed[:-1]}
    summary = tuple(attention.averaged() if attention.name in left_out else attention for attention in maps)
    return summary, f"shows the heads of the last layer: --only '*' draws those of all {len(headed)} layers"


def attentions(model: Any) -> dict[str, int]:
    """The attention modules of a model by name, and how many heads each has."""
    kinds = (Attend, LocalSelfAttention2d, WindowAttention)
    return {name: getattr(module, "heads", 1) for name, module in model.named_modules() if isinstance(module, kinds)}


def _axes(model: Any, heads: dict[str, int], rows: int, columns: int, only: str | None) -> dict[str, tuple[Axis, Axis]]:
    """What stands along both sides of every attention whose name matches; refused where the maps would not fit in memory. Unless a name was
    given, of the last ones that do."""
    axes = {
        name: model.attention_axes(name, {"image": Grid(rows, columns, cell=1)})
        for name in heads
        if fnmatchcase(name, only or "*")
    }
    if not heads:
        raise UserError(NO_ATTENTION)
    if not axes:
        raise UserError(f"no attention of this model matches {only!r}: it has {', '.join(heads)}")
    sizes = {name: heads[name] * len(queries) * len(keys) for name, (queries, keys) in axes.items()}
    small = min(sizes, key=lambda name: sizes[name])
    while only is None and len(sizes) > 1 and sum(sizes.values()) > _LARGEST:
        first = next(iter(sizes))
        del sizes[first], axes[first]
    if sum(sizes.values()) > _LARGEST:
        raise UserError(
            f"{only or small!r} would record {sum(sizes.values()):,} weights, more than the {_LARGEST:,} that fit in memory at a time: "
            f"choose fewer layers by their name, for example --only {small}"
        )
    return axes


def _looking_from_cells(maps: Sequence[AttentionMap]) -> list[AttentionMap]:
    """Without attention pooling, which looks from the whole picture whatever the pixel is."""
    kept = [attention for attention in maps if isinstance(attention.queries, Grid)]
    if not kept:
        names = ", ".join(attention.name for attention in maps)
        raise UserError(
            f"{names} looks from the whole picture and from no pixel: leave the pixel out, or name other layers"
        )
    return kept


def _rollout(maps: Sequence[AttentionMap]) -> list[AttentionMap]:
    """All layers as one map, where they look over the same cells; read by attention pooling, if the model pools so."""
    layers = [attention for attention in maps if isinstance(attention.queries, Grid)]
    if len(layers) < 2 or any(
        attention.queries != layers[0].queries or attention.keys != layers[0].queries for attention in layers
    ):
        return []
    flow = rollout(layers)
    pools = [attention for attention in maps if isinstance(attention.queries, Tokens) and attention.keys == flow.keys]
    if not pools:
        return [flow]
    read = pools[-1].weights.mean(0) @ flow.weights[0]  # (1, K) @ (K, K) -> (1, K)
    return [AttentionMap(flow.name, read, pools[-1].queries, flow.keys, "looks from", "looks at")]
