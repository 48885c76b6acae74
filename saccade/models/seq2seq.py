"""The recurrent encoder-decoder (Sutskever 2014) with attention in both published orders, or without.

Bahdanau 2014: attend, then step.            Luong 2015: step, then attend.
    c_t = attend(h_{t-1}, annotations)           h_t = cell([y_{t-1}; r_{t-1}], h_{t-1})     (r only with input feeding)
    h_t = cell([y_{t-1}; c_t], h_{t-1})          c_t = attend(h_t, annotations)
    r_t = tanh(W [h_t; c_t; y_{t-1}])            r_t = tanh(W [c_t; h_t])
    word_t ~ softmax(V r_t)                      word_t ~ softmax(V r_t)

`attention: none` is Bahdanau's decoder with c_t = the encoder's last state at every step: one vector for the whole sentence (Cho 2014).
With `copies` a word may also be copied from the source (layers/pointer.py).

What does not depend on the state (the gates' share of the words, the readout, the scores' prepared keys) is computed for all steps at once.

Axis legend: B batch, S source length, T target length, D features, E embedding size.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from saccade.attention import (
    Attend,
    Memory,
    Selection,
    all_scores,
    all_selections,
    padding,
)
from saccade.config.recipe import Config as BaseConfig
from saccade.errors import ConfigError
from saccade.layers.choices import AttentionName, SelectionName
from saccade.layers.dropout import Dropout
from saccade.layers.pointer import PointerOutput
from saccade.layers.recurrent import CELLS, Cell, CellName, CellOverSteps, RecurrentEncoder
from saccade.models.shapes import Shapes
from saccade.views.axes import Axis


class Config(BaseConfig):
    serves: ClassVar[tuple[str, ...]] = ("sequence-to-sequence",)

    cell: CellName = "gru"
    attention: AttentionName = "additive"
    selection: SelectionName = "soft"
    order: Literal["bahdanau", "luong"] = "bahdanau"
    input_feeding: bool = Field(True, description="Luong's order only: the last readout is part of the next input")
    embedding: int = Field(256, ge=1)
    hidden: int = Field(256, ge=2, multiple_of=2)
    layers: int = Field(1, ge=1, le=8)
    dropout: float = Field(0.2, ge=0, lt=1)
    reach: int = Field(10, ge=1, description="local selections: positions on each side of the centre")
    max_length: int = Field(256, ge=1, description="location score: longest source")
    tied: bool = Field(True, description="the output layer shares its weights with the target embedding")
    copies: bool = Field(
        False, description="words may be copied from where the source was looked at (pointer-generator)"
    )

    @model_validator(mode="after")
    def _nothing_is_idle(self) -> "Config":
        if self.attention == "none":
            self._refuse_unused("models with attention and there is none", "selection", "order")
        if self.order != "luong":
            self._refuse_unused("order=luong", "input_feeding")
        if not self.selection.startswith("local"):
            self._refuse_unused("selection=local-m or local-p", "reach")
        if self.attention != "location":
            self._refuse_unused("attention=location", "max_length")
        if self.copies and (self.order != "bahdanau" or self.selection != "soft" or self.attention == "none"):
            raise ValueError("copies = true needs soft attention in order=bahdanau: it copies from where that looks")
        return self


Stack = Sequence[Cell | CellOverSteps]


@dataclass(frozen=True)
class Encoded:
    """A batch of sources, read."""

    annotations: Tensor  # (B, S, D)
    last: Tensor  # (B, D)
    visible: Tensor  # (B, 1, S)
    source: Tensor  # (B, S) tokens


@dataclass(frozen=True)
class State:
    """Where decoding stands. Every tensor has the hypotheses as its first axis."""

    cells: tuple[Tensor, ...]  # per layer (B, D)
    readout: Tensor  # (B, E), the last one
    memory: Memory
    visible: Tensor
    source: Tensor
    position: int = 0

    def rows(self, index: Tensor) -> "State":
        return replace(
            self,
            cells=tuple(cell[index] for cell in self.cells),
            readout=self.readout[index],
            memory=self.memory.rows(index),
            visible=self.visible[index],
            source=self.source[index],
        )


class Decoder(nn.Module):
    """What all orders share: the stack of cells, the readout, and a memory to look at."""

    def __init__(self, config: Config, extra_input: int, readout_size: int):
        super().__init__()
        sizes = [config.embedding + extra_input, *[config.hidden] * (config.layers - 1)]
        self.cells = nn.ModuleList(CELLS[config.cell](size, config.hidden) for size in sizes)
        self.bridge = nn.Linear(config.hidden, config.hidden)
        self.readout = nn.Linear(readout_size, config.embedding)
        self.dropout = Dropout(config.dropout)
        self.embedding = config.embedding
        self.size = config.hidden

    def start(self, encoded: Encoded) -> State:
        h = torch.tanh(self.bridge(encoded.last))
        cells = tuple(_cell(cell).start(h) for cell in self.cells)
        return State(
            cells, h.new_zeros(len(h), self.embedding), self._remember(encoded), encoded.visible, encoded.source
        )

    def unroll(self, embedded: Tensor, state: State) -> tuple[Tensor, Tensor]:
        """All steps with the true words (B, T, E): readouts (B, T, E) and the log-probability of what attention sampled (B, T) or 0."""
        raise NotImplementedError

    def step(self, embedded: Tensor, state: State) -> tuple[Tensor, State]:
        """One step with a word (B, E): its readout (B, E) and the state after it."""
        raise NotImplementedError

    def _remember(self, encoded: Encoded) -> Memory:
        raise NotImplementedError

    def _look(self, query: Tensor, state: State) -> tuple[Tensor, Tensor]:
        """One query per row (B, D) → context (B, D) and log-probability (B,) or 0."""
        raise NotImplementedError

    def _stack(self) -> Stack:
        return [_cell(cell) for cell in self.cells]

    def _stack_over_steps(self) -> Stack:
        return [_cell(cell).over_steps() for cell in self.cells]

    def _advance(self, stack: Stack, gates: Tensor, cells: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """One step of the stack, given the first cell's gates."""
        after: list[Tensor] = []
        for cell, state in zip(stack, cells, strict=True):
            if after:
                gates = cell.gates(self.dropout(cell.output(after[-1])))
            after.append(cell(gates, state))
        return tuple(after)

    def _top(self, cells: tuple[Tensor, ...]) -> Tensor:
        return _cell(self.cells[-1]).output(cells[-1])


