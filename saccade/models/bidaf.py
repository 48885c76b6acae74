"""Bidirectional attention flow (Seo et al. 2016, https://arxiv.org/abs/1611.01603): which words of a context answer a question.

    x = highway([word vector; letters])              letters: convolution over them, the largest of each feature
    h = BiLSTM(x of the context), u = BiLSTM(x of the question)
    S_tj = w [h_t; u_j; h_t ∘ u_j]                   every word of the context against every word of the question
    ũ_t = Σ_j softmax_j(S_t:) u_j                    context to question: the words of the question that fit each word of the context
    h̃   = question to context, see below
    g_t = [h_t; ũ_t; h_t ∘ ũ_t; h_t ∘ h̃_t]
    m = BiLSTM(g)        p(start) = softmax(w [g; m])        p(end) = softmax(w [g; BiLSTM(m)])

`back: words` lets each word of the question look over the context, and each word of the context read what its question words saw (Xiong et
al. 2017, as in QANet): a map of the question over the context. `back: max` is the paper's: one look over the context, by the best fit
of each of its words to any word of the question, the same h̃ for all t.

Every word also says whether the other text has it (Chen et al. 2017). Position 0 of an answer is "no answer", read from the largest of
each feature of m.

Axis legend: B batch, Q question, C context, U different words, L letters, D features.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.attention import Attend, Dot, Trilinear, padding
from saccade.attention.recording import record
from saccade.config.recipe import Config as BaseConfig
from saccade.config.recipe import ExistingFile
from saccade.data.questions.batching import QuestionBatch
from saccade.layers.dropout import Dropout
from saccade.layers.recurrent import CellName, RecurrentEncoder
from saccade.models.shapes import Shapes
from saccade.views.axes import Axis, Tokens


class Config(BaseConfig):
    serves: ClassVar[tuple[str, ...]] = ("spans",)

    vectors: ExistingFile | None = Field(
        None,
        description="a text file of word vectors in GloVe's format: a word and its numbers a line; they stay as they are",
    )
    embedding: int = Field(100, ge=1, description="numbers of a word's vector; those of `vectors` where that is given")
    letters: int = Field(64, ge=0, description="features that are read from a word's letters; 0 reads none")
    hidden: int = Field(96, ge=2, multiple_of=2)
    cell: CellName = "lstm"
    layers: int = Field(1, ge=1, le=8, description="of the network that reads context and question together")
    back: Literal["words", "max"] = Field(
        "words", description="how the question looks at the context; max is the paper's"
    )
    dropout: float = Field(0.2, ge=0, lt=1)


class Letters(nn.Module):
    """A convolution over the letters of a word and the largest value of each of its features (Kim 2014)."""

    width, embedding = 5, 16

    def __init__(self, letters: int, features: int):
        super().__init__()
        self.embed = nn.Embedding(letters, self.embedding, padding_idx=0)
        self.convolution = nn.Conv1d(self.embedding, features, self.width, padding=self.width // 2)

    def forward(self, letters: Tensor) -> Tensor:
        embedded = self.embed(letters).transpose(1, 2)  # (U, L) -> (U, E, L)
        features = F.relu(self.convolution(embedded)).masked_fill(
            (letters == 0)[:, None], 0.0
        )  # padding has no part in it
        return features.amax(-1)  # (U, features, L) -> (U, features)


class Highway(nn.Module):
    """x' = t ∘ relu(W x) + (1 - t) ∘ x, t = σ(V x) (Srivastava 2015)."""

    def __init__(self, size: int):
        super().__init__()
        self.change, self.gate = nn.Linear(size, size), nn.Linear(size, size)
        nn.init.constant_(self.gate.bias, -1.0)  # at first most passes as it is

    def forward(self, x: Tensor) -> Tensor:
        return torch.lerp(x, F.relu(self.change(x)), torch.sigmoid(self.gate(x)))


class Words(nn.Module):
    """A vector for each different word of a batch, (U, D)."""

    def __init__(self, config: Config, shapes: Shapes):
        super().__init__()
        self.embed = nn.Embedding(shapes.source_words, config.embedding, padding_idx=0)
        nn.init.normal_(self.embed.weight, std=0.1)
        self.letters = Letters(shapes.letters, config.letters) if config.letters else None
        self.project = nn.Linear(config.embedding + config.letters, config.hidden)
        self.highways = nn.Sequential(Highway(config.hidden), Highway(config.hidden))
        self.dropout = Dropout(config.dropout)
        if config.vectors is not None:
            self.embed.weight.requires_grad_(False)

    def forward(self, forms: Tensor, letters: Tensor) -> Tensor:
        parts = [self.embed(forms)] + ([] if self.letters is None else [self.letters(letters)])
        return self.highways(self.project(self.dropout(torch.cat(parts, dim=-1))))


