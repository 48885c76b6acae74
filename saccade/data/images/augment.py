"""Data augmentation of a whole batch at once, with random numbers from torch's generator.

    flip      mirrored left to right with this probability
    crop      shifted by up to this many pixels, the edge reflected: a crop from the padded image
    random    this many of nine geometric and colour changes, drawn for each image, after RandAugment (Cubuk et al. 2020, arXiv:1909.13719)
    cutout    a square of this many pixels a side hidden (DeVries and Taylor 2017, arXiv:1708.04552)
    mixup     x = λ x_i + (1 - λ) x_j and the same of the targets, λ ~ Beta(mixup, mixup) (Zhang et al. 2018, arXiv:1710.09412)

Flips and crops only select pixels and are done on bytes. The geometric changes drawn for an image are multiplied into one affine map, and
those of colour into one factor each, so that two changes cost as much as one.

Axis legend: B batch, C channels, H rows, W columns, N changes drawn for an image.
"""

import math
from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from saccade.config.recipe import Config
from saccade.data.image_shape import ImageShape
from saccade.errors import ConfigError


class AugmentConfig(Config):
    flip: float = Field(0.0, ge=0, le=1, description="probability of being mirrored left to right")
    crop: int = Field(0, ge=0, description="shifted by up to this many pixels")
    random: int = Field(0, ge=0, le=10, description="geometric and colour changes drawn for each image")
    strength: float = Field(0.5, gt=0, le=1, description="of the random changes")
    cutout: int = Field(0, ge=0, description="side of the hidden square in pixels")
    mixup: float = Field(0.0, ge=0, description="α of the Beta distribution that mixes two images; 0.2 is usual")

    def check_fits(self, shape: ImageShape) -> None:
        for name, size in (("crop", self.crop), ("cutout", self.cutout)):
            if size >= min(shape.rows, shape.columns):
                raise ConfigError(
                    f"augment.{name} = {size} is too large for images of {shape.rows} × {shape.columns} pixels: "
                    f"choose at most {min(shape.rows, shape.columns) - 1}"
                )


class Standardise:
    """Bytes to numbers of mean 0 and deviation 1 in each channel, over the images that the statistics are from."""

    def __init__(self, mean: Sequence[float], deviation: Sequence[float], device: torch.device | str = "cpu"):
        self._mean = 255 * torch.tensor(mean, device=device)[:, None, None]  # (C, 1, 1)
        self._scale = 1 / (255 * torch.tensor(deviation, device=device)[:, None, None])

    def __call__(self, pixels: Tensor) -> Tensor:
        return (pixels - self._mean).mul_(self._scale)


