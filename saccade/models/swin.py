"""Swin: a Transformer over windows that are shifted from layer to layer (Liu 2021), in stages of ever larger cells.

    x = norm(patches)
    stage: layers × [x ← x + attention inside windows(norm(x)),  x ← x + feed-forward(norm(x))]      every second layer shifted
    between stages: four neighbouring cells become one, W norm([x₀₀; x₁₀; x₀₁; x₁₁]), twice as wide
    class ~ softmax(V mean(norm(x)))

The cost grows with the number of cells, not with its square. An odd last row or column is merged with zeros.

Axis legend: B batch, R rows and S columns of cells, D features.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.config.recipe import Config as BaseConfig
from saccade.data.image_shape import ImageShape
from saccade.layers.dropout import Dropout
from saccade.layers.feed_forward import feed_forward
from saccade.layers.patches import PatchEmbedding
from saccade.layers.stochastic_depth import DeepPreNorm, depth_rates
from saccade.layers.windows import WindowAttention
from saccade.models.shapes import Shapes
from saccade.views.axes import Axis, Grid, pixels

EPSILON = 1e-5  # of every norm, as published


class Config(BaseConfig):
    serves: ClassVar[tuple[str, ...]] = ("image-classes",)

    patch: int = Field(2, ge=1, description="pixels on a side of a cell of the first stage")
    width: int = Field(48, ge=1, description="features of a cell in the first stage; each later one has twice as many")
    layers: tuple[Annotated[int, Field(ge=1)], ...] = Field((2, 2, 2), min_length=1, max_length=8)
    heads: tuple[Annotated[int, Field(ge=1)], ...] = Field((2, 4, 8), min_length=1, max_length=8)
    window: int = Field(4, ge=2, description="cells on a side of a window")
    expansion: int = Field(4, ge=1, description="the feed-forward layer is so many times as wide as a cell")
    dropout: float = Field(0.0, ge=0, lt=1)
    stochastic_depth: float = Field(0.1, ge=0, lt=1, description="how often the last layer is skipped in training")

    @model_validator(mode="after")
    def _stages_fit(self) -> "Config":
        if len(self.layers) != len(self.heads):
            raise ValueError(
                f"layers and heads give a number for each stage, but there are {len(self.layers)} and {len(self.heads)} of them"
            )
        for stage, heads in enumerate(self.heads):
            if (self.width << stage) % heads:
                raise ValueError(
                    f"stage {stage + 1} has {self.width << stage} features, which {heads} heads cannot share equally"
                )
        return self


class SwinLayer(nn.Module):
    def __init__(self, config: Config, width: int, heads: int, shift: int, depth_rate: float):
        super().__init__()
        self.self_attention = WindowAttention(width, heads, config.window, shift)
        self.feed_forward = feed_forward(width, config.expansion * width, "gelu", config.dropout)
        self.around_self_attention = DeepPreNorm(width, config.dropout, depth_rate, None, EPSILON)
        self.around_feed_forward = DeepPreNorm(width, config.dropout, depth_rate, None, EPSILON)

    def forward(self, x: Tensor) -> Tensor:
        x = self.around_self_attention(x, self.self_attention)
        return self.around_feed_forward(x, self.feed_forward)


class Merge(nn.Module):
    """Four neighbouring cells become one: (B, R, S, D) -> (B, ⌈R / 2⌉, ⌈S / 2⌉, 2 D)."""

    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(4 * width, eps=EPSILON)
        self.reduce = nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = F.pad(x, (0, 0, 0, x.shape[2] % 2, 0, x.shape[1] % 2))
        corners = [x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
        return self.reduce(self.norm(torch.cat(corners, dim=-1)))


class Stage(nn.Module):
    def __init__(self, config: Config, number: int, rates: list[float]):
        super().__init__()
        width, half = config.width << number, config.window // 2
        self.merge = Merge(width // 2) if number else nn.Identity()
        self.layers = nn.ModuleList(
            SwinLayer(config, width, config.heads[number], half if index % 2 else 0, rate)
            for index, rate in enumerate(rates)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.merge(x)
        for layer in self.layers:
            x = layer(x)
        return x


class Swin(nn.Module):
    """Any image size, also one smaller than a window; positions are relative, so nothing depends on the size trained on."""

    def __init__(self, config: Config, image: ImageShape, classes: int):
        super().__init__()
        self.embed = PatchEmbedding(image.channels, config.width, config.patch)
        self.embed_norm = nn.LayerNorm(config.width, eps=EPSILON)
        self.dropout = Dropout(config.dropout)
        rates = iter(depth_rates(config.stochastic_depth, sum(config.layers)))
        self.stages = nn.ModuleList(
            Stage(config, number, [next(rates) for _ in range(layers)]) for number, layers in enumerate(config.layers)
        )
        width = config.width << (len(config.layers) - 1)
        self.norm = nn.LayerNorm(width, eps=EPSILON)
        self.output = nn.Linear(width, classes)
        _draw_weights(self)

    def forward(self, images: Tensor) -> Tensor:
        x = self.dropout(self.embed_norm(self.embed(images)))  # (B, R, S, D)
        for stage in self.stages:
            x = stage(x)
        return self.output(self.norm(x).mean((1, 2)))

    def attention_axes(self, name: str, axes: Mapping[str, Axis]) -> tuple[Axis, Axis]:
        """`name` is "stages.S.layers.L.self_attention"; every cell of a stage looks at every cell of its window."""
        stage = int(name.split(".")[1])
        image = pixels(axes["image"])
        rows, columns = self.embed.grid(image.rows, image.columns)
        grid = Grid(-(-rows >> stage), -(-columns >> stage), cell=self.embed.patch << stage)
        return grid, grid


def _draw_weights(model: Swin) -> None:
    for module in model.modules():
        if isinstance(module, nn.Linear) and module is not model.embed.project:
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    nn.init.normal_(model.output.weight, std=0.02)


def build(config: Config, shapes: Shapes) -> Swin:
    return Swin(config, shapes.require_image(), shapes.classes)
