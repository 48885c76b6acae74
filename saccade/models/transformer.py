"""The Transformer encoder-decoder (Vaswani 2017).

    encoder: x = embed(source)·√d + positions;  N × [self-attention, feed-forward]
    decoder: y = embed(target)·√d + positions;  N × [causal self-attention, attention over x, feed-forward];  word ~ softmax(E y)

Axis legend: B batch, S source length, T target length, D model size.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from saccade.attention import Learned, MultiHead, Packed, Packing, Rotary, Score, Sinusoidal, all_scores, padding
from saccade.config.recipe import Config as BaseConfig
from saccade.layers import decoder_steps
from saccade.layers.choices import ScoreName
from saccade.layers.decoder_steps import State, plain_linear
from saccade.layers.dropout import Dropout
from saccade.layers.feed_forward import Activation, FeedForward, feed_forward
from saccade.layers.transformer import DecoderLayer, EncoderLayer, Norm
from saccade.models.shapes import Shapes
from saccade.views.axes import Axis


@dataclass(frozen=True)
class Size:
    layers: int
    width: int
    heads: int
    feed_forward: int

    def __str__(self) -> str:
        return f"{self.layers} + {self.layers} layers, width {self.width}, {self.heads} heads, feed-forward {self.feed_forward}"


SIZES = {
    "tiny": Size(layers=4, width=128, heads=4, feed_forward=256),
    "small": Size(layers=3, width=256, heads=8, feed_forward=512),
    "base": Size(layers=6, width=512, heads=8, feed_forward=2048),
    "big": Size(layers=6, width=1024, heads=16, feed_forward=4096),
}
_SMALL = 0.02  # the deviation of BERT's first weights (Devlin 2019)
PAIRS = {"tiny": 100_000, "small": 1_000_000, "base": 10_000_000}  # up to so many training pairs, by experience


class Config(BaseConfig):
    serves: ClassVar[tuple[str, ...]] = ("sequence-to-sequence",)

    size: Literal["auto", "tiny", "small", "base", "big"] = Field("small", description="auto: by the number of pairs")
    layers: int | None = Field(None, ge=1, description="instead of the size's own")
    width: int | None = Field(None, ge=2)
    heads: int | None = Field(None, ge=1)
    feed_forward: int | None = Field(None, ge=1)
    norm: Norm = "pre"
    positions: Literal["sinusoidal", "learned", "rotary"] = "sinusoidal"
    activation: Activation = "relu"
    score: ScoreName = "scaled-dot"
    tied: bool = Field(True, description="the output layer shares its weights with the target embedding")
    shared: bool = Field(False, description="source and target share one embedding; needs a joint vocabulary")
    dropout: float = Field(0.1, ge=0, lt=1)
    attention_dropout: float = Field(0.0, ge=0, lt=1)
    feed_forward_dropout: float | None = Field(
        None, ge=0, lt=1, description="of the hidden units of feed-forward layers; as `dropout` unless given"
    )
    initial: Literal["xavier", "small"] = Field(
        "xavier", description="weights to start from; small (normal, deviation 0.02) learn faster in short trainings"
    )
    max_length: int = Field(512, ge=1, description="learned positions and location score: longest sequence")

    @property
    def sizes(self) -> Size:
        return self._sizes("tiny" if self.size == "auto" else self.size)

    def fitted(self, pairs: int) -> "Config":
        """With a size for so many training pairs, where the choice was left open."""
        if self.size != "auto":
            return self
        size = next((size for size, most in PAIRS.items() if pairs <= most), "big")
        return self.model_copy(update={"size": size})

    def _sizes(self, size: str) -> Size:
        own = {name: getattr(self, name) for name in ("layers", "width", "heads", "feed_forward")}
        return replace(SIZES[size], **{name: value for name, value in own.items() if value is not None})

    @model_validator(mode="after")
    def _heads_divide_width(self) -> "Config":
        for size in SIZES if self.size == "auto" else [self.size]:
            sizes = self._sizes(size)
            if sizes.width % (2 * sizes.heads):
                raise ValueError(f"width {sizes.width} must be a multiple of 2 × {sizes.heads} heads")
        return self

    @model_validator(mode="after")
    def _nothing_is_idle(self) -> "Config":
        if self.positions != "learned" and self.score != "location":
            self._refuse_unused("positions=learned or score=location", "max_length")
        return self


@dataclass(frozen=True)
class Encoded:
    """A batch of sources, read."""

    annotations: Tensor  # (B, S, D)
    visible: Tensor  # (B, 1, S)


class Encoder(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        sizes = config.sizes
        self.layers = nn.ModuleList(
            EncoderLayer(_attention(config), _feed_forward(config), config.norm, config.dropout)
            for _ in range(sizes.layers)
        )
        self.norm = nn.LayerNorm(sizes.width) if config.norm == "pre" else nn.Identity()

    def forward(self, x: Tensor, visible: Tensor | None, packed: Packed | None = None) -> Tensor:
        for layer in self.layers:
            x = layer(x, visible, packed=packed)
        return self.norm(x)


class Decoder(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        sizes = config.sizes
        self.layers = nn.ModuleList(
            DecoderLayer(
                _attention(config), _attention(config, cross=True), _feed_forward(config), config.norm, config.dropout
            )
            for _ in range(sizes.layers)
        )
        self.norm = nn.LayerNorm(sizes.width) if config.norm == "pre" else nn.Identity()

    def start(self, encoded: Encoded) -> State:
        layers = [_layer(layer) for layer in self.layers]
        source = tuple(layer.cross_attention.remember(encoded.annotations) for layer in layers)
        return decoder_steps.start(layers, self.norm, source, encoded.visible)

    def forward(self, y: Tensor, encoded: Encoded, packed: Packed | None = None) -> Tensor:
        visible = encoded.visible if packed is None else None
        for layer in self.layers:
            y = layer(y, _layer(layer).cross_attention.remember(encoded.annotations), visible, packed)
        return self.norm(y)

    def step(self, y: Tensor, state: State) -> tuple[Tensor, State]:
        return decoder_steps.step([_layer(layer) for layer in self.layers], self.norm, y, state)


class Transformer(nn.Module):
    """Encoder, decoder and words. It is a Stepper: `start`, `step`, `select`."""

    def __init__(self, config: Config, source_words: int, target_words: int):
        super().__init__()
        width = config.sizes.width
        self.target_embedding = nn.Embedding(target_words, width, padding_idx=0)
        self.source_embedding = (
            self.target_embedding if config.shared else nn.Embedding(source_words, width, padding_idx=0)
        )
        self.source_positions = _positions(config)
        self.target_positions = _positions(config)
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        self.output = nn.Linear(width, target_words)
        self.dropout = Dropout(config.dropout)
        self.scale = width**0.5
        self._draw_weights(config.initial)
        if config.tied:
            self.output.weight = self.target_embedding.weight

    def encode(self, source: Tensor, lengths: Tensor) -> Encoded:
        visible = padding(lengths, source.shape[1])
        x = self._embed(self.source_embedding(source), self.source_positions, 0)
        return Encoded(self.encoder(x, visible), visible)

    def read(self, encoded: Encoded, target: Tensor) -> tuple[Tensor, Tensor]:
        """Readouts (B, T, D) for the words given so far, before the output layer; nothing is sampled, so the log-probability is 0."""
        y = self._embed(self.target_embedding(target), self.target_positions, 0)
        return self.decoder(y, encoded), y.new_zeros(())

    def read_packed(self, source: Tensor, source_lengths: Tensor, target: Tensor, target_lengths: Tensor) -> Tensor:
        """Readouts (words, D) of all targets one after the other: what `encode` and `read` compute, without a place for padding."""
        sources, targets = Packing(source_lengths), Packing(target_lengths)
        x = self._embed_packed(self.source_embedding, source, self.source_positions, sources)
        encoded = Encoded(self.encoder(x, None, Packed(sources, sources)), sources.visible)
        y = self._embed_packed(self.target_embedding, target, self.target_positions, targets)
        return self.decoder(y, encoded, Packed(targets, sources)).squeeze(0)

    @property
    def packs(self) -> bool:
        """Whether `read_packed` has something to gain: a kernel that attends without padding."""
        return _layer(self.decoder.layers[0]).self_attention.packs(self.output.weight)

    def attention_axes(self, name: str, axes: Mapping[str, Axis]) -> tuple[Axis, Axis]:
        """The encoder looks from the source at itself, the decoder from what it writes at what it wrote before and at the source."""
        if name.startswith("encoder."):
            return axes["source"], axes["source"]
        return axes["target"], axes["target_before"] if name.endswith(".self_attention") else axes["source"]

    def start(self, memory: Encoded) -> State:
        return self.decoder.start(memory)

    def step(self, token: Tensor, state: State) -> tuple[Tensor, State]:
        y = self._embed(self.target_embedding(token)[:, None], self.target_positions, state.position)  # (B, 1, D)
        readout, state = self.decoder.step(y, state)
        return plain_linear(self.output)(readout.squeeze(1)), state

    def select(self, state: State, rows: Tensor) -> State:
        return state.rows(rows)

    def _embed(self, words: Tensor, positions: nn.Module | None, first: int) -> Tensor:
        words = words * self.scale
        if positions is not None:
            words = words + positions(words.shape[1], first)
        return self.dropout(words)

    def _embed_packed(
        self, embedding: nn.Module, words: Tensor, positions: nn.Module | None, packing: Packing
    ) -> Tensor:
        embedded = embedding(words[:, : packing.longest][packing.visible[:, 0]])[None] * self.scale  # (1, N, D)
        if positions is not None:
            embedded = embedded + positions(packing.longest).index_select(0, packing.positions)
        return self.dropout(embedded)

    def _draw_weights(self, initial: str) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear):
                if initial == "small":
                    nn.init.normal_(module.weight, std=_SMALL)
                else:
                    nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=_SMALL if initial == "small" else module.embedding_dim**-0.5)
                with torch.no_grad():
                    module.weight[0].zero_()


def _attention(config: Config, cross: bool = False) -> MultiHead:
    """Rotary positions are for looking at one's own sequence; between two sequences there is no distance."""
    sizes = config.sizes
    rotary = Rotary(sizes.width // sizes.heads) if config.positions == "rotary" and not cross else None
    score: Callable[..., Score] = all_scores()[config.score]
    if config.score == "location":
        score = partial(score, longest=config.max_length)
    return MultiHead(sizes.width, sizes.heads, score=score, dropout=config.attention_dropout, rotary=rotary)


def _feed_forward(config: Config) -> FeedForward:
    dropout = config.dropout if config.feed_forward_dropout is None else config.feed_forward_dropout
    return feed_forward(config.sizes.width, config.sizes.feed_forward, config.activation, dropout)


def _positions(config: Config) -> nn.Module | None:
    if config.positions == "rotary":
        return None
    width = config.sizes.width
    return Learned(width, config.max_length) if config.positions == "learned" else Sinusoidal(width)


def _layer(module: nn.Module) -> DecoderLayer:
    assert isinstance(module, DecoderLayer)
    return module


def build(config: Config, shapes: Shapes) -> Transformer:
    return Transformer(config, shapes.source_words, shapes.target_words)