class FixedContext(Decoder):
    """No attention: the context of every step is the encoder's last state."""

    def __init__(self, config: Config):
        super().__init__(config, extra_input=config.hidden, readout_size=2 * config.hidden + config.embedding)

    def _remember(self, encoded: Encoded) -> Memory:
        return Memory(encoded.last[:, None], encoded.last[:, None])

    def _look(self, query: Tensor, state: State) -> tuple[Tensor, Tensor]:
        return state.memory.value.squeeze(1), query.new_zeros(())

    def unroll(self, embedded: Tensor, state: State) -> tuple[Tensor, Tensor]:
        first = _cell(self.cells[0])
        stack, more_gates = self._stack_over_steps(), first.more_gates(first.size)
        state = replace(state, memory=state.memory.over_steps())
        tops, contexts, log_probs = [], [], []
        for gates in first.gates(embedded).unbind(1):
            context, log_prob = self._look(self._top(state.cells), state)
            cells = self._advance(stack, gates + more_gates(context[..., : self.size]), state.cells)
            state = replace(state, cells=cells, position=state.position + 1)
            tops.append(self._top(cells))
            contexts.append(context)
            log_probs.append(log_prob)
        return self._read(torch.stack(tops, 1), torch.stack(contexts, 1), embedded), _over_time(log_probs)

    def step(self, embedded: Tensor, state: State) -> tuple[Tensor, State]:
        first = _cell(self.cells[0])
        context, _ = self._look(self._top(state.cells), state)
        gates = first.gates(embedded) + first.more_gates(first.size)(context[..., : self.size])
        cells = self._advance(self._stack(), gates, state.cells)
        readout = self._read(self._top(cells), context, embedded)
        return readout, replace(state, cells=cells, readout=readout, position=state.position + 1)

    def _read(self, top: Tensor, context: Tensor, embedded: Tensor) -> Tensor:
        return torch.tanh(self.readout(self.dropout(torch.cat((top, context, embedded), dim=-1))))


class AttendThenStep(FixedContext):
    """Bahdanau's order: the same decoder with a context of its own for every step."""

    def __init__(self, config: Config):
        super().__init__(config)
        self.attention = attention(config)

    def _remember(self, encoded: Encoded) -> Memory:
        return self.attention.remember(encoded.annotations)

    def _look(self, query: Tensor, state: State) -> tuple[Tensor, Tensor]:
        return _look_once(self.attention, query, state)


