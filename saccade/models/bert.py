"""The encoder of a Transformer over one text, or over two with a mark of which is which: BERT (Devlin 2019).

    x = norm(words + positions + segments)
    layers × [x ← norm(x + self-attention(x)),  x ← norm(x + feed-forward(x))]          (`norm: pre` puts the norms first)

What is read from x is for the task to say; there is a head for each:

    classes      softmax(V f(W x_pooled))        f: tanh, ReLU or nothing; pooled: the first token, or the mean of the text's tokens
    words        softmax(E norm(gelu(W x)) + b)  at every position, with the embedding E; for words that were masked
    spans        softmax over positions of v·x   for the first and for the last position of an answer

    model(tokens, lengths)                       logits of the head: (B, classes), (B, N, words) or (B, N, 2)
    model.encode(tokens, lengths, segments)      x, (B, N, D): model.words(x[chosen]) then has the words at chosen positions alone

Axis legend: B batch, N tokens, D features, P positions of all texts without padding.
"""

from collections.abc import Callable, Mapping
from typing import ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.attention import Learned, MultiHead, Packed, Packing, padding
from saccade.config.recipe import Config as BaseConfig
from saccade.layers.dropout import Dropout
from saccade.layers.feed_forward import Activation, feed_forward
from saccade.layers.pooling import mean_over
from saccade.layers.transformer import EncoderLayer, Norm
from saccade.models.shapes import Shapes
from saccade.views.axes import Axis

_SMALL = 0.02  # the deviation of the first weights


class Config(BaseConfig):
    serves: ClassVar[tuple[str, ...]] = ("text-classes", "language", "masked-language", "spans")
    takes_special: ClassVar[bool] = True  # texts come with special tokens around them: classes are read from the first

    layers: int = Field(4, ge=1)
    width: int = Field(256, ge=2)
    heads: int = Field(4, ge=1)
    feed_forward: int = Field(1024, ge=1)
    max_length: int = Field(
        512, ge=4, description="positions that are learned: the most tokens of a text, special ones too"
    )
    segments: int = Field(2, ge=1, description="how many texts in one are told apart: question and context are 2")
    norm: Norm = Field("post", description="post as published; pre is easier to train from scratch")
    activation: Activation = "gelu"
    dropout: float = Field(0.1, ge=0, lt=1)
    attention_dropout: float = Field(0.0, ge=0, lt=1)
    norm_epsilon: float = Field(1e-12, gt=0, description="added to the variance in every norm")
    pooling: Literal["class", "mean"] = Field(
        "class", description="classes are read from the first token, or from the mean"
    )
    pooler: Literal["tanh", "relu", "none"] = Field(
        "tanh", description="the layer between what is pooled and the classes"
    )

    @property
    def reads_first_token(self) -> bool:
        """Whether classes are read from the first token, or from the mean of all."""
        return self.pooling == "class"

    @model_validator(mode="after")
    def _heads_divide_width(self) -> "Config":
        if self.width % self.heads:
            raise ValueError(f"width {self.width} must be a multiple of {self.heads} heads")
        return self


class Embedding(nn.Module):
    """norm(words + positions + segments)"""

    def __init__(self, config: Config, words: int):
        super().__init__()
        self.words = nn.Embedding(words, config.width)
        self.positions = Learned(config.width, config.max_length)
        self.segments = nn.Embedding(config.segments, config.width)
        self.norm = nn.LayerNorm(config.width, eps=config.norm_epsilon)
        self.dropout = Dropout(config.dropout)

    def forward(self, tokens: Tensor, positions: Tensor, segments: Tensor | None) -> Tensor:
        """`tokens` (..., N), `positions` (..., N, D) of the table, `segments` (..., N) or None where all are of the first."""
        return self.around(self.words(tokens), positions, segments)

    def around(self, words: Tensor, positions: Tensor, segments: Tensor | None) -> Tensor:
        """The same from the features of the words."""
        kinds = self.segments.weight[0] if segments is None else self.segments(segments)
        return self.dropout(self.norm(words + positions + kinds))


class ClassHead(nn.Module):
    """V f(W x_pooled)"""

    def __init__(self, config: Config, classes: int):
        super().__init__()
        self.is_mean = config.pooling == "mean"
        self.dense = nn.Identity() if config.pooler == "none" else nn.Linear(config.width, config.width)
        self.activation: Callable[[Tensor], Tensor] = _POOLERS[config.pooler]
        self.dropout = Dropout(config.dropout)
        self.output = nn.Linear(config.width, classes)

    def forward(self, x: Tensor, visible: Tensor) -> Tensor:
        """x (B, N, D), visible (B, 1, N) → (B, classes)"""
        pooled = mean_over(x, visible) if self.is_mean else x[:, 0]
        return self.output(self.dropout(self.activation(self.dense(pooled))))


