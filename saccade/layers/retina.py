"""The retina of a glimpse network: sharp in the middle, coarse around it (Mnih 2014, figure 1A).

    scale k sees a square of patch · 2^k pixels around the location and averages it down to patch × patch values

All squares have the same centre, so one crop of the largest holds the others. Halving it again and again gives every scale: what is in the
middle of the crop after k halvings is scale k. What lies outside the image is 0.

A location is (row, column) from -1 to 1: (-1, -1) is the upper left corner of the image, (0, 0) its middle. The retina moves in steps of a
pixel, and nothing is interpolated; `aligned` says where it really looks.

Axis legend: B batch, C channels, H rows, W columns, S scales, P patch, L side of the largest window.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Retina(nn.Module):
    """`prepare` an image once, then look at it as often as you like."""

    def __init__(self, patch: int, scales: int):
        super().__init__()
        if patch < 2 or patch % 2 or scales < 1:
            raise ValueError(f"a retina has an even patch of 2 or more and 1 scale or more; got {patch} and {scales}")
        self.patch = patch
        self.scales = scales
        self.widest = patch * 2 ** (scales - 1)

    def prepare(self, images: Tensor) -> Tensor:
        """Every window there is, as a view that takes no memory: (B, C, H, W) -> (B, C, H + 1, W + 1, L, L)."""
        padded = F.pad(images, [self.widest // 2] * 4)
        return padded.unfold(2, self.widest, 1).unfold(3, self.widest, 1)

    def forward(self, windows: Tensor, location: Tensor) -> Tensor:
        """Prepared images and a location for each (B, 2) -> what is seen there, (B, S, C, P, P), the finest scale first."""
        last = (windows.shape[2] - 1, windows.shape[3] - 1)
        first = self.corners(location, last) + self.widest // 2  # in the padded image
        image = torch.arange(len(windows), device=windows.device)
        window = windows[image, :, first[:, 0], first[:, 1]]  # (B, C, L, L)
        patches = []
        for scale in range(self.scales):
            if scale:
                window = _halved(window)
            edge = (window.shape[-1] - self.patch) // 2
            patches.append(window[..., edge : edge + self.patch, edge : edge + self.patch])
        return torch.stack(patches, 1)

    def aligned(self, location: Tensor, size: tuple[int, int]) -> Tensor:
        """The nearest location (..., 2) that the retina can look at, in an image of so many rows and columns."""
        half = location.new_tensor(size) / 2
        return ((location.clamp(-1, 1) + 1) * half).round() / half - 1

    def corners(self, location: Tensor, size: tuple[int, int]) -> Tensor:
        """The first row and column (..., 2) of the largest window; negative where it reaches over the edge."""
        half = location.new_tensor(size) / 2
        return ((location.clamp(-1, 1) + 1) * half).round().long() - self.widest // 2

    def windows(self, location: Tensor, size: tuple[int, int]) -> Tensor:
        """The square of every scale as (first row, first column, side): (..., 2) -> (..., S, 3)."""
        corner = self.corners(location, size)
        squares = []
        for scale in range(self.scales):
            side = self.patch * 2**scale
            first = corner + (self.widest - side) // 2
            squares.append(torch.cat((first, torch.full_like(first[..., :1], side)), -1))
        return torch.stack(squares, -2)

    def extra_repr(self) -> str:
        return f"patch={self.patch}, scales={self.scales}"


def _halved(images: Tensor) -> Tensor:
    """The mean of every 2 × 2 pixels. Three times as fast as avg_pool2d on one core."""
    columns = images[..., ::2] + images[..., 1::2]
    return (columns[..., ::2, :] + columns[..., 1::2, :]) / 4
