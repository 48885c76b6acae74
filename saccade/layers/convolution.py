"""Blocks of convolution for small images: a 3 × 3 convolution, a norm and ReLU.

    block(x) = relu(norm(W ∗ x))               the size stays
    pooling block(x) = relu(norm(max₂ₓ₂(W ∗ x)))    half the rows and columns, rounded up

The norm is that of the batch (Ioffe 2015), or of each cell by itself (Ba 2016) where the images of a batch are alike in what the model has
to tell: batch statistics would tell it.

Axis legend: B batch, C channels, R rows, S columns.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

Norm = Callable[[int], nn.Module]  # of so many channels


class CellNorm(nn.LayerNorm):
    """Layer norm over the channels of every cell: (B, C, R, S) -> (B, C, R, S). What a cell knows of the others stays as it was."""

    def forward(self, cells: Tensor) -> Tensor:
        return super().forward(cells.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvolutionBlock(nn.Sequential):
    """Convolution, norm, ReLU: (B, in_channels, R, S) -> (B, out_channels, R, S)."""

    def __init__(self, in_channels: int, out_channels: int, norm: Norm = nn.BatchNorm2d):
        super().__init__(convolution(in_channels, out_channels), norm(out_channels), nn.ReLU())


class PoolingBlock(nn.Sequential):
    """Convolution, pooling, norm, ReLU: (B, in_channels, R, S) -> (B, out_channels, ⌈R / 2⌉, ⌈S / 2⌉).

    Pooling comes first because norm and ReLU are then computed for a quarter of the cells (the norm of the maxima instead of the maxima of
    the norm). An odd last row or column is pooled by itself, not dropped.
    """

    def __init__(self, in_channels: int, out_channels: int, norm: Norm = nn.BatchNorm2d):
        pool = nn.MaxPool2d(2, ceil_mode=True)
        super().__init__(convolution(in_channels, out_channels), pool, norm(out_channels), nn.ReLU())


def convolution(in_channels: int, out_channels: int, stride: int = 1) -> nn.Conv2d:
    """3 × 3, zeros around the image, no bias (a norm follows), drawn so that ReLU keeps the variance (He 2015)."""
    layer = nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer


def channels_last(images: Tensor) -> Tensor:
    """The same images with the channels of a pixel side by side in memory, where convolution, pooling and norms are faster.

    Only the images change: a layer answers in the order of its input, and weights stay in torch's own order, as optimisers and files
    expect them.
    """
    return images.contiguous(memory_format=torch.channels_last)
