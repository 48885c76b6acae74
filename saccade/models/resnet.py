"""A residual network for small images (He 2016, section 4.2) and its twin, whose convolutions are attention (Ramachandran 2019).

    stem    x = relu(norm(3 × 3(image))), `stem_layers` times                 each with `stem_pool`: the maximum of every 2 × 2 pixels
    block   x ← relu(norm(3 × 3(relu(norm(3 × 3(x))))) + shortcut(x))         three stages; each starts with half the rows and columns
    class ~ softmax(V mean(x))

With `bottleneck` a block is 1 × 1 to a quarter of the channels, 3 × 3 there (with the stride, if any), 1 × 1 back, each with norm, as in
ResNet-50 (section 4.1), and the stem has a quarter of the first stage's channels.

The shortcut has no parameters: where a stage starts it takes every second pixel and fills new channels with zeros. Three blocks a stage and
widths 16, 32, 64 are the paper's ResNet-20. With `attention: after-stem` every 3 × 3 of the blocks is local self-attention over the k × k
pixels around (`neighbourhood`); with `all` the stem is, too. That takes 3 C C' + k C' parameters where a convolution takes 9 C C'.

Axis legend: B batch, C channels, R rows, S columns.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.attention import LocalSelfAttention2d
from saccade.config.recipe import Config as BaseConfig
from saccade.data.image_shape import ImageShape
from saccade.layers.convolution import channels_last, convolution
from saccade.models.shapes import Shapes
from saccade.views.axes import Axis, Grid, pixels

Width = Annotated[int, Field(ge=1)]
Mix = Callable[[int, int, int], nn.Module]  # a 3 × 3 of so many channels in and out, with this stride


class Config(BaseConfig):
    serves: ClassVar[tuple[str, ...]] = ("image-classes",)

    blocks: int = Field(
        3, ge=1, description="of each of the three stages; without bottlenecks 3 is ResNet-20, 9 is ResNet-56"
    )
    widths: tuple[Width, Width, Width] = Field((16, 32, 64), description="channels of each stage")
    attention: Literal["none", "after-stem", "all"] = Field("none", description="which convolutions become attention")
    stem_layers: int = Field(1, ge=1, le=4, description="how many 3 × 3 stand before the blocks")
    stem_pool: bool = Field(False, description="half the rows and columns after each layer of the stem: cheaper blocks")
    bottleneck: bool = Field(False, description="a block's 3 × 3 works on a quarter of its channels, between two 1 × 1")
    neighbourhood: int = Field(5, ge=1, description="of the attention: pixels on a side, an odd number")
    heads: int = Field(4, ge=1, description="of the attention")
    spread: bool = Field(False, description="let every head start by looking around a place of its own")

    @model_validator(mode="after")
    def _attention_fits(self) -> "Config":
        if self.neighbourhood % 2 == 0:
            raise ValueError(
                f"neighbourhood {self.neighbourhood} has no centre: choose an odd number such as 3, 5 or 7"
            )
        if sorted(self.widths) != list(self.widths):
            raise ValueError(f"widths {list(self.widths)} must not fall: a shortcut adds channels and drops none")
        if self.bottleneck and any(width % 4 for width in self.widths):
            raise ValueError(f"widths {list(self.widths)} must be multiples of 4: a bottleneck is a quarter of them")
        if self.attention != "none" and any(self.inner(width) % (2 * self.heads) for width in self.widths):
            multiple = "4 × 2" if self.bottleneck else "2"
            raise ValueError(
                f"widths must be multiples of {multiple} × {self.heads} heads, half of a head for rows, half for columns"
            )
        return self

    def inner(self, width: int) -> int:
        """Channels of the 3 × 3 in a block of this width."""
        return width // 4 if self.bottleneck else width


class Residual(nn.Module):
    """(B, C, R, S) -> (B, C', ⌈R / stride⌉, ⌈S / stride⌉), with C' at least C: what a `branch` adds to the shortcut."""

    def __init__(self, in_channels: int, out_channels: int, stride: int):
        super().__init__()
        self.new_channels, self.stride = out_channels - in_channels, stride

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.branch(x) + self.shortcut(x))

    def branch(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def shortcut(self, x: Tensor) -> Tensor:
        if self.stride > 1:
            x = x[:, :, :: self.stride, :: self.stride]
        return F.pad(x, (0, 0, 0, 0, 0, self.new_channels)) if self.new_channels else x


class Block(Residual):
    def __init__(self, mix: Mix, in_channels: int, out_channels: int, stride: int = 1):
        super().__init__(in_channels, out_channels, stride)
        self.first, self.first_norm = mix(in_channels, out_channels, stride), nn.BatchNorm2d(out_channels)
        self.second, self.second_norm = mix(out_channels, out_channels, 1), _silent_norm(out_channels)

    def branch(self, x: Tensor) -> Tensor:
        x = F.relu(self.first_norm(self.first(x)))
        return self.second_norm(self.second(x))


class Bottleneck(Residual):
    def __init__(self, mix: Mix, in_channels: int, out_channels: int, stride: int = 1):
        super().__init__(in_channels, out_channels, stride)
        inner = out_channels // 4
        self.narrow, self.narrow_norm = _pointwise(in_channels, inner), nn.BatchNorm2d(inner)
        self.middle, self.middle_norm = mix(inner, inner, stride), nn.BatchNorm2d(inner)
        self.widen, self.widen_norm = _pointwise(inner, out_channels), _silent_norm(out_channels)

    def branch(self, x: Tensor) -> Tensor:
        x = F.relu(self.narrow_norm(self.narrow(x)))
        x = F.relu(self.middle_norm(self.middle(x)))
        return self.widen_norm(self.widen(x))


def _pointwise(in_channels: int, out_channels: int) -> nn.Conv2d:
    layer = nn.Conv2d(in_channels, out_channels, 1, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer


def _silent_norm(channels: int) -> nn.BatchNorm2d:
    """The last norm of a branch starts at zero, so that a block starts as its shortcut (Goyal 2017)."""
    norm = nn.BatchNorm2d(channels)
    nn.init.zeros_(norm.weight)
    return norm


class ResNet(nn.Module):
    """Any image size works."""

    def __init__(self, config: Config, image: ImageShape, classes: int):
        super().__init__()
        mix: Mix = convolution if config.attention == "none" else partial(_attention, config)
        block_of = Bottleneck if config.bottleneck else Block
        width = config.inner(config.widths[0])
        stem_mix: Mix = mix if config.attention == "all" else convolution
        inputs = (image.channels, *[width] * (config.stem_layers - 1))
        self.stem = nn.ModuleList(stem_mix(channels, width, 1) for channels in inputs)
        self.stem_norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in inputs)
        self.stem_pool = nn.MaxPool2d(2, ceil_mode=True) if config.stem_pool else nn.Identity()
        self.stages = nn.ModuleList()
        for number, after in enumerate(config.widths):
            stage = nn.Sequential()
            for block in range(config.blocks):
                stride = 2 if number and not block else 1
                stage.append(block_of(mix, width, after, stride))
                width = after
            self.stages.append(stage)
        self.output = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = channels_last(images)
        for mix, norm in zip(self.stem, self.stem_norms, strict=True):
            x = self.stem_pool(F.relu(norm(mix(x))))
        for stage in self.stages:
            x = stage(x)
        return self.output(x.mean((2, 3)))

    def attention_axes(self, name: str, axes: Mapping[str, Axis]) -> tuple[Axis, Axis]:
        """`name` is "stem.N" or "stages.S.B." and "first", "second" or "middle";
        only the first of a stage asks from fewer pixels than it sees."""
        image, halved = pixels(axes["image"]), isinstance(self.stem_pool, nn.MaxPool2d)
        if name.startswith("stem."):
            looking = looked_at = halved * int(name.removeprefix("stem."))
        else:
            _, stage, block, layer = name.split(".")
            looking = halved * len(self.stem) + int(stage)
            looked_at = looking - 1 if int(stage) and block == "0" and layer != "second" else looking
        query, key = (
            Grid(-(-image.rows >> halvings), -(-image.columns >> halvings), cell=1 << halvings)
            for halvings in (looking, looked_at)
        )
        return query, key


def _attention(config: Config, in_channels: int, out_channels: int, stride: int) -> LocalSelfAttention2d:
    return LocalSelfAttention2d(
        in_channels, out_channels, config.neighbourhood, config.heads, stride, spread=config.spread
    )


def build(config: Config, shapes: Shapes) -> ResNet:
    return ResNet(config, shapes.require_image(), shapes.classes)
