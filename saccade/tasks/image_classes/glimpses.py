"""Where a glimpse network looked, what it saw there, and what it believed after each glimpse.

    path = see(task, "seven.png")               # a trained classifier with a glimpse network, and any image that it could predict
    save(path, "path.png", title="a seven")     # .png .svg .html .json by the ending
    path.attention_map()                        # the same path for everything that takes attention maps

The probabilities after an early glimpse are what the network would answer if it had to stop there; it is trained to answer after the last.

Axis legend: T glimpses, S scales, C channels, H rows, W columns, P patch, N classes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade.data.images.store import AnyImage, name_of
from saccade.errors import UserError
from saccade.models.glimpse import GlimpseNetwork
from saccade.tasks.image_classes import headline
from saccade.tasks.image_classes.task import Classified, ClassifyTask
from saccade.views.axes import Grid, Steps
from saccade.views.document import write_by_ending
from saccade.views.maps import AttentionMap
from saccade.views.page import document, map_to_dict
from saccade.views.view import data_address, picture_to_dict


@dataclass(frozen=True, eq=False)
class GlimpsePath:
    """One image, looked at."""

    picture: NDArray[np.float32]  # (H, W) or (H, W, 3), from 0 to 1
    locations: NDArray[np.float32]  # (T, 2): row and column, from -1 to 1
    windows: NDArray[
        np.int64
    ]  # (T, S, 3): first row, first column and side of what each scale saw; may reach over the edge
    patches: NDArray[np.float32]  # (T, S, P, P) or (T, S, P, P, 3): what each scale saw, as in the picture
    probabilities: NDArray[np.float32]  # (T, N) after each glimpse
    classes: tuple[str, ...]  # N
    source: str = ""  # where the picture came from
    truth: str | None = None  # its class, if people know it

    @property
    def answer(self) -> Classified:
        """What it believes after the last glimpse."""
        last = self.probabilities[-1]
        order = np.argsort(-last, kind="stable")
        return Classified(self.source, tuple(self.classes[place] for place in order), tuple(last[order].tolist()))

    def parts(self) -> Iterator[tuple[int, int, int, tuple[slice, slice]]]:
        """Every glimpse, scale and side of its window with the part of the picture in it."""
        for glimpse, squares in enumerate(self.windows.tolist()):
            for scale, (row, column, side) in enumerate(squares):
                yield glimpse, scale, side, (slice(max(row, 0), row + side), slice(max(column, 0), column + side))

    def attention_map(self) -> AttentionMap:
        """Each pixel's share in what a glimpse saw: all scales count the same. Less than 1 in all where a window reaches over the edge."""
        rows, columns = self.picture.shape[:2]
        weights = np.zeros((len(self.windows), rows, columns))
        for glimpse, _, side, part in self.parts():
            weights[glimpse][part] += 1 / (self.windows.shape[1] * side * side)
        steps = Steps(tuple(f"glimpse {number + 1}" for number in range(len(weights))))
        return AttentionMap("glimpses", weights.reshape(len(weights), -1), steps, Grid(rows, columns, cell=1))

    def to_dict(self) -> dict[str, Any]:
        """JSON values: the path, and its attention map under `maps` as in every other .json file."""
        glimpses = [
            {
                "location": _short(location),
                "windows": [dict(zip(("row", "column", "side"), square, strict=True)) for square in squares],
                "probabilities": dict(zip(self.classes, _short(probabilities), strict=True)),
            }
            for location, squares, probabilities in zip(
                self.locations, self.windows.tolist(), self.probabilities, strict=True
            )
        ]
        rows, columns = self.picture.shape[:2]
        return {
            "answer": self.answer.to_dict(),
            "truth": self.truth,
            "image": {"rows": rows, "columns": columns},
            "glimpses": glimpses,
            "maps": [self.attention_map().to_dict()],
        }

    def _repr_png_(self) -> bytes:
        from saccade.views.glimpse_figure import png

        return png(self)


def see(task: ClassifyTask, image: AnyImage) -> GlimpsePath:
    """The likeliest path over an image, by which the task predicts its class unless it draws several (`samples`)."""
    if not isinstance(task.model, GlimpseNetwork):
        raise UserError(
            "this model sees the whole image at once: train one with `model.name: glimpse` to see where it looks"
        )
    pixels = task.picture(image)  # (C, H, W)
    picture = pixels.transpose(1, 2, 0) if len(pixels) == 3 else pixels[0]
    standardised = task.standardise(torch.tensor(pixels)[None].to(task.device))[0]
    path = look(task.model, standardised, task.classes, picture, np.array(task.images.mean, np.float32))
    return replace(path, source=name_of(image))


