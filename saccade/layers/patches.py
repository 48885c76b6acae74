"""From an image to a grid of cells, each a vector, and the positions of the cells.

    patches (Dosovitskiy 2021)            x = W · pixels of a p × p patch + b
    convolutional (Hassani 2021, CCT)     x = a 3 × 3 convolution with pooling for each halving, until a cell is p pixels wide

An image whose sides are no multiple of the cell is continued at the bottom and right: a patch by zeros, a pool by nothing.

Axis legend: B batch, C channels, R rows and S columns of cells, D features.
"""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.attention.positions import position_table
from saccade.layers.convolution import Norm, PoolingBlock, channels_last

Size = tuple[int, int]  # rows, columns


class PatchEmbedding(nn.Module):
    """Cuts an image into patches and projects each: (B, C, height, width) -> (B, R, S, D)."""

    def __init__(self, channels: int, size: int, patch: int):
        super().__init__()
        self.patch = patch
        self.project = nn.Linear(channels * patch**2, size)
        nn.init.normal_(self.project.weight, std=(channels * patch**2) ** -0.5)  # keeps the variance of the pixels
        nn.init.zeros_(self.project.bias)

    def grid(self, height: int, width: int) -> Size:
        """Rows and columns of patches of an image of this size."""
        return -(-height // self.patch), -(-width // self.patch)

    def forward(self, images: Tensor) -> Tensor:
        height, width = images.shape[-2:]
        rows, columns = self.grid(height, width)
        images = F.pad(images, (0, columns * self.patch - width, 0, rows * self.patch - height))
        cut = images.unflatten(3, (columns, self.patch)).unflatten(2, (rows, self.patch))
        # (B, C, R, patch, S, patch) -> (B, R, S, C, patch, patch) -> (B, R, S, C · patch²)
        return self.project(cut.permute(0, 2, 4, 1, 3, 5).flatten(3))


class ConvolutionalEmbedding(nn.Module):
    """Halves the image by convolution and pooling until a cell is `patch` pixels wide: (B, C, height, width) -> (B, R, S, D)."""

    def __init__(self, channels: int, size: int, patch: int, norm: Norm = nn.BatchNorm2d):
        super().__init__()
        halvings = patch.bit_length() - 1
        if halvings < 1 or patch != 1 << halvings:
            raise ValueError(
                f"a convolutional stem halves the image step by step, so a cell is 2, 4, 8, … wide; got {patch}"
            )
        widths = [channels, *(max(1, size >> (halvings - 1 - step)) for step in range(halvings))]
        self.blocks = nn.Sequential(*(PoolingBlock(before, after, norm) for before, after in pairwise(widths)))
        self.patch = patch

    def grid(self, height: int, width: int) -> Size:
        return -(-height // self.patch), -(-width // self.patch)

    def forward(self, images: Tensor) -> Tensor:
        return self.blocks(channels_last(images)).permute(0, 2, 3, 1)  # (B, D, R, S) -> (B, R, S, D)


class LearnedPositions(nn.Module):
    """A learned vector for each cell of the grid trained on, interpolated for any other grid: (rows · columns, D).

    The table keeps its rows and columns, so that an image need not be square. Between them the interpolation is bicubic.
    """

    def __init__(self, size: int, rows: int, columns: int):
        super().__init__()
        self.table = position_table(torch.randn(rows, columns, size) * 0.02)

    def forward(self, rows: int, columns: int) -> Tensor:
        table: Tensor = self.table
        if (rows, columns) != table.shape[:2]:
            picture = table.permute(2, 0, 1)[None]  # (R, S, D) -> (1, D, R, S)
            stretched = F.interpolate(picture, (rows, columns), mode="bicubic", align_corners=False)
            table = stretched[0].permute(1, 2, 0)
        return table.flatten(0, 1)  # (rows, columns, D) -> (rows · columns, D)
