"""What did the model look at in this picture? One forward pass while recording.

A map of an image classifier has thousands of rows, one for each cell that looks. What people ask for is one of them: the row of the class
token, out of which the class is read, or the mean of all where there is none; or that of the cell at a pixel. Layers
that all look over the same cells are also multiplied into one (attention rollout, see rollout.py), which says what reaches the class from
the picture itself.

Axis legend: H heads, Q queries, K keys.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

import torch

from saccade.attention import Attend, LocalSelfAttention2d, record_attention
from saccade.data.images.decoding import Pixels
from saccade.data.images.store import AnyImage
from saccade.errors import UserError
from saccade.layers.windows import WindowAttention
from saccade.tasks.image_classes.task import Classified, ImageClassTask
from saccade.views.axes import Axis, Grid, Tokens
from saccade.views.maps import AttentionMap, labels
from saccade.views.rollout import rollout

Pixel = tuple[int, int]  # row, column

ALL_CELLS = "the average cell"
_LARGEST = 1 << 28  # weights recorded at a time: 1 GB


@dataclass(frozen=True)
class Sight:
    """A picture, what the model takes it for, and where it looked."""

    picture: Pixels  # (rows, columns, channels) as the model gets it
    answer: Classified
    whole: list[AttentionMap]  # the same as `maps`, but from every cell
    pixel: Pixel | None  # where to look from, if somebody said
    chosen: bool = False  # whether somebody named the layers
    left_out: int = 0  # layers, the first ones, that would not have fitted in memory with the others
    truth: str | None = None  # its class, if people know it

    @cached_property
    def maps(self) -> list[AttentionMap]:
        """The rollout first, if there is one; then every layer in order. Each has one row: who looks is one cell, one token, or all."""
        return [_one_row(each, self.cell(each.queries)) for each in self.whole]

    def cell(self, axis: Axis) -> int | None:
        """Which query to show: that of the pixel, else the class token. None is the mean of all."""
        if not isinstance(axis, Grid):
            return None
        if self.pixel is None:
            return 0 if axis.extra else None
        (row, column), (down, across) = self.pixel, axis.covered(*self.picture.shape[:2])
        return len(axis.extra) + row * axis.rows // down * axis.columns + column * axis.columns // across

    def even(self, attention: AttentionMap) -> float | None:
        """The weight that everything in view of a map of `whole` would get if all got the same. None where the mean of all cells is shown
        and they see different parts of the picture."""
        sees = attention.weights.max(0) > 0  # (H, Q, K) -> (Q, K)
        cell = self.cell(attention.queries)
        row = sees[0 if cell is None else cell]
        if (cell is None and (sees != row).any()) or not row.any():
            return None
        return 1 / int(row.sum())


def look(
    task: ImageClassTask, image: AnyImage, pixel: Pixel | None = None, only: str | None = None
) -> list[AttentionMap]:
    """The maps of the attention modules whose name matches (all that fit in memory unless given), from what the class is read from or from
    the cell at `pixel` (row, column)."""
    return see(task, image, pixel, only).maps


@torch.no_grad()
def see(task: ImageClassTask, image: AnyImage, pixel: Pixel | None = None, only: str | None = None) -> Sight:
    """All of a picture at once: what `look` gives, and what is needed to draw it."""
    pixels = task.picture(image)
    _, rows, columns = pixels.shape
    if pixel is not None and not (0 <= pixel[0] < rows and 0 <= pixel[1] < columns):
        raise UserError(
            f"the pixel {pixel[0]},{pixel[1]} was asked for, but the model sees {rows} rows and {columns} columns: "
            f"give a row from 0 to {rows - 1} and a column from 0 to {columns - 1}"
        )
    heads = _attentions(task.model)
    axes = _axes(task.model, heads, rows, columns, only)
    left_out = len(heads) - len(axes) if only is None else 0
    task.model.eval()
    with record_attention(task.model, axes) as recorded:
        task.model(task.standardise(torch.tensor(pixels, device=task.device)[None]))
    layers = [AttentionMap(name, recorded.joined(name)[0], *axes[name]) for name in recorded]
    is_whole = len(layers) == len(heads)  # a rollout of some layers only would start nowhere
    if pixel is not None:
        layers = _looking_from_cells(layers)
    together = _rollout(layers) if is_whole else []
    return Sight(
        pixels.transpose(1, 2, 0), task.predict([image])[0], [*together, *layers], pixel, only is not None, left_out
    )


def _attentions(model: Any) -> dict[str, int]:
    """The attention modules of a model by name, and how many heads each has."""
    kinds = (Attend, LocalSelfAttention2d, WindowAttention)
    heads = {name: getattr(module, "heads", 1) for name, module in model.named_modules() if isinstance(module, kinds)}
    if not heads or not hasattr(model, "attention_axes"):
        raise UserError(
            "this model has no attention to look at: train one that attends, such as vit or cnn, "
            "or a resnet with model.attention=after-stem"
        )
    return heads


def _axes(model: Any, heads: dict[str, int], rows: int, columns: int, only: str | None) -> dict[str, tuple[Axis, Axis]]:
    """What stands along both sides of every attention whose name matches; refused where the maps would not fit in memory. Unless a name was
    given, of the last ones that do."""
    axes = {
        name: model.attention_axes(name, {"image": Grid(rows, columns, cell=1)})
        for name in heads
        if fnmatchcase(name, only or "*")
    }
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
    kept = [each for each in maps if isinstance(each.queries, Grid)]
    if not kept:
        names = ", ".join(each.name for each in maps)
        raise UserError(
            f"{names} looks from the whole picture and from no pixel: leave the pixel out, or name other layers"
        )
    return kept


def _rollout(maps: Sequence[AttentionMap]) -> list[AttentionMap]:
    """All layers as one map, where they look over the same cells; read by attention pooling, if the model pools so."""
    layers = [each for each in maps if isinstance(each.queries, Grid)]
    if len(layers) < 2 or any(each.queries != layers[0].queries or each.keys != layers[0].queries for each in layers):
        return []
    flow = rollout(layers)
    pools = [each for each in maps if isinstance(each.queries, Tokens) and each.keys == flow.keys]
    if not pools:
        return [flow]
    read = pools[-1].weights.mean(0) @ flow.weights[0]  # (1, K) @ (K, K) -> (1, K)
    return [AttentionMap(flow.name, read, pools[-1].queries, flow.keys)]


def _one_row(attention: AttentionMap, query: int | None) -> AttentionMap:
    """One of the queries, with a name instead of a place; or the mean of all cells."""
    if not isinstance(attention.queries, Grid):
        return attention
    if query is None:
        mean = attention.weights.mean(1, keepdims=True)  # (H, Q, K) -> (H, 1, K)
        return AttentionMap(attention.name, mean, Tokens((ALL_CELLS,)), attention.keys)
    row = attention.weights[:, query : query + 1]  # (H, Q, K) -> (H, 1, K)
    return AttentionMap(attention.name, row, Tokens((labels(attention.queries)[query],)), attention.keys)
