"""A caption by the Transformer's decoder (Vaswani 2017) over the cells of an image.

    x = W a                                              the annotations in the decoder's width
    y = embed(words)·√d + positions;  N × [causal self-attention, attention over x, feed-forward];  word ~ softmax(E y)

The decoder is that of translation. Over a convolutional encoder this is CNN + Transformer; over patches (`encoder.name: vit`) there is no
convolution anywhere.

Axis legend: B batch, K cells, T words, D features of a cell, E width.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from pydantic import Field, model_validator
from torch import Tensor, nn

from saccade.attention import Sinusoidal
from saccade.config.recipe import Config as BaseConfig
from saccade.data.image_shape import ImageShape
from saccade.layers.captioner import Captioner, Encoded, Reading
from saccade.layers.image_encoders import EncoderConfig
from saccade.models import transformer
from saccade.models.shapes import Shapes
from saccade.models.transformer import Decoder, State
from saccade.views.axes import Axis


class Config(BaseConfig):
    serves: ClassVar[tuple[str, ...]] = ("captioner",)

    encoder: EncoderConfig = Field(EncoderConfig.model_validate({}), description="what turns an image into cells")
    layers: int = Field(3, ge=1)
    width: int = Field(256, ge=2)
    heads: int = Field(8, ge=1)
    feed_forward: int = Field(512, ge=1)
    dropout: float = Field(0.3, ge=0, lt=1)
    tied: bool = Field(True, description="the output layer shares its weights with the words' embedding")

    @model_validator(mode="after")
    def _heads_divide_width(self) -> "Config":
        if self.width % (2 * self.heads):
            raise ValueError(f"width {self.width} must be a multiple of 2 × {self.heads} heads")
        return self

    def decoder(self) -> transformer.Config:
        own = {"layers", "width", "heads", "feed_forward", "dropout"}
        return transformer.Config.model_validate(self.model_dump(include=own))


class CaptionTransformer(Captioner):
    """Encoder, decoder and words. It is a Stepper: `start`, `step`, `select`."""

    def __init__(self, config: Config, image: ImageShape, words: int):
        super().__init__(config.encoder, image, config.width, words, config.dropout, config.tied)
        self.project = nn.Linear(self.encoder.size, config.width)
        self.word_positions = Sinusoidal(config.width)
        self.decoder = Decoder(config.decoder())
        self.scale = config.width**0.5
        for module in (self.project, *self.decoder.modules()):
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)

    def encode(self, features: Tensor) -> Encoded:
        encoded = super().encode(features)
        return replace(encoded, annotations=self.dropout(self.project(encoded.annotations)))  # (B, K, D) -> (B, K, E)

    def read(self, encoded: Encoded, target: Tensor) -> Reading:
        """What follows the words given so far (B, T)."""
        readouts = self.decoder(self._embed(target, 0), _as_source(encoded))
        return Reading(readouts, readouts.new_zeros(()), readouts.new_zeros(()))

    def attention_axes(self, name: str, axes: Mapping[str, Axis]) -> tuple[Axis, Axis]:
        """An encoder that attends looks from cell to cell, the decoder from what it writes at what it wrote before and at the cells."""
        if name.startswith("encoder."):
            return axes["cells"], axes["cells"]
        return axes["target"], axes["target_before"] if name.endswith(".self_attention") else axes["cells"]

    def start(self, memory: Encoded) -> State:
        return self.decoder.start(_as_source(memory))

    def step(self, token: Tensor, state: State) -> tuple[Tensor, State]:
        readout, state = self.decoder.step(self._embed(token[:, None], state.position), state)
        return self.word_logits(readout.squeeze(1)), state

    def select(self, state: State, rows: Tensor) -> State:
        return state.rows(rows)

    def _embed(self, words: Tensor, first: int) -> Tensor:
        embedded = self.target_embedding(words) * self.scale  # (B, T) -> (B, T, E)
        return self.dropout(embedded + self.word_positions(words.shape[1], first))


def _as_source(encoded: Encoded) -> transformer.Encoded:
    return transformer.Encoded(encoded.annotations, encoded.visible)


def build(config: Config, shapes: Shapes) -> CaptionTransformer:
    return CaptionTransformer(config, shapes.require_image(), shapes.target_words)
