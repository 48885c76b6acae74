"""From an image to a grid of cells, each a vector that a decoder can look at.

    efficientnet-lite0   trained on ImageNet; cells of 32 pixels, 320 features
    cnn                  convolution and pooling until a cell has its size, positions added; trained here
    vit                  patches, positions, Transformer layers (Dosovitskiy 2021): no convolution anywhere; trained here
    hugging-face         any vision backbone in Hugging Face's format in a local folder: ResNet, ViT, …

A batch of captions of one length must not show its length in the statistics of its images, which a model reads at once and then misses
when it writes alone: no norm here is learned over a batch. An encoder that came with such norms keeps their statistics as they are.

Bytes are standardised here, as each encoder was trained to see them; numbers are taken as standardised already. A frozen encoder never
changes, its norms neither: its features of an image are always the same and can be computed once.

Axis legend: B batch, R rows and S columns of cells, D features.
"""

import hashlib
from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from saccade.attention import MultiHead
from saccade.config.recipe import Config as BaseConfig
from saccade.config.recipe import ExistingFolder
from saccade.data.image_shape import ImageShape
from saccade.errors import UserError
from saccade.layers import efficientnet
from saccade.layers.convolution import CellNorm, ConvolutionBlock, channels_last
from saccade.layers.dropout import Dropout
from saccade.layers.feed_forward import feed_forward
from saccade.layers.hugging_face_backbone import load_backbone
from saccade.layers.patches import ConvolutionalEmbedding, LearnedPositions, PatchEmbedding, Size
from saccade.layers.stochastic_depth import DeepEncoderLayer


class EncoderConfig(BaseConfig):
    name: Literal["efficientnet-lite0", "cnn", "vit", "hugging-face"] = "efficientnet-lite0"
    directory: ExistingFolder | None = Field(None, description="hugging-face: the folder of the model")
    frozen: bool | None = Field(
        None, description="pretrained weights are not trained; true by default where there are any"
    )
    cell: int = Field(8, ge=1, description="cnn, vit: pixels on a side of a cell; a power of 2 for cnn")
    width: int = Field(128, ge=1, description="cnn, vit: features of a cell")
    layers: int = Field(4, ge=1, description="vit")
    heads: int = Field(4, ge=1, description="vit")
    dropout: float = Field(0.1, ge=0, lt=1, description="vit")

    @property
    def is_frozen(self) -> bool:
        return self.name in _PRETRAINED if self.frozen is None else self.frozen

    @model_validator(mode="after")
    def _parts_fit(self) -> "EncoderConfig":
        if (self.name == "hugging-face") != (self.directory is not None):
            raise ValueError("give directory with name: hugging-face, and with no other")
        if self.frozen and self.name not in _PRETRAINED:
            raise ValueError(f"{self.name} is trained here and cannot be frozen: leave frozen out")
        if self.name == "vit" and self.width % self.heads:
            raise ValueError(f"width {self.width} must be a multiple of {self.heads} heads")
        if self.name == "cnn" and (self.cell < 2 or self.cell & (self.cell - 1)):
            raise ValueError(f"cell {self.cell} must be 2, 4, 8 or another power of 2 for cnn")
        if self.name == "cnn" and 2 * self.width < _FEWEST_CHANNELS * self.cell:
            raise ValueError(
                f"width {self.width} leaves the first convolution {2 * self.width // self.cell} features, too few to tell colours apart: "
                f"give {_FEWEST_CHANNELS * self.cell // 2} or more for cells of {self.cell} pixels"
            )
        return self


_FEWEST_CHANNELS = 3  # after the first convolution: each cell is normalised over them
_PRETRAINED = ("efficientnet-lite0", "hugging-face")


class ImageEncoder(nn.Module):
    """Images (B, 3, H, W) of one size, as bytes or standardised numbers, to features (B, R · S, D), row by row."""

    mean: Tensor
    deviation: Tensor

    def __init__(
        self, size: int, grid: Size, mean: tuple[float, ...] = (127.0,), deviation: tuple[float, ...] = (128.0,)
    ):
        super().__init__()
        self.size = size
        self.grid = grid
        self.frozen = False
        for name, values in (("mean", mean), ("deviation", deviation)):  # of bytes: (channels or 1, 1, 1)
            self.register_buffer(name, torch.tensor(values)[:, None, None], persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        images = images.to(self.mean.device)
        if images.dtype == torch.uint8:
            images = (images - self.mean) / self.deviation
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            return self.cells(images)

    def cells(self, images: Tensor) -> Tensor:
        """Standardised images to features."""
        raise NotImplementedError

    def freeze(self) -> "ImageEncoder":
        self.frozen = True
        return self.requires_grad_(False).eval()

    def train(self, mode: bool = True) -> "ImageEncoder":
        """A frozen encoder stays as it is when the model around it is trained, and so do the statistics of one that is fine-tuned."""
        super().train(mode and not self.frozen)
        for module in self.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.eval()
        return self

    def fingerprint(self) -> str:
        """Equal for encoders that give equal features: of the kind, the grid, every weight and every constant."""
        digest = hashlib.blake2b(digest_size=16)
        digest.update(f"{type(self).__name__} {self.size} {self.grid}".encode())
        tensors = {**dict(self.named_buffers()), **self.state_dict()}
        for name in sorted(tensors):
            tensor = tensors[name].detach().cpu().contiguous()
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.flatten().view(torch.uint8).numpy().data if tensor.numel() else b"")
        return digest.hexdigest()


