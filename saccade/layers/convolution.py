"""Blocks of convolution for small images: a 3 × 3 convolution, batch norm (Ioffe 2015) and ReLU.

    block(x) = relu(norm(W ∗ x))               the size stays
    pooling block(x) = relu(norm(max₂ₓ₂(W ∗ x)))    half the rows and columns, rounded up

Axis legend: B batch, C channels, R rows, S columns.
"""

import torch
from torch import Tensor, nn


class ConvolutionBlock(nn.Sequential):
    """Convolution, norm, ReLU: (B, in_channels, R, S) -> (B, out_channels, R, S)."""

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__(convolution(in_channels, out_channels), nn.BatchNorm2d(out_channels), nn.ReLU())


class PoolingBlock(nn.Sequential):
    """Convolution, pooling, norm, ReLU: (B, in_channels, R, S) -> (B, out_channels, ⌈R / 2⌉, ⌈S / 2⌉).

    Pooling comes first because norm and ReLU are then computed for a quarter of the cells, with the same maxima. An odd last row or
    column is pooled by itself, not dropped.
    """

    def __init__(self, in_channels: int, out_channels: int):
        pool = nn.MaxPool2d(2, ceil_mode=True)
        super().__init__(convolution(in_channels, out_channels), pool, nn.BatchNorm2d(out_channels), nn.ReLU())


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
