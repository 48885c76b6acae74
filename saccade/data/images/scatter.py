"""Harder images made of easy ones while training: put anywhere in a larger black frame, with or without clutter (Mnih 2014, figure 2).

| kind       | an image becomes                                                                                  |
|------------|---------------------------------------------------------------------------------------------------|
| translated | a frame of rows × columns with the image at a random place in it                                  |
| cluttered  | the same, with `pieces` squares cut out of other images of the batch at random places of the frame |

Where an image and a piece overlap, the brighter pixel wins. Black is 0, so this comes before images are normalised. All places are drawn
from `generator`, or from torch's own numbers where there is none: the same seed and batch give the same frames.

Axis legend: B batch, C channels, H rows, W columns of the given images.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Generator, Tensor

from saccade.config.recipe import Config
from saccade.data.image_shape import ImageShape
from saccade.errors import UserError


class ScatterConfig(Config):
    kind: Literal["none", "translated", "cluttered"] = Field(
        default="none", description="put images anywhere in a larger frame"
    )
    rows: int = Field(default=60, ge=1, description="of the frame")
    columns: int = Field(default=60, ge=1, description="of the frame")
    pieces: int = Field(default=4, ge=0, description="cluttered: squares of other images in every frame")
    side: int = Field(default=8, ge=1, description="cluttered: rows and columns of a piece")


def scattered(images: Tensor, config: ScatterConfig, generator: Generator | None = None) -> Tensor:
    """Images (B, C, H, W) of any type as the config says: (B, C, rows, columns)."""
    if config.kind == "none":
        return images
    if config.kind == "translated":
        return translated(images, config.rows, config.columns, generator)
    return cluttered(images, config.rows, config.columns, config.pieces, config.side, generator)


def shape_after(config: ScatterConfig, image: ImageShape) -> ImageShape:
    """How large images of that shape come out."""
    return image if config.kind == "none" else ImageShape(image.channels, config.rows, config.columns)


def translated(images: Tensor, rows: int, columns: int, generator: Generator | None = None) -> Tensor:
    """Each image at a random place of its own in a frame of 0: (B, C, H, W) -> (B, C, rows, columns)."""
    height, width = images.shape[2:]
    if height > rows or width > columns:
        raise UserError(
            f"images of {height} × {width} do not fit into a frame of {rows} × {columns}: give a frame at least as large as the images"
        )
    frames = images.new_zeros(*images.shape[:2], rows, columns)
    _put(frames, images, *_places(len(images), rows - height, columns - width, generator))
    return frames


def cluttered(
    images: Tensor, rows: int, columns: int, pieces: int = 4, side: int = 8, generator: Generator | None = None
) -> Tensor:
    """`translated`, and squares of other images anywhere in the frame. A batch of one has only itself to take them from."""
    batch, _, height, width = images.shape
    if side > min(height, width):
        raise UserError(
            f"pieces of {side} × {side} cannot be cut out of images of {height} × {width}: choose a side of at most {min(height, width)}"
        )
    frames = translated(images, rows, columns, generator)
    # (B, C, H, W) -> (B, C, H - side + 1, W - side + 1, side, side)
    every = images.unfold(2, side, 1).unfold(3, side, 1)
    for _ in range(pieces):
        other = torch.arange(batch) + 1 + _whole_numbers(max(batch - 1, 1), batch, generator)
        row, column = _places(batch, height - side, width - side, generator)
        piece = every[other % batch, :, row, column]  # (B, C, side, side)
        _put(frames, piece, *_places(batch, rows - side, columns - side, generator))
    return frames


def _places(count: int, last_row: int, last_column: int, generator: Generator | None) -> tuple[Tensor, Tensor]:
    return _whole_numbers(last_row + 1, count, generator), _whole_numbers(last_column + 1, count, generator)


def _whole_numbers(below: int, count: int, generator: Generator | None) -> Tensor:
    return torch.randint(below, (count,), generator=generator)


def _put(frames: Tensor, squares: Tensor, row: Tensor, column: Tensor) -> None:
    """Lays a rectangle over each frame in place, its first pixel at (row, column); the brighter pixel stays."""
    height, width = squares.shape[2:]
    rows = row[:, None] + torch.arange(height)  # (B, height)
    columns = column[:, None] + torch.arange(width)
    places = (rows[:, :, None] * frames.shape[3] + columns[:, None]).flatten(1)  # (B, height · width)
    places = places[:, None].expand(-1, frames.shape[1], -1).to(frames.device)
    flat = frames.flatten(2)  # a view
    flat.scatter_(2, places, torch.maximum(flat.gather(2, places), squares.flatten(2)))
