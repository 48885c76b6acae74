"""What did each word of a caption look at? The caption is written first, then replayed while recording.

The picture shows the photo once for every word, with the weights of that word laid over it (see shelves.py); the cell that hard attention
chose is framed. With several layers there is a row for all of them together and one for each; with one layer of several heads (choose it
by its name) one for each head. On the page, hovering a word lights its region.

Axis legend: H heads, Q words and the end, K cells.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from saccade.attention import record_attention
from saccade.data.images.decoding import Pixels
from saccade.data.images.store import AnyImage
from saccade.data.text.tokenizer import BOS
from saccade.errors import UserError
from saccade.tasks.captions.task import Caption, CaptionTask
from saccade.tasks.image_classes.overlay import short
from saccade.tasks.translation.look import END
from saccade.views.axes import Grid, Tokens
from saccade.views.document import write_by_ending
from saccade.views.maps import AttentionMap
from saccade.views.page import page as map_page
from saccade.views.shelves import Panel, Shelf, blended, enlarged, on_shelves, printed, uncovered

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PANEL = 1.5  # inches on the longer side
_LINE = 100  # letters


@dataclass(frozen=True)
class CaptionSight:
    """A picture, what was said about it, and where each word looked."""

    picture: Pixels  # (rows, columns, 3) as the model gets it
    answer: Caption
    maps: list[AttentionMap]  # of every attention over the image: words by cells
    truth: str | None = None  # what people say about it, if that is known

    @property
    def words(self) -> tuple[str, ...]:
        """What was replayed, its end included."""
        axis = self.maps[0].queries
        assert isinstance(axis, Tokens)
        return axis.words


def look(task: CaptionTask, image: AnyImage, target: str | None = None, only: str = "*") -> list[AttentionMap]:
    """The maps of the attention over the image whose name matches, for a caption, by default the model's own."""
    return see(task, image, target, only).maps


@torch.no_grad()
def see(task: CaptionTask, image: AnyImage, target: str | None = None, only: str = "*") -> CaptionSight:
    """What `look` gives, and what is needed to draw it."""
    answer = task.predict([image])[0] if target is None else task.given(image, target)
    tokens, pixels = answer.hypotheses[0].tokens, task.picture(image)
    with record_attention(task.model, "decoder.*") as recorded:
        encoded = task.encoded(torch.tensor(pixels, device=task.device)[None])
        task.stepper.read(encoded, torch.tensor([[BOS, *tokens]], device=task.device))
    words = Tokens((*task.vocabulary.words(tokens), END))
    grid = Grid(*task.stepper.encoder.grid)
    names = [name for name in recorded if "self" not in name]
    maps = [AttentionMap(name, recorded.joined(name)[0], words, grid) for name in _matching(names, only)]
    return CaptionSight(pixels.transpose(1, 2, 0), answer, maps)


def save(sight: CaptionSight, path: str | Path, title: str = "") -> None:
    """Write as a picture (.png, .svg), a page to hover over (.html) or data (.json). Missing directories are made."""
    title = title or sight.answer.text
    write_by_ending(
        path,
        png=lambda: png(sight, title),
        svg=lambda: svg(sight, title),
        html=lambda: page(sight, title),
        values=lambda: {
            "title": title,
            "answer": sight.answer.to_dict(),
            "truth": sight.truth,
            "maps": [each.to_dict() for each in sight.maps],
        },
    )


def png(sight: CaptionSight, title: str = "") -> bytes:
    return printed(draw(sight, title), format="png", dpi=160)


def svg(sight: CaptionSight, title: str = "") -> bytes:
    title = title or sight.answer.text
    return printed(draw(sight, title), format="svg", metadata={"Title": title, "Date": None})


def page(sight: CaptionSight, title: str = "") -> str:
    """One HTML file that holds everything it shows, loads nothing and sends nothing."""
    title = title or sight.answer.text
    return map_page(sight.maps, title, "caption", "picture", sight.picture, subtitle=_subtitle(sight))


def draw(sight: CaptionSight, title: str = "") -> "Figure":
    """The photo, and over and over again the photo with the weights of a word."""
    shelves = _shelves(sight)
    every = sum(len(shelf.panels) for shelf in shelves)
    return on_shelves(shelves, sight.picture, title or sight.answer.text, _subtitle(sight), beside=every)


def _subtitle(sight: CaptionSight) -> str:
    """Where the picture came from, and as much of the truth as a line holds."""
    truth = shorten(sight.truth or "", _LINE, placeholder=" …")
    return Path(sight.answer.source).name + (f" · in truth: {truth}" if truth else "")


def _matching(names: Sequence[str], only: str) -> list[str]:
    if not names:
        raise UserError(
            "this model never looks at the image while it writes: train show_attend_tell or caption_transformer"
        )
    found = [name for name in names if fnmatchcase(name, only)]
    if not found:
        raise UserError(f"no attention of this model matches {only!r}: it has {', '.join(names)}")
    return found


def _shelves(sight: CaptionSight) -> list[Shelf]:
    """All layers together first; then each layer, or each head of the only one."""
    photo = Panel(enlarged(sight.picture), "the picture")
    maps = sight.maps
    everything = np.mean([each.weights.mean(0) for each in maps], axis=0)  # (Q, K)
    together = "" if len(maps) == 1 else f"{len(maps)} layers together, average of heads"
    together = together or ("" if maps[0].heads == 1 else f"{maps[0].label}, average of {maps[0].heads} heads")
    shelves = [Shelf(together, _PANEL, [photo, *_panels(sight, everything)])]
    if len(maps) > 1:
        return [*shelves, *(Shelf(each.label, _PANEL, _panels(sight, each.weights.mean(0))) for each in maps)]
    if maps[0].heads > 1:
        shelves += [
            Shelf(f"head {number}", _PANEL, _panels(sight, weights)) for number, weights in enumerate(maps[0].weights)
        ]
    return shelves


def _panels(sight: CaptionSight, weights: NDArray[np.float32]) -> list[Panel]:
    """The photo under the weights (Q, K) of each word."""
    grid = _grid(sight.maps[0])
    panels = []
    for word, row in zip(sight.words, weights, strict=True):
        cells = row.reshape(grid.rows, grid.columns)
        mark = _cell(row, grid) if row.max() == row.sum() > 0 else None
        note = "one cell" if mark else f"largest {short(float(row.max()))} · even {short(1 / len(row))}"
        picture = sight.picture
        shown = uncovered(picture, cells) if mark else blended(picture, cells, grid)
        panels.append(Panel(shown, word, note, mark))
    return panels


def _cell(row: NDArray[np.float32], grid: Grid) -> tuple[float, float, float, float]:
    """Where the only cell with weight lies: left, top, width, height as shares of the picture."""
    down, across = divmod(int(row.argmax()), grid.columns)
    return across / grid.columns, down / grid.rows, 1 / grid.columns, 1 / grid.rows


def _grid(attention: AttentionMap) -> Grid:
    assert isinstance(attention.keys, Grid)
    return attention.keys