def encoder(config: EncoderConfig, image: ImageShape) -> ImageEncoder:
    if image.channels != 3:
        raise UserError(f"this encoder takes colour images of 3 channels; got {image.channels} channels")
    if config.name == "efficientnet-lite0":
        built: ImageEncoder = EfficientNetEncoder(image)
    elif config.name == "hugging-face":
        built = HuggingFaceEncoder(config, image)
    else:
        built = (CnnEncoder if config.name == "cnn" else VitEncoder)(config, image)
    return built.freeze() if config.is_frozen else built


class EfficientNetEncoder(ImageEncoder):
    """The last map of EfficientNet-Lite0, divided by its deviation over photos, so that a decoder starts from numbers around 1."""

    map_deviation: Tensor

    def __init__(self, image: ImageShape):
        grid = -(-image.rows // efficientnet.CELL), -(-image.columns // efficientnet.CELL)
        super().__init__(efficientnet.SIZE, grid, (efficientnet.PIXEL_MEAN,), (efficientnet.PIXEL_SCALE,))
        self.register_buffer("map_deviation", torch.tensor(2.74), persistent=False)  # measured on photos
        self.trunk = efficientnet.EfficientNetLite0()
        self.is_loaded = efficientnet.weights_file() is not None
        if self.is_loaded:
            self.trunk.load_state_dict(efficientnet.published_weights())
        # A trained model brings the weights with it and needs no package for them.
        self.register_load_state_dict_post_hook(_note_weights)

    def cells(self, images: Tensor) -> Tensor:
        if not self.is_loaded:
            efficientnet.published_weights()  # says what to install
        return self.trunk(images).flatten(2).transpose(1, 2) / self.map_deviation  # (B, D, R, S) -> (B, R·S, D)


def _note_weights(module: Any, keys: Any) -> None:
    module.is_loaded = module.is_loaded or not any("trunk." in name for name in keys.missing_keys)


class CnnEncoder(ImageEncoder):
    """A cell sees little more than itself, so positions are added: relations such as "above" need them."""

    def __init__(self, config: EncoderConfig, image: ImageShape):
        embed = ConvolutionalEmbedding(image.channels, config.width, config.cell, norm=CellNorm)
        super().__init__(config.width, embed.grid(image.rows, image.columns))
        self.embed = embed
        self.refine = ConvolutionBlock(config.width, config.width, norm=CellNorm)
        self.positions = LearnedPositions(config.width, *self.grid)

    def cells(self, images: Tensor) -> Tensor:
        features = self.refine(self.embed.blocks(channels_last(images)))
        return features.flatten(2).transpose(1, 2) + self.positions(*self.grid)  # (B, D, R, S) -> (B, R·S, D)


class VitEncoder(ImageEncoder):
    def __init__(self, config: EncoderConfig, image: ImageShape):
        embed = PatchEmbedding(image.channels, config.width, config.cell)
        super().__init__(config.width, embed.grid(image.rows, image.columns))
        self.embed = embed
        self.positions = LearnedPositions(config.width, *self.grid)
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(_vit_layer(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)

    def cells(self, images: Tensor) -> Tensor:
        x = self.dropout(self.embed(images).flatten(1, 2) + self.positions(*self.grid))  # (B, R, S, D) -> (B, R·S, D)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


def _vit_layer(config: EncoderConfig) -> DeepEncoderLayer:
    narrow = feed_forward(config.width, 2 * config.width, "gelu", config.dropout)
    return DeepEncoderLayer(MultiHead(config.width, config.heads), narrow, config.dropout)


class HuggingFaceEncoder(ImageEncoder):
    """The last hidden state, without the tokens in front of the patches ([class] and others)."""

    def __init__(self, config: EncoderConfig, image: ImageShape):
        assert config.directory is not None
        backbone = load_backbone(config.directory, image)
        super().__init__(backbone.size, backbone.grid, backbone.mean, backbone.deviation)
        self.backbone = backbone.model

    def cells(self, images: Tensor) -> Tensor:
        hidden = self.backbone(pixel_values=images).last_hidden_state
        if hidden.dim() == 4:
            return hidden.flatten(2).transpose(1, 2)  # (B, D, R, S) -> (B, R·S, D)
        return hidden[:, hidden.shape[1] - self.grid[0] * self.grid[1] :]
