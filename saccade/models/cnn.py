"""A small convolutional network, and the same with attention in place of its large dense layer.

    trunk       conv 32, pool, conv 64, pool, conv 192:   (C, 32, 32) -> 8 × 8 cells of 192 features
    plain       class ~ softmax(V relu(W [all cells]))
    attentive   x = cells + positions;  x ← x + self-attention(norm(x));  x ← x + feed-forward(norm(x));  class ~ softmax(V means(norm(x)))
    means       of each of `regions` × `regions` parts of the grid, side by side
    spread      every head of the self-attention starts by looking around a place of its own

Every convolution is 3 × 3 with batch norm and ReLU. A dense layer over all cells has weights for each of them; attention has the same for
all, so it reads the grid with a fifth of the parameters (Vaswani 2017 for the layer).

Axis legend: B batch, R rows and S columns of cells, D features.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator
from torch import Tensor, nn

from saccade.attention import Around2d, MultiHead
from saccade.config import Config as BaseConfig
from saccade.data.axes import Axis, Grid
from saccade.data.image_shape import ImageShape
from saccade.errors import UserError
from saccade.layers.convolution import ConvolutionBlock, PoolingBlock, channels_last
from saccade.layers.dropout import Dropout
from saccade.layers.feed_forward import feed_forward
from saccade.layers.patches import LearnedPositions
from saccade.layers.stochastic_depth import DeepEncoderLayer

Width = Annotated[int, Field(ge=1)]


class Config(BaseConfig):
    kind: ClassVar[str] = "image-classes"

    widths: tuple[Width, Width, Width] = Field((32, 64, 192), description="features after each convolution")
    attention: Literal["none", "self"] = "self"
    heads: int = Field(4, ge=1, description="of the self-attention")
    spread: bool = Field(False, description="let every head start by looking around a place of its own")
    regions: int = Field(
        1, ge=1, description="parts on a side of the grid whose means the last layer after attention reads"
    )
    hidden: int = Field(512, ge=1, description="units of the dense layer, or of the feed-forward layer after attention")
    dropout: float = Field(0.1, ge=0, lt=1, description="of what the last layer reads")

    @model_validator(mode="after")
    def _heads_divide_width(self) -> "Config":
        if self.attention == "none":
            self._refuse_unused("attention=self", "spread", "regions")
        if self.attention == "self" and self.widths[-1] % self.heads:
            raise ValueError(f"the last width {self.widths[-1]} must be a multiple of {self.heads} heads")
        return self


class Trunk(nn.Sequential):
    """(B, C, height, width) -> (B, D, ⌈height / 4⌉, ⌈width / 4⌉)"""

    def __init__(self, channels: int, widths: tuple[int, int, int]):
        first, second, third = widths
        super().__init__(PoolingBlock(channels, first), PoolingBlock(first, second), ConvolutionBlock(second, third))

    def grid(self, rows: int, columns: int) -> tuple[int, int]:
        return -(-rows // 4), -(-columns // 4)

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(channels_last(images))


class PlainCnn(nn.Module):
    """The dense layer knows one image size, the one it was built for."""

    def __init__(self, config: Config, image: ImageShape, classes: int):
        super().__init__()
        self.image = image
        self.trunk = Trunk(image.channels, config.widths)
        rows, columns = self.trunk.grid(image.rows, image.columns)
        self.dense = nn.Sequential(
            nn.Flatten(),
            nn.Linear(rows * columns * config.widths[-1], config.hidden),
            nn.ReLU(),
            Dropout(config.dropout),
        )
        self.output = nn.Linear(config.hidden, classes)

    def forward(self, images: Tensor) -> Tensor:
        if images.shape[2:] != (self.image.rows, self.image.columns):
            raise UserError(
                f"an image of {images.shape[2]} × {images.shape[3]} pixels was given to a network whose dense layer reads "
                f"{self.image.rows} × {self.image.columns}: resize it, or train with model.attention = self, which reads any size"
            )
        return self.output(self.dense(self.trunk(images)))


class AttentiveCnn(nn.Module):
    """Built for images of one size; for another, the positions are interpolated and the regions grow with it."""

    def __init__(self, config: Config, image: ImageShape, classes: int):
        super().__init__()
        width = config.widths[-1]
        self.trunk = Trunk(image.channels, config.widths)
        self.positions = LearnedPositions(width, *self.trunk.grid(image.rows, image.columns))
        self.around = Around2d(config.heads) if config.spread else None
        self.layer = DeepEncoderLayer(
            MultiHead(width, config.heads), feed_forward(width, config.hidden, "relu", dropout=0.0), dropout=0.0
        )
        self.norm = nn.LayerNorm(width)
        self.dropout = Dropout(config.dropout)
        self.means = nn.AdaptiveAvgPool2d(config.regions)
        self.output = nn.Linear(width * config.regions**2, classes)

    def forward(self, images: Tensor) -> Tensor:
        cells = self.trunk(images).permute(0, 2, 3, 1)  # (B, D, R, S) -> (B, R, S, D)
        grid = cells.shape[1:3]
        bias = None if self.around is None else self.around(*grid)
        x = self.layer(cells.flatten(1, 2) + self.positions(*grid), bias=bias)
        cells = self.norm(x).unflatten(1, grid).permute(0, 3, 1, 2)  # (B, R S, D) -> (B, D, R, S)
        return self.output(self.dropout(self.means(cells).flatten(1)))

    def attention_axes(self, name: str, rows: int, columns: int) -> tuple[Axis, Axis]:
        """The one attention is "layer.self_attention", from cells to cells."""
        grid = Grid(*self.trunk.grid(rows, columns), cell=4)
        return grid, grid


def build(config: Config, image: ImageShape, classes: int) -> PlainCnn | AttentiveCnn:
    return (PlainCnn if config.attention == "none" else AttentiveCnn)(config, image, classes)
