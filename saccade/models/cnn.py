"""A small convolutional network, with or without attention before its dense layer.

    trunk       conv 32, pool, conv 64, pool, conv 192:   (C, 32, 32) -> 8 × 8 cells of 192 features
    attention   x = cells + positions;  x ← norm(x + self-attention(norm(x)))
    read        every cell, or the mean of each of `regions` × `regions` parts of the grid, side by side
    class ~ softmax(V relu(W [what is read]))

Every convolution is 3 × 3 with batch norm and ReLU. A dense layer over all cells has weights for each of them, most of the network's; over
means of regions it needs a quarter or less. The self-attention is that of Vaswani 2017; with `spread` every head starts by looking around a
place of its own.

Axis legend: B batch, R rows and S columns of cells, D features.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator
from torch import Tensor, nn

from saccade.attention import Around2d, MultiHead
from saccade.config.recipe import Config as BaseConfig
from saccade.data.image_shape import ImageShape
from saccade.errors import UserError
from saccade.layers.convolution import ConvolutionBlock, PoolingBlock, channels_last
from saccade.layers.dropout import Dropout
from saccade.layers.patches import LearnedPositions
from saccade.models.shapes import Shapes
from saccade.views.axes import Axis, Grid, pixels

Width = Annotated[int, Field(ge=1)]


class Config(BaseConfig):
    serves: ClassVar[tuple[str, ...]] = ("image-classes",)

    widths: tuple[Width, Width, Width] = Field((32, 64, 192), description="features after each convolution")
    attention: Literal["none", "self"] = "self"
    heads: int = Field(4, ge=1, description="of the self-attention")
    spread: bool = Field(False, description="let every head start by looking around a place of its own")
    regions: int | None = Field(
        None,
        ge=1,
        description="of the grid, on a side: the dense layer reads the mean of each; every cell unless given",
    )
    hidden: int = Field(192, ge=1, description="units of the dense layer")
    dropout: float = Field(0.1, ge=0, lt=1, description="of what the last layer reads")

    @model_validator(mode="after")
    def _heads_divide_width(self) -> "Config":
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


class CellAttention(nn.Module):
    """Self-attention over the cells of a grid: (B, D, R, S) -> (B, D, R, S). On a grid of another size positions are interpolated."""

    def __init__(self, width: int, heads: int, spread: bool, rows: int, columns: int):
        super().__init__()
        self.positions = LearnedPositions(width, rows, columns)
        self.around = Around2d(heads) if spread else None
        self.norm = nn.LayerNorm(width)
        self.attention = MultiHead(width, heads)
        nn.init.zeros_(self.attention.output.weight)  # at first every cell stays what it was
        self.last_norm = nn.LayerNorm(width)

    def forward(self, cells: Tensor) -> Tensor:
        grid = cells.shape[2:]
        bias = None if self.around is None else self.around(*grid)[None]  # (1, H, Q, K)
        x = cells.flatten(2).transpose(1, 2) + self.positions(*grid)  # (B, D, R, S) -> (B, R S, D)
        x = self.last_norm(x + self.attention(self.norm(x), bias=bias).context)
        return x.transpose(1, 2).unflatten(2, grid)


class Cnn(nn.Module):
    """Reads images of the size it was built for; with `regions` those of any size."""

    def __init__(self, config: Config, image: ImageShape, classes: int):
        super().__init__()
        self.image, width = image, config.widths[-1]
        self.trunk = Trunk(image.channels, config.widths)
        rows, columns = self.trunk.grid(image.rows, image.columns)
        if config.regions is not None and config.regions > min(rows, columns):
            raise UserError(
                f"model.regions = {config.regions}, and images of {image.rows} × {image.columns} pixels give {rows} × {columns} cells: "
                f"choose {min(rows, columns)} or less"
            )
        has_attention = config.attention == "self"
        self.over_cells = (
            CellAttention(width, config.heads, config.spread, rows, columns) if has_attention else nn.Identity()
        )
        self.means = nn.Identity() if config.regions is None else nn.AdaptiveAvgPool2d(config.regions)
        read = rows * columns if config.regions is None else config.regions**2
        self.dense = nn.Sequential(
            nn.Flatten(), nn.Linear(read * width, config.hidden), nn.ReLU(), Dropout(config.dropout)
        )
        self.output = nn.Linear(config.hidden, classes)

    def forward(self, images: Tensor) -> Tensor:
        if isinstance(self.means, nn.Identity) and images.shape[2:] != (self.image.rows, self.image.columns):
            raise UserError(
                f"an image of {images.shape[2]} × {images.shape[3]} pixels was given to a network whose dense layer reads "
                f"{self.image.rows} × {self.image.columns}: resize it, or train with model.regions = 4, which reads any size"
            )
        return self.output(self.dense(self.means(self.over_cells(self.trunk(images)))))

    def attention_axes(self, name: str, axes: Mapping[str, Axis]) -> tuple[Axis, Axis]:
        """The one attention is "over_cells.attention", from cells to cells."""
        image = pixels(axes["image"])
        grid = Grid(*self.trunk.grid(image.rows, image.columns), cell=4)
        return grid, grid


def build(config: Config, shapes: Shapes) -> Cnn:
    return Cnn(config, shapes.require_image(), shapes.classes)