class AttendAndCopy(AttendThenStep):
    """Bahdanau's order, whose readouts also say where the source was looked at and whether to copy from there (layers/pointer.py)."""

    def __init__(self, config: Config):
        super().__init__(config)
        self.gate = nn.Linear(2 * config.hidden + config.embedding, 1)

    def _remember(self, encoded: Encoded) -> Memory:
        """A source position's value is followed by its place, one of S: the mean of places is the weights themselves."""
        rows, length = encoded.source.shape
        places = torch.eye(length, device=encoded.source.device).expand(rows, -1, -1).to(encoded.annotations.dtype)
        return self.attention.remember(encoded.annotations, torch.cat((encoded.annotations, places), dim=-1))

    def _read(self, top: Tensor, context: Tensor, embedded: Tensor) -> Tensor:
        context, weights = context[..., : self.size], context[..., self.size :]
        gate = self.gate(torch.cat((context, top, embedded), dim=-1))
        return torch.cat((super()._read(top, context, embedded), gate, weights), dim=-1)


class StepThenAttend(Decoder):
    """Luong's order without input feeding: attention waits for nothing, so all steps attend at once."""

    def __init__(self, config: Config, extra_input: int = 0):
        super().__init__(config, extra_input=extra_input, readout_size=2 * config.hidden)
        self.attention = attention(config)

    def _remember(self, encoded: Encoded) -> Memory:
        return self.attention.remember(encoded.annotations)

    def _look(self, query: Tensor, state: State) -> tuple[Tensor, Tensor]:
        return _look_once(self.attention, query, state)

    def unroll(self, embedded: Tensor, state: State) -> tuple[Tensor, Tensor]:
        stack, tops, cells = self._stack_over_steps(), [], state.cells
        for gates in _cell(self.cells[0]).gates(embedded).unbind(1):
            cells = self._advance(stack, gates, cells)
            tops.append(self._top(cells))
        top = torch.stack(tops, 1)
        attended = self.attention.recall(top, state.memory, visible=state.visible)
        return self._read(attended.context, top), attended.log_prob

    def step(self, embedded: Tensor, state: State) -> tuple[Tensor, State]:
        readout, _, state = self._step(self._stack(), _cell(self.cells[0]).gates(embedded), state)
        return readout, state

    def _step(self, stack: Stack, gates: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
        cells = self._advance(stack, gates, state.cells)
        context, log_prob = self._look(self._top(cells), state)
        readout = self._read(context, self._top(cells))
        return readout, log_prob, replace(state, cells=cells, readout=readout, position=state.position + 1)

    def _read(self, context: Tensor, top: Tensor) -> Tensor:
        return torch.tanh(self.readout(self.dropout(torch.cat((context, top), dim=-1))))


class StepThenAttendFeeding(StepThenAttend):
    """Luong's order with input feeding: the cell also gets the last readout."""

    def __init__(self, config: Config):
        super().__init__(config, extra_input=config.embedding)

    def unroll(self, embedded: Tensor, state: State) -> tuple[Tensor, Tensor]:
        first = _cell(self.cells[0])
        stack, more_gates = self._stack_over_steps(), first.more_gates(self.embedding)
        state = replace(state, memory=state.memory.over_steps())
        readouts, log_probs = [], []
        for gates in first.gates(embedded).unbind(1):
            readout, log_prob, state = self._step(stack, gates + more_gates(state.readout), state)
            readouts.append(readout)
            log_probs.append(log_prob)
        return torch.stack(readouts, 1), _over_time(log_probs)

    def step(self, embedded: Tensor, state: State) -> tuple[Tensor, State]:
        first = _cell(self.cells[0])
        gates = first.gates(embedded) + first.more_gates(self.embedding)(state.readout)
        readout, _, state = self._step(self._stack(), gates, state)
        return readout, state


class Seq2Seq(nn.Module):
    """Encoder, decoder and words. It is a Stepper: `start`, `step`, `select`."""

    def __init__(self, config: Config, source_words: int, target_words: int):
        super().__init__()
        self.source_embedding = nn.Embedding(source_words, config.embedding, padding_idx=0)
        self.target_embedding = nn.Embedding(target_words, config.embedding, padding_idx=0)
        self.encoder = RecurrentEncoder(config.cell, config.embedding, config.hidden, config.layers, config.dropout)
        self.decoder = decoder(config)
        self.output = nn.Linear(config.embedding, target_words)
        self.dropout = Dropout(config.dropout)
        for embedding in (self.source_embedding, self.target_embedding):
            nn.init.normal_(embedding.weight, std=config.embedding**-0.5)
        if config.tied:
            self.output.weight = self.target_embedding.weight

    def encode(self, source: Tensor, lengths: Tensor) -> Encoded:
        annotations, last = self.encoder(self.dropout(self.source_embedding(source)), lengths)
        return Encoded(self.dropout(annotations), last, padding(lengths, source.shape[1]), source)

    def read(self, encoded: Encoded, target: Tensor) -> tuple[Tensor, Tensor]:
        """Readouts (B, T, E) for the words given so far, before the output layer, and attention's log-probability."""
        embedded = self.dropout(self.target_embedding(target))
        readouts, log_prob = self.decoder.unroll(embedded, self.decoder.start(encoded))
        return self.dropout(readouts), log_prob

    def attention_axes(self, name: str, axes: Mapping[str, Axis]) -> tuple[Axis, Axis]:
        """The one attention is the decoder's, from the word being written to the source."""
        return axes["target"], axes["source"]

    def start(self, memory: Encoded) -> State:
        return self.decoder.start(memory)

    def step(self, token: Tensor, state: State) -> tuple[Tensor, State]:
        readout, state = self.decoder.step(self.target_embedding(token), state)
        return self.output(readout), state

    def select(self, state: State, rows: Tensor) -> State:
        return state.rows(rows)


class CopyingSeq2Seq(Seq2Seq):
    """The same, and its words may be copied from the source: `output` gives log-probabilities."""

    output: PointerOutput  # type: ignore[assignment]

    def __init__(self, config: Config, source_words: int, target_words: int):
        if source_words != target_words:
            raise ConfigError("model.copies needs one vocabulary for both sides: set data.joint to true")
        super().__init__(config, source_words, target_words)
        self.output = PointerOutput(config.embedding, target_words)
        if config.tied:
            self.output.write.weight = self.target_embedding.weight

    def output_layers(self) -> list[nn.Linear]:
        return [self.output.write]

    def read(self, encoded: Encoded, target: Tensor) -> tuple[Tensor, Tensor]:
        embedded = self.dropout(self.target_embedding(target))
        readouts, log_prob = self.decoder.unroll(embedded, self.decoder.start(encoded))
        words, pointing = readouts[..., : self.decoder.embedding], readouts[..., self.decoder.embedding :]
        return _with_source(torch.cat((self.dropout(words), pointing), dim=-1), encoded.source[:, None]), log_prob

    def step(self, token: Tensor, state: State) -> tuple[Tensor, State]:
        readout, state = self.decoder.step(self.target_embedding(token), state)
        return self.output(_with_source(readout, state.source)), state


def _with_source(readouts: Tensor, source: Tensor) -> Tensor:
    return torch.cat((readouts, source.expand(*readouts.shape[:-1], -1).to(readouts.dtype)), dim=-1)


def decoder(config: Config) -> Decoder:
    if config.copies:
        return AttendAndCopy(config)
    if config.attention == "none":
        return FixedContext(config)
    if config.order == "bahdanau":
        return AttendThenStep(config)
    return StepThenAttendFeeding(config) if config.input_feeding else StepThenAttend(config)


def attention(config: Config) -> Attend:
    kind = all_scores()[config.attention]
    options = {"longest": config.max_length} if config.attention == "location" else {}
    return Attend(kind(config.hidden, **options), selection(config))


def selection(config: Config) -> Selection:
    options: dict[str, dict[str, int]] = {
        "local-m": {"reach": config.reach},
        "local-p": {"query_size": config.hidden, "reach": config.reach},
    }
    return all_selections()[config.selection](**options.get(config.selection, {}))


def _look_once(attend: Attend, query: Tensor, state: State) -> tuple[Tensor, Tensor]:
    """One query per row (B, D) → context (B, D) and log-probability (B,) or 0."""
    attended = attend.recall(query[:, None], state.memory, visible=state.visible, first_query=state.position)
    log_prob = attended.log_prob.squeeze(-1) if attended.log_prob.dim() else attended.log_prob
    return attended.context.squeeze(1), log_prob


def _over_time(log_probs: list[Tensor]) -> Tensor:
    """(B,) per step → (B, T); a single 0 where nothing was sampled."""
    return torch.stack(log_probs, -1) if log_probs[0].dim() else log_probs[0]


def _cell(module: nn.Module) -> Cell:
    assert isinstance(module, Cell)
    return module


def build(config: Config, shapes: Shapes) -> Seq2Seq:
    kind = CopyingSeq2Seq if config.copies else Seq2Seq
    return kind(config, shapes.source_words, shapes.target_words)
