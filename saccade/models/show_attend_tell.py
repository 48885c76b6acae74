"""Show, Attend and Tell (Xu 2015): an LSTM that looks at the image anew for every word.

    e_ti = vᵀ tanh(W h_{t-1} + U a_i)                 α_t = softmax(e_t)
    z_t  = β_t ∘ Σ_i α_ti a_i (soft), or β_t ∘ a_i with i ~ α_t (hard);      β_t = σ(W_β h_{t-1})
    h_t, c_t = LSTM([E y_{t-1}; z_t], h_{t-1}, c_{t-1})
    r_t  = tanh(E y_{t-1} + L_h h_t + L_z z_t)        word_t ~ softmax(L_o r_t)

The paper's β_t is one number a step; here it is one for each feature. Beside the words the model minimises, for each caption of T words,

    evenness · T · mean_i (1 - Σ_t α_ti)²             no part of the image is forgotten ("doubly stochastic")
    - entropy · Σ_t H(α_t)                            hard only: sampling goes on trying

so that after division by the words the first is a mean over captions and cells. Hard attention learns where to look by REINFORCE, whose
baseline, a moving mean of the words' loss, is kept with the model's weights; for half of the batches it takes the soft weights instead
of a sample; and it looks at the likeliest cell when it predicts.

Axis legend: B batch, K cells, T words, D features, E embedding size.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from saccade.attention import Attend, Hard, Memory, Perceptron, Selection, Soft
from saccade.attention.recording import is_watched, record
from saccade.data.image_shape import ImageShape
from saccade.layers.captioner import Encoded, Reading
from saccade.models import show_tell
from saccade.models.shapes import Shapes
from saccade.models.show_tell import ShowTell, Teller

_SOFT_SHARE = 0.5  # of the batches of hard attention


class Config(show_tell.Config):
    serves: ClassVar[tuple[str, ...]] = ("captioner",)

    selection: Literal["soft", "hard"] = "soft"
    attention: int = Field(256, ge=1, description="size of the hidden layer that scores a cell")
    evenness: float = Field(1.0, ge=0, description="weight of the term by which every cell is looked at in the end")
    entropy: float = Field(0.002, ge=0, description="hard attention: weight of the term that keeps sampling open")


class Look(NamedTuple):
    context: Tensor  # (B, D)
    scores: Tensor  # (B, K)
    log_prob: Tensor  # (B,), or a single 0


class Gaze(Attend):
    """Attention of one query a row, whose scores come out as well: the objective is about all of α, not only what was taken."""

    def look(self, query: Tensor, memory: Memory, selection: Selection) -> Look:
        scores = memory.scores(self.score, query[:, None])  # (B, 1, K)
        weights, log_prob = selection(scores, None, query[:, None])
        if is_watched(self):
            record(self, weights)
        context = memory.sum(weights).squeeze(1)  # (B, 1, K) @ (B, K, D) -> (B, D)
        return Look(context, scores.squeeze(1), log_prob.squeeze(-1) if log_prob.dim() else log_prob)


@dataclass(frozen=True)
class State(show_tell.State):
    memory: Memory

    def rows(self, index: Tensor) -> "State":
        return replace(self, cells=self.cells[index], memory=self.memory.rows(index))


class SoftTeller(Teller):
    """Sees the mean of all cells, weighted."""

    def __init__(self, config: Config, size: int, selection: Selection):
        super().__init__(config.embedding, config.hidden, size, config.dropout, more=size)
        self.attention = Gaze(Perceptron(config.hidden, size, hidden=config.attention), selection)
        self.gate = nn.Linear(config.hidden, size)
        self.from_context = nn.Linear(size, config.embedding, bias=False)
        self.evenness = config.evenness

    def start(self, encoded: Encoded) -> State:
        return State(super().start(encoded).cells, self.attention.remember(encoded.annotations))

    def unroll(self, embedded: Tensor, state: show_tell.State) -> Reading:
        assert isinstance(state, State)
        selection = self._selection()
        memory, cell = state.memory.over_steps(), self.cell.over_steps()
        more_gates = self.cell.more_gates(self.attention.score.key_size)
        cells, tops, contexts, scores, log_probs = state.cells, [], [], [], []
        for gates in self.cell.gates(embedded).unbind(1):
            context, score, log_prob = self._look(cells, memory, selection)
            cells = cell(gates + more_gates(context), cells)
            tops.append(self.cell.output(cells))
            contexts.append(context)
            scores.append(score)
            log_probs.append(log_prob)
        readouts = self._read_all(embedded, torch.stack(tops, 1), torch.stack(contexts, 1))
        sampled = torch.stack(log_probs, 1) if log_probs[0].dim() else log_probs[0]
        return Reading(readouts, sampled, self._penalty(torch.stack(scores, 1).log_softmax(-1)))

    def step(self, embedded: Tensor, state: show_tell.State) -> tuple[Tensor, State]:
        assert isinstance(state, State)
        context, _, _ = self._look(state.cells, state.memory, self.attention.selection)
        more_gates = self.cell.more_gates(context.shape[-1])
        cells = self.cell(self.cell.gates(embedded) + more_gates(context), state.cells)
        return self._read_all(embedded, self.cell.output(cells), context), replace(state, cells=cells)

    def _look(self, cells: Tensor, memory: Memory, selection: Selection) -> Look:
        query = self.cell.output(cells)
        look = self.attention.look(query, memory, selection)
        return look._replace(context=torch.sigmoid(self.gate(query)) * look.context)

    def _read_all(self, embedded: Tensor, top: Tensor, context: Tensor) -> Tensor:
        return self._read(embedded + self.from_context(context), top)

    def _selection(self) -> Selection:
        """What picks the cells of a whole batch."""
        return self.attention.selection

    def _penalty(self, log_weights: Tensor) -> Tensor:
        """Of log α (B, T, K), summed over captions."""
        missed = (1 - log_weights.exp().sum(1)).square().mean(-1)  # (B, T, K) -> (B,)
        return self.evenness * log_weights.shape[1] * missed.sum()


class HardTeller(SoftTeller):
    """Sees one cell, sampled."""

    def __init__(self, config: Config, size: int, selection: Selection):
        super().__init__(config, size, selection)
        self.entropy = config.entropy

    def _selection(self) -> Selection:
        soft = self.training and float(torch.rand(())) < _SOFT_SHARE
        return Soft() if soft else self.attention.selection

    def _penalty(self, log_weights: Tensor) -> Tensor:
        entropy = -(log_weights.exp() * log_weights).sum()
        return super()._penalty(log_weights) - self.entropy * entropy


class ShowAttendTell(ShowTell):
    """Soft attention: everything is learned by its gradient."""

    def teller(self, config: show_tell.Config) -> Teller:
        assert isinstance(config, Config)
        return SoftTeller(config, self.encoder.size, Soft())


class ShowAttendTellHard(ShowTell):
    """Hard attention. `baseline` is what the loss of a word is compared with: at first that of guessing."""

    def __init__(self, config: Config, image: ImageShape, words: int):
        super().__init__(config, image, words)
        self.baseline: Tensor
        self.register_buffer("baseline", torch.tensor(math.log(words)))

    def teller(self, config: show_tell.Config) -> Teller:
        assert isinstance(config, Config)
        return HardTeller(config, self.encoder.size, Hard())


def build(config: Config, shapes: Shapes) -> ShowTell:
    return (ShowAttendTell if config.selection == "soft" else ShowAttendTellHard)(
        config, shapes.require_image(), shapes.target_words
    )
