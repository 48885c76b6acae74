"""A causal language model: the decoder of a Transformer over one text. GPT-2 (Radford 2019), Llama (Touvron 2023) and what lies between.

    x = embed(tokens) + positions
    layers × [x ← x + attention(norm(x)),  x ← x + feed-forward(norm(x))]
    next token ~ softmax(E norm(x))

GPT-2 is positions=learned, activation=gelu-tanh, norm=layer, biases=true, tied=true; Llama is positions=rotary, activation=gated, norm=rms,
biases=false, tied=false, with key_heads. A model reads at most `context` tokens. Beyond, writing goes on from the later half of them, as if
the text began there.

Axis legend: B texts, N tokens, D features.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from saccade.attention import CAUSAL, Learned, MultiHead, Packed, Packing, Rotary
from saccade.attention.routes import RMSNorm
from saccade.config.recipe import Config as BaseConfig
from saccade.layers.causal_shortcut import CausalShortcut
from saccade.layers.decoder_cache import Past
from saccade.layers.dropout import Dropout
from saccade.layers.feed_forward import Activation, feed_forward
from saccade.models.shapes import Shapes
from saccade.views.axes import Axis

_SMALL = 0.02  # the deviation of GPT-2's first weights
_GATED_HIDDEN = 8 / 3  # of the width: a third matrix, and as many weights as with 4 (Shazeer 2020)


class Config(BaseConfig):
    serves: ClassVar[tuple[str, ...]] = ("language",)

    layers: int = Field(4, ge=1)
    width: int = Field(256, ge=2)
    heads: int = Field(4, ge=1)
    key_heads: int | None = Field(
        None, ge=1, description="fewer heads of keys and values, shared by neighbouring heads"
    )
    feed_forward: int | None = Field(None, ge=1, description="hidden units; 4 × width unless given, gated 8/3 × width")
    context: int = Field(256, ge=2, description="the most tokens that are read at once")
    positions: Literal["learned", "rotary"] = "rotary"
    rotary_base: float = Field(10000.0, gt=0, description="rotary: the slowest wave takes 2π times as many positions")
    activation: Activation = "relu-squared"
    norm: Literal["layer", "rms"] = "layer"
    norm_epsilon: float = Field(1e-5, gt=0)
    query_key_norm: bool = Field(True, description="queries and keys are normalised, so that scores stay small")
    biases: bool = Field(False, description="in linear layers and norms")
    tied: bool = Field(True, description="the output layer shares its weights with the embedding")
    dropout: float = Field(0.0, ge=0, lt=1)
    initial: Literal["small", "zero"] = Field(
        "zero", description="of each block's last matrices: zero, so that training begins with no blocks, or small"
    )

    @model_validator(mode="after")
    def _heads_fit(self) -> "Config":
        head = 2 if self.positions == "rotary" else 1
        if self.width % (head * self.heads):
            raise ValueError(f"width {self.width} must be a multiple of {head} × {self.heads} heads")
        if self.heads % (self.key_heads or self.heads):
            raise ValueError(f"heads {self.heads} must be a multiple of key_heads {self.key_heads}")
        if self.positions != "rotary":
            self._refuse_unused("positions=rotary", "rotary_base")
        return self

    @property
    def hidden(self) -> int:
        if self.feed_forward is not None:
            return self.feed_forward
        return int(_GATED_HIDDEN * self.width) if self.activation == "gated" else 4 * self.width


class Block(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        width, head_size = config.width, config.width // config.heads
        self.attention_norm = _norm(config)
        self.self_attention = MultiHead(
            width,
            config.heads,
            key_heads=config.key_heads,
            query_key_norm=config.query_key_norm,
            rotary=Rotary(head_size, config.rotary_base) if config.positions == "rotary" else None,
            bias=config.biases,
        )
        self.feed_forward_norm = _norm(config)
        self.feed_forward = feed_forward(width, config.hidden, config.activation, 0.0, config.biases)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, packed: Packed | None = None) -> Tensor:
        attended = self.self_attention(self.attention_norm(x), band=CAUSAL, packed=packed).context
        return self._feed_forward(x + self.dropout(attended))

    def step(self, x: Tensor, past: Past, number: int) -> Tensor:
        """The next positions (B, N, D) of the block with this number; the keys and values of those before stand in `past`."""
        h, first = self.attention_norm(x), past.length
        so_far = past.write(number, self.self_attention.remember(h, first_key=first))
        band = None if x.shape[1] == 1 else CAUSAL
        return self._feed_forward(x + self.self_attention.recall(h, so_far, band=band, first_query=first).context)

    def _feed_forward(self, x: Tensor) -> Tensor:
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))


@dataclass(frozen=True)
class State:
    """Where writing is: the tokens read so far, all but those that have left the context, and their keys and values."""

    tokens: Tensor  # (B, N)
    past: Past
    shortcut: CausalShortcut | None  # for steps of one token

    def rows(self, index: Tensor) -> "State":
        return State(self.tokens[index], self.past.rows(index), self.shortcut)


class GPT(nn.Module):
    """It is a Stepper: `start`, `step`, `select`."""

    def __init__(self, config: Config, words: int):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(words, config.width)
        self.positions = Learned(config.width, config.context) if config.positions == "learned" else None
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = _norm(config)
        self.output = nn.Linear(config.width, words, bias=False)
        self._draw_weights()
        if config.tied:
            self.output.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (B, N, words) of the token after each."""
        logits: Tensor = self.output(self.read(tokens))
        return logits

    def read(self, tokens: Tensor, documents: Packing | None = None) -> Tensor:
        """What is read off after each token, (B, N, D). `documents`: their lengths, in tokens (1, N) of several one after the other,
        each of which is read by itself."""
        *_, x = self.residuals(tokens, documents)
        normed: Tensor = self.norm(x)
        return normed

    def residuals(self, tokens: Tensor, documents: Packing | None = None) -> Iterator[Tensor]:
        """x (B, N, D) before the first layer and after each."""
        x, packed = self._embed(tokens, documents), None if documents is None else Packed(documents, documents)
        yield x
        for layer in self.layers:
            x = layer(x, packed)
            yield x

    # Writing

    def start(self, memory: Tensor) -> State:
        """`memory`: the tokens (B, N) of each prompt but the last, which is the first to `step` from."""
        memory = memory[:, -(self.config.context - 1) :]
        shortcut = CausalShortcut.through(self.blocks, self.blocks)
        state = State(memory[:, :0], Past(len(self.layers)), shortcut)
        return self._then(memory, state)[1] if memory.shape[1] else state

    def step(self, token: Tensor, state: State) -> tuple[Tensor, State]:
        if state.tokens.shape[1] == self.config.context:
            state = self.start(state.tokens[:, self.config.context // 2 :])
        x, state = self._then(token[:, None], state)
        return self.output(self.norm(x[:, -1])), state

    def select(self, state: State, rows: Tensor) -> State:
        return state.rows(rows)

    def attention_axes(self, name: str, axes: Mapping[str, Axis]) -> tuple[Axis, Axis]:
        """Each token looks at itself and at those before it."""
        return axes["text"], axes["text"]

    def _then(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """These tokens (B, N) read after those of the state."""
        count = tokens.shape[1]
        past = state.past.begin_step(count)
        x = self._embed(tokens, None, past.length)
        if count == 1 and state.shortcut is not None and state.shortcut.may_be_taken():
            x = state.shortcut.step(x, past)
        else:
            for number, layer in enumerate(self.blocks):
                x = layer.step(x, past, number)
        return x, State(torch.cat((state.tokens, tokens), 1), past.end_step(count), state.shortcut)

    @property
    def blocks(self) -> list[Block]:
        return [layer for layer in self.layers if isinstance(layer, Block)]

    def _embed(self, tokens: Tensor, documents: Packing | None, first: int = 0) -> Tensor:
        x = self.embedding(tokens)
        if self.positions is not None:
            length = tokens.shape[1] if documents is None else documents.longest
            rows = self.positions(length, first)
            x = x + (rows if documents is None else rows.index_select(0, documents.positions))
        return self.dropout(x)

    def _draw_weights(self) -> None:
        """As GPT-2's: what each block adds is smaller the more of them there are. Or nothing at first (Bachlechner 2021; Zhang 2019)."""
        last = _SMALL / (2 * len(self.layers)) ** 0.5 if self.config.initial == "small" else 0.0
        for name, parameter in self.named_parameters():
            if name.endswith((".self_attention.output.weight", ".feed_forward.contract.weight")):
                nn.init.normal_(parameter, std=last)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.dim() == 2 and not name.startswith("positions"):
                nn.init.normal_(parameter, std=_SMALL)


def _norm(config: Config) -> nn.Module:
    if config.norm == "rms":
        return RMSNorm(config.width, eps=config.norm_epsilon)
    return nn.LayerNorm(config.width, eps=config.norm_epsilon, bias=config.biases)


def build(config: Config, shapes: Shapes) -> GPT:
    return GPT(config, shapes.target_words)
