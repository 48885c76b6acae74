"""Toy decoders whose every probability stands in a table: rows are looked up, so no row can depend on another."""

import itertools
import math
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

POSITIONS = 3
SOURCES = 64


class TableState(NamedTuple):
    source: Tensor
    position: Tensor


class TableStepper:
    """logits = table[source, position mod 3, last token]; a sentence's memory is the number of its source."""

    pad, begin, eos = 0, 1, 2

    def __init__(self, seed: int = 0, vocabulary: int = 6, scale: float = 1.5) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.table = torch.randn(SOURCES, POSITIONS, vocabulary, vocabulary, generator=generator) * scale
        self.steps: list[int] = []  # how many rows each step had

    def start(self, memory: Tensor) -> TableState:
        return TableState(memory, torch.zeros_like(memory))

    def step(self, token: Tensor, state: TableState) -> tuple[Tensor, TableState]:
        self.steps.append(len(token))
        logits = self.table[state.source, state.position % POSITIONS, token]
        return logits, TableState(state.source, state.position + 1)

    def select(self, state: TableState, rows: Tensor) -> TableState:
        return TableState(*(part[rows] for part in state))

    def inputs(self, *sources: int) -> tuple["TableStepper", Tensor, Tensor]:
        """The stepper, the memory and the begin tokens for these sources, as every search takes them."""
        return self, torch.tensor(sources, dtype=torch.long), torch.full((len(sources),), self.begin)

    @property
    def special(self) -> dict[str, int]:
        return {"eos": self.eos, "pad": self.pad}

    def without_eos(self) -> "TableStepper":
        self.table[..., self.eos] = -torch.inf
        return self

    def only_eos(self, source: int) -> "TableStepper":
        self.table[source] = -torch.inf
        self.table[source, ..., self.eos] = 0
        return self

    def log_prob(self, source: int, position: int, last: int, token: int) -> float:
        """In plain Python, from the table."""
        row = self.table[source, position % POSITIONS, last].tolist()
        return row[token] - math.log(sum(math.exp(value) for value in row))

    def log_prob_of(self, source: int, written: tuple[int, ...]) -> float:
        """`written` as it was generated, eos included if it ended."""
        path = (self.begin, *written)
        return sum(self.log_prob(source, at, path[at], path[at + 1]) for at in range(len(written)))

    def everything(self, source: int, max_length: int) -> dict[tuple[int, ...], float]:
        """Every output of up to `max_length` tokens that has ended, and its log-probability."""
        others = [token for token in range(self.table.shape[-1]) if token not in (self.pad, self.eos)]
        outputs = {}
        for length in range(max_length):
            for tokens in itertools.product(others, repeat=length):
                outputs[tokens] = self.log_prob_of(source, (*tokens, self.eos))
        return outputs


class CoveringStepper(TableStepper):
    """Reading a token attends as `attention[token]` says (V, S); the third element of the state adds it up."""

    def __init__(self, table: Tensor, attention: Tensor) -> None:
        super().__init__(vocabulary=table.shape[-1])
        self.table = table.expand(SOURCES, POSITIONS, -1, -1)
        self.attention = attention

    def start(self, memory: Tensor):
        return super().start(memory), torch.zeros(len(memory), self.attention.shape[1])

    def step(self, token: Tensor, state):
        logits, inner = super().step(token, state[0])
        return logits, (inner, state[1] + self.attention[token])

    def select(self, state, rows: Tensor):
        return super().select(state[0], rows), state[1][rows]

    def coverage(self, state) -> Tensor:
        return state[1]


@pytest.fixture(scope="session")
def table_stepper() -> type[TableStepper]:
    return TableStepper


@pytest.fixture(scope="session")
def covering_stepper() -> type[CoveringStepper]:
    return CoveringStepper
