"""A residual network for small images (He 2016, section 4.2) and its twin, whose convolutions are attention (Ramachandran 2019).

    stem    x = relu(norm(3 × 3(image)))                                      with `stem_pool`: the maximum of each 2 × 2 pixels of that
    block   x ← relu(norm(3 × 3(relu(norm(3 × 3(x))))) + shortcut(x))         three stages; each starts with half the rows and columns
    class ~ softmax(V mean(x))

The shortcut has no parameters: where a stage starts it takes every second pixel and fills new channels with zeros. Three blocks a stage and
widths 16, 32, 64 are the paper's ResNet-20. With `attention: after-stem` every 3 × 3 of the blocks is local self-attention over the k × k
pixels around (`neighbourhood`); with `all` the stem is, too. That takes 3 C C' + k C' parameters where a convolution takes 9 C C'.

Axis legend: B batch, C channels, R rows, S columns.
"""

from functools import partial
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.attention import LocalSelfAttention2d
from saccade.config import Config as BaseConfig
from saccade.data.axes import Axis, Grid
from saccade.data.image_shape import ImageShape
from saccade.layers.convolution import channels_last, convolution

Width = Annotated[int, Field(ge=1)]


class Config(BaseConfig):
    kind: ClassVar[str] = "image-classes"

    blocks: int = Field(3, ge=1, description="of each of the three stages; 3 is ResNet-20, 9 is ResNet-56")
    widths: tuple[Width, Width, Width] = Field((16, 32, 64), description="channels of each stage")
    attention: Literal["none", "after-stem", "all"] = Field("none", description="which convolutions become attention")
    stem_pool: bool = Field(False, description="half the rows and columns already after the stem: four times cheaper")
    neighbourhood: int = Field(5, ge=1, description="of the attention: pixels on a side, an odd number")
    heads: int = Field(4, ge=1, description="of the attention")

    @model_validator(mode="after")
    def _attention_fits(self) -> "Config":
        if self.neighbourhood % 2 == 0:
            raise ValueError(
                f"neighbourhood {self.neighbourhood} has no centre: choose an odd number such as 3, 5 or 7"
            )
        if sorted(self.widths) != list(self.widths):
            raise ValueError(f"widths {list(self.widths)} must not fall: a shortcut adds channels and drops none")
        if self.attention != "none" and any(width % (2 * self.heads) for width in self.widths):
            raise ValueError(
                f"widths must be multiples of 2 × {self.heads} heads, half of a head for rows, half for columns"
            )
        return self


class Block(nn.Module):
    """(B, C, R, S) -> (B, C', ⌈R / stride⌉, ⌈S / stride⌉), with C' at least C."""

    def __init__(self, first: nn.Module, second: nn.Module, in_channels: int, out_channels: int, stride: int):
        super().__init__()
        self.first, self.first_norm = first, nn.BatchNorm2d(out_channels)
        self.second, self.second_norm = second, nn.BatchNorm2d(out_channels)
        nn.init.zeros_(self.second_norm.weight)  # a block starts as its shortcut (Goyal 2017)
        self.new_channels, self.stride = out_channels - in_channels, stride

    def forward(self, x: Tensor) -> Tensor:
        inner = F.relu(self.first_norm(self.first(x)))
        return F.relu(self.second_norm(self.second(inner)) + self.shortcut(x))

    def shortcut(self, x: Tensor) -> Tensor:
        if self.stride > 1:
            x = x[:, :, :: self.stride, :: self.stride]
        return F.pad(x, (0, 0, 0, 0, 0, self.new_channels)) if self.new_channels else x


class ResNet(nn.Module):
    """Any image size works."""

    def __init__(self, config: Config, image: ImageShape, classes: int):
        super().__init__()
        mix = convolution if config.attention == "none" else partial(_attention, config)
        width = config.widths[0]
        self.stem = (mix if config.attention == "all" else convolution)(image.channels, width)
        self.stem_norm = nn.BatchNorm2d(width)
        self.stem_pool = nn.MaxPool2d(2, ceil_mode=True) if config.stem_pool else nn.Identity()
        self.stages = nn.ModuleList()
        for number, after in enumerate(config.widths):
            stage = nn.Sequential()
            for block in range(config.blocks):
                stride = 2 if number and not block else 1
                stage.append(Block(mix(width, after, stride), mix(after, after), width, after, stride))
                width = after
            self.stages.append(stage)
        self.output = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stem_pool(F.relu(self.stem_norm(self.stem(channels_last(images)))))
        for stage in self.stages:
            x = stage(x)
        return self.output(x.mean((2, 3)))

    def attention_axes(self, name: str, rows: int, columns: int) -> tuple[Axis, Axis]:
        """`name` is "stem" or "stages.S.B.first" or ".second"; only the first of a stage asks from fewer pixels than it sees."""
        if name == "stem":
            return Grid(rows, columns, cell=1), Grid(rows, columns, cell=1)
        _, stage, block, layer = name.split(".")
        asked = int(stage) + isinstance(self.stem_pool, nn.MaxPool2d)
        seen = asked - 1 if int(stage) and block == "0" and layer == "first" else asked
        query, key = (
            Grid(-(-rows >> halvings), -(-columns >> halvings), cell=1 << halvings) for halvings in (asked, seen)
        )
        return query, key


def _attention(config: Config, in_channels: int, out_channels: int, stride: int = 1) -> LocalSelfAttention2d:
    return LocalSelfAttention2d(in_channels, out_channels, config.neighbourhood, config.heads, stride)


def build(config: Config, image: ImageShape, classes: int) -> ResNet:
    return ResNet(config, image, classes)
