"""A text classifier that reads by an LSTM and looks at what it read: the lectures' attention layer, or Lin 2017's.

    h_1 … h_N = LSTM(E w_1 … E w_N)                                       in one or both directions
    self          c_i = Σ_j softmax_j(score(h_i, h_j)) h_j                 the lectures': every position looks at all
                  pooled = mean_i [h_i; c_i]
    structured    A = softmax(W₂ tanh(W₁ Hᵀ)),  pooled = the rows of A H   r looks at the text (Lin 2017)
    none          pooled = mean_i h_i                                      to compare with
    class ~ softmax(V f(pooled))

Means are over the words of the text: what stands where a batch is padded has no part in anything. `penalty` is Lin's ‖A Aᵀ - I‖², which
keeps his looks apart.

Axis legend: B batch, N tokens, D features of the LSTM, R looks.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from saccade.attention import Attend, Dot, all_scores, padding
from saccade.config.recipe import Config as BaseConfig
from saccade.layers.choices import ScoreName
from saccade.layers.dropout import Dropout
from saccade.layers.pooling import mean_over
from saccade.layers.recurrent import RecurrentEncoder
from saccade.models.shapes import Shapes
from saccade.views.axes import Axis, Tokens


class Config(BaseConfig):
    serves: ClassVar[tuple[str, ...]] = ("text-classes",)
    takes_special: ClassVar[bool] = False  # texts come without special tokens around them
    max_length: ClassVar[int | None] = None  # texts of any length
    reads_first_token: ClassVar[bool] = False  # classes are read from the mean of all words

    embedding: int = Field(128, ge=1)
    hidden: int = Field(128, ge=2, description="features of a word after the LSTM: of both directions together")
    directions: Literal["both", "forward"] = "both"
    layers: int = Field(1, ge=1)
    attention: Literal["self", "structured", "none"] = "self"
    score: ScoreName = Field("scaled-dot", description="attention=self: how well one word fits another")
    looks: int = Field(4, ge=1, description="attention=structured: how many looks at the text")
    attention_hidden: int = Field(64, ge=1, description="attention=structured: features by which words are chosen")
    penalty: float = Field(0.0, ge=0, description="attention=structured: how much looks at the same words cost")
    dropout: float = Field(0.4, ge=0, lt=1)
    embedding_dropout: float = Field(0.3, ge=0, lt=1, description="of the words' features before they are read")

    @model_validator(mode="after")
    def _parts_fit(self) -> "Config":
        if self.directions == "both" and self.hidden % 2:
            raise ValueError(f"hidden {self.hidden} must be even, half of it for each reading direction")
        if self.attention != "self":
            self._refuse_unused(f"attention=self, and it is {self.attention}", "score")
        if self.attention != "structured":
            names = ("looks", "attention_hidden", "penalty")
            self._refuse_unused(f"attention=structured, and it is {self.attention}", *names)
        return self


class Forward(nn.Module):
    """An LSTM that reads from the first word to the last: padding comes after what is read."""

    def __init__(self, input_size: int, size: int, layers: int, dropout: float):
        super().__init__()
        between = dropout if layers > 1 else 0.0
        self.network = nn.LSTM(input_size, size, layers, batch_first=True, dropout=between)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, None]:
        return self.network(x)[0], None


class SelfAttention(nn.Module):
    """mean_i [h_i; c_i], where every word looks at all words."""

    def __init__(self, config: Config):
        super().__init__()
        self.attention = Attend(all_scores()[config.score](config.hidden, config.hidden))
        self.size = 2 * config.hidden

    def forward(self, h: Tensor, visible: Tensor) -> tuple[Tensor, Tensor | None]:
        context = self.attention(h, h, visible=visible).context
        return mean_over(torch.cat((h, context), dim=-1), visible), None


class StructuredAttention(nn.Module):
    """The rows of A H, and each text's ‖A Aᵀ - I‖² where it is asked for."""

    def __init__(self, config: Config):
        super().__init__()
        self.key = nn.Linear(config.hidden, config.attention_hidden, bias=False)
        self.queries = nn.Parameter(torch.randn(config.looks, config.attention_hidden) * config.attention_hidden**-0.5)
        self.attention = Attend(Dot(config.attention_hidden))
        self.size = config.looks * config.hidden
        self.is_penalised = config.penalty > 0

    def forward(self, h: Tensor, visible: Tensor) -> tuple[Tensor, Tensor | None]:
        queries, key = self.queries.expand(len(h), -1, -1), torch.tanh(self.key(h))
        pooled = self.attention(queries, key, h, visible=visible).context.flatten(1)  # (B, R, D) -> (B, R · D)
        if not (self.is_penalised and self.training):
            return pooled, None
        memory = self.attention.remember(key)
        weights = self.attention.selection(memory.scores(self.attention.score, queries), visible, queries, 0).weights
        overlap = weights @ weights.mT - torch.eye(weights.shape[1], device=h.device)
        return pooled, overlap.square().sum((1, 2))


class Mean(nn.Module):
    """mean_i h_i"""

    def __init__(self, config: Config):
        super().__init__()
        self.size = config.hidden

    def forward(self, h: Tensor, visible: Tensor) -> tuple[Tensor, Tensor | None]:
        return mean_over(h, visible), None


_LOOKS: dict[str, type[SelfAttention | StructuredAttention | Mean]] = {
    "self": SelfAttention,
    "structured": StructuredAttention,
    "none": Mean,
}


class LstmAttention(nn.Module):
    def __init__(self, config: Config, words: int, classes: int):
        super().__init__()
        self.penalty = config.penalty
        self.embed = nn.Embedding(words, config.embedding)
        nn.init.normal_(self.embed.weight, std=0.1)
        self.embedding_dropout = Dropout(config.embedding_dropout)
        self.lstm: nn.Module = (
            RecurrentEncoder("lstm", config.embedding, config.hidden, config.layers, config.dropout)
            if config.directions == "both"
            else Forward(config.embedding, config.hidden, config.layers, config.dropout)
        )
        self.look = look = _LOOKS[config.attention](config)
        self.dropout = Dropout(config.dropout)
        self.output = nn.Linear(look.size, classes)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Tokens (B, N), of which the first `lengths` (B,) of a row are text, to logits (B, classes)."""
        return self.read(tokens, lengths)[0]

    def read(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor | None]:
        """Logits, and in training what looks at the same words cost, for each text."""
        return self.from_embedded(self.embed(tokens), lengths)

    def from_embedded(self, words: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor | None]:
        """The same from the features of the words (B, N, E)."""
        h, _ = self.lstm(self.embedding_dropout(words), lengths)
        pooled, overlap = self.look(h, padding(lengths, words.shape[1]))
        return self.output(self.dropout(pooled)), None if overlap is None else self.penalty * overlap

    def attention_axes(self, name: str, axes: Mapping[str, Axis]) -> tuple[Axis, Axis]:
        """`name` is "look.attention": every word looks at all, or so many looks do."""
        if isinstance(self.look, StructuredAttention):
            return Tokens(tuple(f"[look {number + 1}]" for number in range(len(self.look.queries)))), axes["text"]
        return axes["text"], axes["text"]

    def stack(self) -> list[nn.Module]:
        """The parts from the words up to the head, for learning rates that fall from layer to layer."""
        return [self.embed, self.lstm, nn.ModuleList([self.look, self.output])]


def build(config: Config, shapes: Shapes) -> LstmAttention:
    return LstmAttention(config, shapes.source_words, shapes.classes)