@torch.no_grad()
def look(
    model: GlimpseNetwork,
    image: Tensor,
    classes: Sequence[str],
    picture: NDArray[Any] | None = None,
    mean: NDArray[np.float32] | None = None,
) -> GlimpsePath:
    """The likeliest path over one standardised image (C, H, W).

    `picture` is the image for people, (H, W) or (H, W, 3): bytes, or floats from 0 to 1; without it the image itself is shown. `mean` is
    the colour that was standardised to 0, from 0 to 1, which is what the retina sees beyond the edge; black unless given.
    """
    if image.dim() != 3:
        raise UserError(
            f"an image of shape {tuple(image.shape)} was given: give one image as (channels, rows, columns)"
        )
    if len(classes) != model.action.out_features:
        raise UserError(
            f"{len(classes)} names of classes were given for a model of {model.action.out_features}: give one for each"
        )
    shown = _picture(image, picture)
    path = model.likeliest_path(image[None].to(model.action.weight.device))
    probabilities = model.action(path.states[0]).softmax(-1)  # (T, D) -> (T, N)
    locations = path.locations[0].cpu()
    return GlimpsePath(
        picture=shown,
        locations=locations.numpy(),
        windows=model.retina.windows(locations, (shown.shape[0], shown.shape[1])).numpy(),
        patches=_patches(model, shown, locations, mean),
        probabilities=probabilities.cpu().numpy(),
        classes=tuple(classes),
    )


def save(path: GlimpsePath, file: str | Path, title: str = "") -> None:
    """Write the path as a picture (.png, .svg), a page (.html) or data (.json). Missing directories are made."""
    from saccade.views.glimpse_figure import png, svg

    title = title or title_of(path)
    write_by_ending(
        file,
        png=lambda: png(path, title),
        svg=lambda: svg(path, title),
        html=lambda: page(path, title),
        values=lambda: {"title": title, **path.to_dict()},
    )


def page(path: GlimpsePath, title: str = "") -> str:
    """One HTML file that holds everything it shows, loads nothing and sends nothing: step through the glimpses."""
    shown = map_to_dict(path.attention_map(), "glimpses", "picture")
    shown["queries"] |= {
        "windows": path.windows.tolist(),
        "classes": list(path.classes),
        "probabilities": [_short(row) for row in path.probabilities],
        "patches": [[data_address(_bytes(patch)) for patch in seen] for seen in path.patches],
    }
    return document(
        {
            "title": title or title_of(path),
            "subtitle": subtitle_of(path),
            "picture": picture_to_dict(_bytes(path.picture)),
            "maps": [shown],
        }
    )


def title_of(path: GlimpsePath) -> str:
    return headline.title(path.answer)


def subtitle_of(path: GlimpsePath) -> str:
    count = len(path.locations)
    return headline.subtitle(path.answer, path.truth, [f"after {count} glimpse{'s' if count > 1 else ''}"])


def _short(values: NDArray[np.float32]) -> list[float]:
    return [round(float(value), 5) for value in values]


def _picture(image: Tensor, picture: NDArray[Any] | None) -> NDArray[np.float32]:
    """What to show: the picture given, or the image itself stretched to the range from black to white."""
    if picture is None:
        array = image.float().cpu().numpy().transpose(1, 2, 0)  # (C, H, W) -> (H, W, C)
        array = (array - array.min()) / max(float(array.max() - array.min()), 1e-9)
        array = array if array.shape[2] == 3 else array.mean(axis=2)
        return array.astype(np.float32)
    if picture.shape[:2] != tuple(image.shape[1:]) or picture.shape[2:] not in ((), (3,)):
        raise UserError(
            f"a picture of shape {picture.shape} was given for an image of {image.shape[1]} × {image.shape[2]}: "
            "give (rows, columns) or (rows, columns, 3) of the same size"
        )
    scale = 255 if picture.dtype == np.uint8 else 1
    return np.clip(picture.astype(np.float32) / scale, 0, 1)


def _patches(
    model: GlimpseNetwork, picture: NDArray[np.float32], locations: Tensor, mean: NDArray[np.float32] | None
) -> NDArray[np.float32]:
    """The picture through the model's retina: (T, S, P, P) or (T, S, P, P, 3)."""
    outside = torch.zeros(1) if mean is None else torch.from_numpy(mean)  # (C,)
    channels = (torch.from_numpy(picture if picture.ndim == 3 else picture[..., None]) - outside).permute(2, 0, 1)
    windows = model.retina.prepare(channels[None]).expand(len(locations), -1, -1, -1, -1, -1)
    seen = model.retina(windows, locations).permute(0, 1, 3, 4, 2) + outside  # (T, S, C, P, P) -> (T, S, P, P, C)
    return (seen if picture.ndim == 3 else seen.squeeze(-1)).numpy()


def _bytes(picture: NDArray[np.float32]) -> NDArray[np.uint8]:
    """From 0 to 1 as bytes."""
    return (255 * picture).round().clip(0, 255).astype(np.uint8)