class WordHead(nn.Module):
    """E norm(gelu(W x)) + b, with E the embedding of the words."""

    def __init__(self, config: Config, embedding: nn.Embedding):
        super().__init__()
        self.dense = nn.Linear(config.width, config.width)
        self.norm = nn.LayerNorm(config.width, eps=config.norm_epsilon)
        self.output = nn.Linear(config.width, embedding.num_embeddings)
        self.output.weight = embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) → (..., words)"""
        return self.output(self.norm(F.gelu(self.dense(x))))


class SpanHead(nn.Module):
    """How well an answer begins, and ends, at each position."""

    def __init__(self, config: Config):
        super().__init__()
        self.output = nn.Linear(config.width, 2)

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) → (..., 2)"""
        return self.output(x)


class Bert(nn.Module):
    def __init__(self, config: Config, shapes: Shapes):
        super().__init__()
        self.max_length = config.max_length
        self.embed = Embedding(config, shapes.source_words)
        self.layers = nn.ModuleList(_layer(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width, eps=config.norm_epsilon) if config.norm == "pre" else nn.Identity()
        self.classes = ClassHead(config, shapes.classes) if shapes.classes else None
        self.words = WordHead(config, self.embed.words) if shapes.target_words else None
        self.spans = SpanHead(config) if shapes.spans else None
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=_SMALL)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(self, tokens: Tensor, lengths: Tensor, segments: Tensor | None = None) -> Tensor:
        """The logits of the one head that was built."""
        x = self.encode(tokens, lengths, segments)
        if self.classes is not None:
            return self.classes(x, padding(lengths, tokens.shape[1]))
        head = self.words if self.spans is None else self.spans
        return x if head is None else head(x)

    def from_embedded(self, words: Tensor, lengths: Tensor) -> tuple[Tensor, None]:
        """The logits of classes from the features of the words (B, N, D)."""
        x = self.embed.around(words, self.embed.positions(words.shape[1]), None)
        visible = padding(lengths, words.shape[1])
        for layer in self.layers:
            x = layer(x, visible)
        assert self.classes is not None
        return self.classes(self.norm(x), visible), None

    def encode(self, tokens: Tensor, lengths: Tensor, segments: Tensor | None = None) -> Tensor:
        """x (B, N, D) of tokens (B, N), of which the first `lengths` (B,) of a row are text. What stands where padded means nothing."""
        if not torch.compiler.is_compiling() and self.packs:
            return self._encode_packed(tokens, lengths, segments)
        visible = padding(lengths, tokens.shape[1])
        x = self.embed(tokens, self.embed.positions(tokens.shape[1]), segments)
        for layer in self.layers:
            x = layer(x, visible)
        return self.norm(x)

    @property
    def packs(self) -> bool:
        """Whether texts need no padding: a kernel attends to each within one row of all."""
        layer = self.layers[0]
        assert isinstance(layer, EncoderLayer)
        return layer.self_attention.packs(self.embed.words.weight)

    def attention_axes(self, name: str, axes: Mapping[str, Axis]) -> tuple[Axis, Axis]:
        """`name` is "layers.L.self_attention": a text looks at itself."""
        return axes["text"], axes["text"]

    def stack(self) -> list[nn.Module]:
        """The parts from the words up to the head, for learning rates that fall from layer to layer."""
        heads = [head for head in (self.classes, self.words, self.spans) if head is not None]
        return [self.embed, *self.layers, nn.ModuleList([self.norm, *heads])]

    def output_layers(self) -> list[nn.Linear]:
        return [head.output for head in (self.classes, self.words, self.spans) if head is not None]

    def _encode_packed(self, tokens: Tensor, lengths: Tensor, segments: Tensor | None) -> Tensor:
        packing = Packing(lengths)
        inside = packing.visible[:, 0]  # (B, L), L the longest

        def packed(rows: Tensor | None) -> Tensor | None:
            return None if rows is None else rows[:, : packing.longest][inside][None]  # (B, N) -> (1, P)

        places = self.embed.positions(packing.longest).index_select(0, packing.positions)
        x = self.embed(packed(tokens), places, packed(segments))
        for layer in self.layers:
            x = layer(x, packed=Packed(packing, packing))
        x = packing.pad(self.norm(x))  # (1, P, D) -> (B, L, D)
        return F.pad(x, (0, 0, 0, tokens.shape[1] - packing.longest))


_POOLERS: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "relu": F.relu, "none": nn.Identity()}


def _layer(config: Config) -> EncoderLayer:
    return EncoderLayer(
        MultiHead(config.width, config.heads, dropout=config.attention_dropout),
        feed_forward(config.width, config.feed_forward, config.activation, config.dropout),
        config.norm,
        config.dropout,
        config.norm_epsilon,
    )


def build(config: Config, shapes: Shapes) -> Bert:
    return Bert(config, shapes)