class WordsBack(nn.Module):
    """Each word of the question looks over the context, and each word of the context reads what the words that it looks at saw."""

    def __init__(self, size: int):
        super().__init__()
        self.to_question = Attend(Trilinear(size))
        self.to_context = Attend(Trilinear(size))

    def forward(self, question: Tensor, context: Tensor, words: Tensor, inside: Tensor) -> tuple[Tensor, Tensor]:
        """Question (B, Q, D), context (B, C, D) and which of their words are real (B, 1, Q), (B, 1, C) → both readings (B, C, D)."""
        seen = self.to_context(question, context, visible=inside).context  # (B, Q, D)
        read = self.to_question(context, question, torch.cat((question, seen), dim=-1), visible=words).context
        fitting, back = read.chunk(2, dim=-1)  # (B, C, 2 D) -> (B, C, D), (B, C, D)
        return fitting, back


class BestFit(Attend):
    """One look over keys that are given with their scores in the place of a query's."""

    def __init__(self, size: int):
        super().__init__(Dot(size))

    def by_scores(self, scores: Tensor, value: Tensor, visible: Tensor) -> Tensor:
        weights = self.selection(scores, visible, scores, 0).weights
        record(self, weights)
        return weights @ value  # (B, 1, C) @ (B, C, D) -> (B, 1, D)


class MaxBack(nn.Module):
    """The paper's: softmax_t(max_j S_tj) over the context, once for all of its words."""

    def __init__(self, size: int):
        super().__init__()
        self.to_question = Attend(Trilinear(size))
        self.to_context = BestFit(size)

    def forward(self, question: Tensor, context: Tensor, words: Tensor, inside: Tensor) -> tuple[Tensor, Tensor]:
        score = self.to_question.score
        scores = score(context, score.prepare(question)).masked_fill(~words, -torch.inf)  # (B, C, Q)
        fitting = self.to_question(context, question, visible=words).context
        back = self.to_context.by_scores(scores.amax(-1)[:, None], context, inside)
        return fitting, back.expand_as(context)


class Bidaf(nn.Module):
    def __init__(self, config: Config, shapes: Shapes):
        super().__init__()
        size = config.hidden
        self.words = Words(config, shapes)
        self.reader = RecurrentEncoder(config.cell, size + 2, size, 1, 0.0)
        self.flow = WordsBack(size) if config.back == "words" else MaxBack(size)
        self.together = RecurrentEncoder(config.cell, 4 * size, size, config.layers, config.dropout)
        self.ending = RecurrentEncoder(config.cell, size, size, 1, 0.0)
        self.start, self.end = nn.Linear(5 * size, 1), nn.Linear(5 * size, 1)
        self.no_answer = nn.Linear(size, 2)
        self.dropout = Dropout(config.dropout)

    def stack(self) -> list[nn.Module]:
        """The parts from the words up to the head, for learning rates that fall from part to part."""
        between = nn.ModuleList([self.reader, self.flow, self.together, self.ending])
        return [self.words, between, nn.ModuleList(self.output_layers())]

    def output_layers(self) -> list[nn.Module]:
        return [self.start, self.end, self.no_answer]

    def forward(self, batch: QuestionBatch) -> tuple[Tensor, Tensor]:
        """Logits of the first and the last word of the answer, (B, 1 + C) each; position 0 is "no answer"."""
        words, inside = (
            padding(batch.question_lengths, batch.question.shape[1]),  # (B, 1, Q)
            padding(batch.context_lengths, batch.context.shape[1]),  # (B, 1, C)
        )
        vectors = self.words(batch.forms, batch.letters)
        question = self._read(vectors[batch.question], batch.question_shared, batch.question_lengths)
        context = self._read(vectors[batch.context], batch.context_shared, batch.context_lengths)
        fitting, back = self.flow(question, context, words, inside)
        flow = self.dropout(torch.cat((context, fitting, context * fitting, context * back), dim=-1))  # (B, C, 4 D)
        together, _ = self.together(flow, batch.context_lengths)
        ending, _ = self.ending(self.dropout(together), batch.context_lengths)
        start = self.start(self.dropout(torch.cat((flow, together), dim=-1))).squeeze(-1)  # (B, C)
        end = self.end(self.dropout(torch.cat((flow, ending), dim=-1))).squeeze(-1)
        hidden = ~inside[:, 0]
        nothing = self.no_answer(together.masked_fill(hidden[..., None], -torch.inf).amax(1))  # (B, 2)
        return (
            torch.cat((nothing[:, :1], start.masked_fill(hidden, -torch.inf)), dim=1),
            torch.cat((nothing[:, 1:], end.masked_fill(hidden, -torch.inf)), dim=1),
        )

    def _read(self, vectors: Tensor, shared: Tensor, lengths: Tensor) -> Tensor:
        read, _ = self.reader(self.dropout(torch.cat((vectors, shared), dim=-1)), lengths)
        return self.dropout(read)

    def attention_axes(self, name: str, axes: Mapping[str, Axis]) -> tuple[Axis, Axis]:
        if name.endswith("to_question"):
            return axes["context"], axes["question"]
        return (Tokens(("the question",)) if isinstance(self.flow, MaxBack) else axes["question"]), axes["context"]


def build(config: Config, shapes: Shapes) -> Bidaf:
    return Bidaf(config, shapes)