class Augment:
    """Bytes (B, C, H, W) and class probabilities (B, classes) to standardised images and class probabilities of the same shapes."""

    def __init__(self, config: AugmentConfig, standardise: Standardise):
        self.config = config
        self.standardise = standardise

    def __call__(self, pixels: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        config = self.config
        if config.flip or config.crop:
            pixels = flip_and_crop(pixels, config.flip, config.crop)
        changes = Changes.draw(pixels, config.random, config.strength) if config.random else None
        if changes is not None:
            pixels = changes.colour(pixels)
        images = self.standardise(pixels)
        if changes is not None:
            images = changes.place(images)
        if config.cutout:
            images = cutout(images, config.cutout)
        if config.mixup:
            images, targets = mixup(images, targets, config.mixup)
        return images, targets


def flip_and_crop(pixels: Tensor, flip: float, crop: int) -> Tensor:
    batch, _, rows, columns = pixels.shape
    down, right = torch.randint(-crop, crop + 1, (2, batch, 1), device=pixels.device)
    mirrored = torch.rand(batch, 1, device=pixels.device) < flip
    row = _reflected(torch.arange(rows, device=pixels.device) + down, rows)  # (B, H)
    column = _reflected(torch.arange(columns, device=pixels.device) + right, columns)  # (B, W)
    column = torch.where(mirrored, columns - 1 - column, column)
    place = (row[:, :, None] * columns + column[:, None, :]).flatten(1)  # (B, H·W)
    return pixels.flatten(2).gather(2, place[:, None].expand(-1, pixels.shape[1], -1)).view_as(pixels)


def cutout(images: Tensor, side: int) -> Tensor:
    """The square's centre is anywhere on the image, so part of it may lie outside; hidden pixels become the mean colour."""
    hidden = []
    for size in images.shape[2:]:
        first = torch.randint(size, (len(images), 1), device=images.device) - side // 2
        place = torch.arange(size, device=images.device)
        hidden.append((place >= first) & (place < first + side))  # (B, size)
    return images.masked_fill((hidden[0][:, :, None] & hidden[1][:, None, :])[:, None], 0.0)


def mixup(images: Tensor, targets: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    """Every image is mixed with another of its batch."""
    share = torch.distributions.Beta(alpha, alpha).sample((len(images),)).to(images.device)
    partner = torch.randperm(len(images), device=images.device)
    return (
        torch.lerp(images[partner], images, share[:, None, None, None]),
        torch.lerp(targets[partner], targets, share[:, None].to(targets.dtype)),
    )


class Changes:
    """The changes drawn for each image of a batch: an affine map; factors of brightness, contrast and colour; a threshold."""

    # Largest changes at strength 1; half of these is about what the paper found best for CIFAR-10.
    _TURN = math.radians(30)
    _SHEAR = 0.3
    _SHIFT = 0.45  # of the image
    _FACTOR = 0.9
    _PLACE = ("turn", "shear x", "shear y", "shift x", "shift y")
    _COLOUR = ("brightness", "contrast", "colour", "solarise")
    _KINDS = ("nothing", *_PLACE, *_COLOUR)

    def __init__(self, affine: Tensor, factors: Tensor, threshold: Tensor):
        self._affine = affine  # (B, 2, 3)
        self._factors = factors  # (3, B, 1, 1, 1)
        self._threshold = threshold  # (B, 1, 1, 1)

    @classmethod
    def draw(cls, pixels: Tensor, count: int, strength: float) -> "Changes":
        """`count` changes for each of the images."""
        kind = torch.randint(len(cls._KINDS), (count, len(pixels)), device=pixels.device)
        sign = torch.randint(2, kind.shape, device=pixels.device) * 2.0 - 1
        amount = {name: sign * strength * (kind == number) for number, name in enumerate(cls._KINDS)}  # each (N, B)
        factors = [(1 + cls._FACTOR * amount[name]).prod(0) for name in cls._COLOUR[:3]]
        threshold = 1 - strength * (kind == cls._KINDS.index("solarise")).any(0).float()
        maps = cls._maps(amount, pixels.shape[2] / pixels.shape[3])
        return cls(maps, torch.stack(factors)[..., None, None, None], threshold[:, None, None, None])

    @classmethod
    def _maps(cls, amount: dict[str, Tensor], aspect: float) -> Tensor:
        """The geometric changes of each image composed into one affine map (B, 2, 3), from output to input coordinates."""
        angle = cls._TURN * amount["turn"]
        x, y = cls._SHEAR * amount["shear x"], cls._SHEAR * amount["shear y"]
        right, down = 2 * cls._SHIFT * amount["shift x"], 2 * cls._SHIFT * amount["shift y"]
        ones, zeros = torch.ones_like(angle), torch.zeros_like(angle)
        # At most one of them is active in each draw, so they can share a matrix. Its coordinates run from -1 to 1 on both axes, whatever
        # the aspect (rows / columns): rotating a wide image takes that into account.
        rows = [
            (angle.cos(), (x - angle.sin()) * aspect, right),
            ((y + angle.sin()) / aspect, angle.cos(), down),
            (zeros, zeros, ones),
        ]
        maps = torch.stack([torch.stack(row, -1) for row in rows], -2)  # (N, B, 3, 3)
        composed = maps[0]
        for following in maps[1:]:
            composed = composed @ following
        return composed[:, :2]

    def colour(self, pixels: Tensor) -> Tensor:
        """Brightness, contrast and saturation: blended with black, the mean grey and the grey image; then bright pixels are inverted."""
        brightness, contrast, colour = self._factors
        pixels = (pixels.float() * brightness).clamp_(0, 255)
        grey = pixels.mean(1, keepdim=True)  # (B, 1, H, W)
        pixels = torch.lerp(grey.mean((2, 3), keepdim=True), pixels, contrast).clamp_(0, 255)
        if pixels.shape[1] > 1:
            pixels = torch.lerp(pixels.mean(1, keepdim=True), pixels, colour).clamp_(0, 255)
        return torch.where(pixels > 255 * self._threshold, 255 - pixels, pixels)

    def place(self, images: Tensor) -> Tensor:
        """Moved by the affine map; pixels from outside are the mean colour, 0."""
        grid = F.affine_grid(self._affine, list(images.shape), align_corners=False)
        return F.grid_sample(images, grid, "bilinear", "zeros", align_corners=False)


def _reflected(place: Tensor, size: int) -> Tensor:
    """Positions beyond the ends, mirrored at the first and the last one."""
    last = size - 1
    return last - (last - place.abs()).abs()
