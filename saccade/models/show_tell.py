"""A caption from one look: an LSTM that starts from the whole image and never sees it again (Vinyals 2015; the lectures' CNN + RNN).

    h_0, c_0 = MLP(mean of the annotations)
    h_t, c_t = LSTM(E y_{t-1}, h_{t-1}, c_{t-1})
    r_t      = tanh(E y_{t-1} + L_h h_t)
    word_t   ~ softmax(L_o r_t)

What does not depend on the state (the gates' share of the words, the readout) is computed for all steps at once.

Axis legend: B batch, K cells, T words, D features, E embedding size.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from saccade.config.recipe import Config as BaseConfig
from saccade.data.image_shape import ImageShape
from saccade.layers.captioner import Captioner, Encoded, Reading
from saccade.layers.dropout import Dropout
from saccade.layers.image_encoders import EncoderConfig
from saccade.layers.recurrent import LSTMCell
from saccade.models.shapes import Shapes
from saccade.views.axes import Axis


class Config(BaseConfig):
    serves: ClassVar[tuple[str, ...]] = ("captioner",)

    encoder: EncoderConfig = Field(EncoderConfig.model_validate({}), description="what turns an image into cells")
    embedding: int = Field(256, ge=1)
    hidden: int = Field(512, ge=1)
    dropout: float = Field(0.5, ge=0, lt=1)
    tied: bool = Field(True, description="the output layer shares its weights with the words' embedding")


@dataclass(frozen=True)
class State:
    """Where decoding stands. The hypotheses are the first axis."""

    cells: Tensor  # (B, 2 · hidden): h and c

    def rows(self, index: Tensor) -> "State":
        return replace(self, cells=self.cells[index])


class Teller(nn.Module):
    """The LSTM and the way into and out of it."""

    def __init__(self, embedding: int, hidden: int, size: int, dropout: float, more: int = 0):
        """`size` is that of an annotation; `more` features come into the cell beside the word."""
        super().__init__()
        self.begin = nn.Sequential(
            nn.Linear(size, hidden), nn.ReLU(), nn.Linear(hidden, LSTMCell.states * hidden), nn.Tanh()
        )
        self.cell = LSTMCell(embedding + more, hidden)
        self.from_state = nn.Linear(hidden, embedding)
        self.dropout = Dropout(dropout)

    def start(self, encoded: Encoded) -> State:
        return State(self.begin(encoded.annotations.mean(1)))

    def unroll(self, embedded: Tensor, state: State) -> Reading:
        """All steps with the true words (B, T, E)."""
        cell, cells, tops = self.cell.over_steps(), state.cells, []
        for gates in self.cell.gates(embedded).unbind(1):
            cells = cell(gates, cells)
            tops.append(self.cell.output(cells))
        nothing = cells.new_zeros(())
        return Reading(self._read(embedded, torch.stack(tops, 1)), nothing, nothing)

    def step(self, embedded: Tensor, state: State) -> tuple[Tensor, State]:
        """One step with a word (B, E): its readout (B, E) and the state after it."""
        cells = self.cell(self.cell.gates(embedded), state.cells)
        return self._read(embedded, self.cell.output(cells)), replace(state, cells=cells)

    def _read(self, embedded: Tensor, top: Tensor) -> Tensor:
        return torch.tanh(embedded + self.from_state(self.dropout(top)))


class ShowTell(Captioner):
    """Encoder, decoder and words. It is a Stepper: `start`, `step`, `select`."""

    def __init__(self, config: Config, image: ImageShape, words: int):
        super().__init__(config.encoder, image, config.embedding, words, config.dropout, config.tied)
        self.decoder = self.teller(config)

    def teller(self, config: Config) -> Teller:
        return Teller(config.embedding, config.hidden, self.encoder.size, config.dropout)

    def read(self, encoded: Encoded, target: Tensor) -> Reading:
        """What follows the words given so far (B, T)."""
        reading = self.decoder.unroll(self.target_embedding(target), self.decoder.start(encoded))
        return reading._replace(readouts=self.dropout(reading.readouts))

    def attention_axes(self, name: str, axes: Mapping[str, Axis]) -> tuple[Axis, Axis]:
        """An encoder that attends looks from cell to cell, the decoder from the word being written at the cells."""
        return (axes["cells"] if name.startswith("encoder.") else axes["target"]), axes["cells"]

    def start(self, memory: Encoded) -> State:
        return self.decoder.start(memory)

    def step(self, token: Tensor, state: State) -> tuple[Tensor, State]:
        readout, state = self.decoder.step(self.target_embedding(token), state)
        return self.word_logits(readout), state

    def select(self, state: State, rows: Tensor) -> State:
        return state.rows(rows)


def build(config: Config, shapes: Shapes) -> ShowTell:
    return ShowTell(config, shapes.require_image(), shapes.target_words)
