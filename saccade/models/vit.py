"""The vision Transformer (Dosovitskiy 2021): an image is a sentence of patches.

    x = [class; E patch₁; …; E patch_N] + positions
    layers × [x ← x + γ₁ ∘ self-attention(norm(x)),  x ← x + γ₂ ∘ feed-forward(norm(x))]
    class ~ softmax(V pool(norm(x)))

With `stem: convolutional` the patches come from a small convolutional network (the hybrid; Hassani 2021, CCT). `pooling` is a class
token, the mean, or attention. γ is 1 unless `layer_scale` gives its first value (Touvron 2022, DeiT III). An image need not be square,
nor have the size trained on: learned positions are then interpolated from the grid trained on.

Axis legend: B batch, N tokens, D features.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field, model_validator
from torch import Tensor, nn

from saccade.attention import MultiHead, Sinusoidal2d
from saccade.config.recipe import Config as BaseConfig
from saccade.data.image_shape import ImageShape
from saccade.layers.dropout import Dropout
from saccade.layers.feed_forward import feed_forward
from saccade.layers.patches import ConvolutionalEmbedding, LearnedPositions, PatchEmbedding
from saccade.layers.pooling import PoolingName, pooling
from saccade.layers.stochastic_depth import DeepEncoderLayer, depth_rates
from saccade.models.shapes import Shapes
from saccade.views.axes import Axis, Grid, Tokens, pixels


class Config(BaseConfig):
    serves: ClassVar[tuple[str, ...]] = ("image-classes",)

    stem: Literal["patches", "convolutional"] = "patches"
    patch: int = Field(4, ge=1, description="pixels on a side of a cell; a power of 2 for the convolutional stem")
    layers: int = Field(6, ge=1)
    width: int = Field(128, ge=2)
    heads: int = Field(4, ge=1)
    feed_forward: int = Field(256, ge=1)
    positions: Literal["learned", "sinusoidal"] = "learned"
    pooling: PoolingName = "class"
    dropout: float = Field(0.0, ge=0, lt=1)
    stochastic_depth: float = Field(0.0, ge=0, lt=1, description="how often the last layer is skipped in training")
    layer_scale: float | None = Field(None, gt=0, description="each branch starts scaled by this; for deep stacks 1e-4")
    norm_epsilon: float = Field(1e-6, gt=0, description="added to the variance in every norm")

    @model_validator(mode="after")
    def _parts_fit(self) -> "Config":
        if self.width % self.heads:
            raise ValueError(f"width {self.width} must be a multiple of {self.heads} heads")
        if self.positions == "sinusoidal" and self.width % 4:
            raise ValueError(f"width {self.width} must be a multiple of 4 for sinusoidal positions of rows and columns")
        if self.stem == "convolutional" and (self.patch < 2 or self.patch & (self.patch - 1)):
            raise ValueError(f"patch {self.patch} must be 2, 4, 8 or another power of 2 for the convolutional stem")
        return self


class VisionTransformer(nn.Module):
    """Built for images of one shape; others of as many channels work as well."""

    def __init__(self, config: Config, image: ImageShape, classes: int):
        super().__init__()
        stem = PatchEmbedding if config.stem == "patches" else ConvolutionalEmbedding
        self.embed = stem(image.channels, config.width, config.patch)
        self.positions = (
            LearnedPositions(config.width, *self.embed.grid(image.rows, image.columns))
            if config.positions == "learned"
            else Sinusoidal2d(config.width)
        )
        self.pooling = pooling(config.pooling, config.width)
        self.dropout = Dropout(config.dropout)
        rates = depth_rates(config.stochastic_depth, config.layers)
        self.layers = nn.ModuleList(_layer(config, rate) for rate in rates)
        self.norm = nn.LayerNorm(config.width, eps=config.norm_epsilon)
        self.output = nn.Linear(config.width, classes)
        nn.init.normal_(self.output.weight, std=0.02)
        nn.init.zeros_(self.output.bias)

    def forward(self, images: Tensor) -> Tensor:
        cells = self.embed(images)
        cells = cells.flatten(1, 2) + self.positions(*cells.shape[1:3])  # (B, R, S, D) -> (B, R·S, D)
        x = self.dropout(self.pooling.begin(cells))
        for layer in self.layers:
            x = layer(x)
        return self.output(self.pooling(self.norm(x)))

    def attention_axes(self, name: str, axes: Mapping[str, Axis]) -> tuple[Axis, Axis]:
        """`name` is "layers.L.self_attention", or "pooling.attention", whose one query is the whole image."""
        image = pixels(axes["image"])
        grid = Grid(*self.embed.grid(image.rows, image.columns), extra=self.pooling.extra, cell=self.embed.patch)
        return (Tokens(("[image]",)) if name == "pooling.attention" else grid), grid


def _layer(config: Config, rate: float) -> DeepEncoderLayer:
    narrow = feed_forward(config.width, config.feed_forward, "gelu", config.dropout)
    for linear in (narrow.expand, narrow.contract):
        nn.init.xavier_uniform_(linear.weight)
        nn.init.zeros_(linear.bias)
    return DeepEncoderLayer(
        MultiHead(config.width, config.heads),
        narrow,
        config.dropout,
        depth_rate=rate,
        layer_scale=config.layer_scale,
        epsilon=config.norm_epsilon,
    )


def build(config: Config, shapes: Shapes) -> VisionTransformer:
    return VisionTransformer(config, shapes.require_image(), shapes.classes)
