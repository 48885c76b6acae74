"""Where a glimpse network looked, what it saw there, and what it believed after each glimpse: one map of steps over the image.

The probabilities after an early glimpse are what the network would answer if it had to stop there; it is trained to answer after the last.

Axis legend: T glimpses, S scales, C channels, H rows, W columns, P patch, N classes.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade.models.glimpse import GlimpseNetwork
from saccade.views.axes import Grid, Steps
from saccade.views.maps import AttentionMap

if TYPE_CHECKING:
    from saccade.tasks.image_classes.task import ImageClassTask


@torch.no_grad()
def path_of(task: "ImageClassTask", model: GlimpseNetwork, pixels: NDArray[np.uint8]) -> AttentionMap:
    """The likeliest path over one image (C, H, W): each pixel's share in what a glimpse saw. All scales count the same. A glimpse's shares
    sum to less than 1 where a window reaches over the edge."""
    size = (pixels.shape[1], pixels.shape[2])
    path = model.likeliest_path(task.standardise(torch.tensor(pixels)[None].to(task.device)))
    probabilities = model.action(path.states[0]).softmax(-1)  # (T, D) -> (T, N)
    locations = path.locations[0].cpu()
    windows = model.retina.windows(locations, size).tolist()
    steps = Steps(
        labels=tuple(f"glimpse {number + 1}" for number in range(len(windows))),
        windows=tuple(tuple((row, column, side) for row, column, side in squares) for squares in windows),
        classes=task.classes,
        probabilities=tuple(map(tuple, probabilities.cpu().tolist())),
        patches=_patches(model, pixels, locations, np.array(task.images.mean, np.float32)),
    )
    weights = shares(windows, size).reshape(len(windows), -1)
    return AttentionMap("glimpses", weights, steps, Grid(*size, cell=1), "glimpse", "image")


def shares(windows: list[list[list[int]]], size: tuple[int, int]) -> NDArray[np.float64]:
    """The share of every pixel in what each glimpse saw, (T, H, W)."""
    weights = np.zeros((len(windows), *size))
    for glimpse, squares in enumerate(windows):
        for row, column, side in squares:
            part = (slice(max(row, 0), row + side), slice(max(column, 0), column + side))
            weights[glimpse][part] += 1 / (len(squares) * side * side)
    return weights


def _patches(
    model: GlimpseNetwork, pixels: NDArray[np.uint8], locations: Tensor, outside: NDArray[np.float32]
) -> tuple[tuple[NDArray[Any], ...], ...]:
    """The image through the model's retina. `outside` (C,) is the colour that was standardised to 0, which is what the retina sees beyond
    the edge."""
    beyond = torch.from_numpy(outside)[:, None, None]
    windows = model.retina.prepare((torch.tensor(pixels) / 255 - beyond)[None])
    patches = model.retina(windows.expand(len(locations), -1, -1, -1, -1, -1), locations) + beyond  # (T, S, C, P, P)
    images = patches.permute(0, 1, 3, 4, 2).squeeze(-1).numpy()  # (T, S, P, P, 3) or (T, S, P, P)
    return tuple(map(tuple, images))
