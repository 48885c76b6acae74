"""The protocol of a decoder that can be searched: one step at a time, over rows that can be selected, reordered and repeated.

    state = start(memory)                 one row per source sentence
    logits, state = step(token, state)    the scores of the next token, given the last one
    state = select(state, rows)           row i of the new state is row rows[i] of the old one

A recurrent decoder (its state is h and c) and a Transformer decoder (its state is the cached keys and values) are both
one. The state belongs to the decoder; a search only passes it on.

Axes, in this whole package: B sentences, N rows (hypotheses that are stepped together), V vocabulary, S source positions.
"""

from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from saccade.errors import Diverged

State = TypeVar("State")

LEAST_LOG_PROB = -1e4
"""The log-probability of a forced token of probability 0: finite, so that sums stay usable."""


class Stepper(Protocol[State]):
    """A decoder, one step at a time. No row's logits may depend on the other rows."""

    def start(self, memory: Any) -> State:
        """The state before the first token, one row per sentence of `memory`."""
        ...

    def step(self, token: Tensor, state: State) -> tuple[Tensor, State]:
        """Read `token` (N,) and return the logits (N, V) of the token after it, and the state after reading."""
        ...

    def select(self, state: State, rows: Tensor) -> State:
        """The state of `rows` (M,), which may leave rows out, repeat them, and put them in another order."""
        ...


@runtime_checkable
class TracksCoverage(Protocol):
    """A stepper whose state sums the attention that each source position got; the coverage penalty needs it."""

    def coverage(self, state: Any) -> Tensor:
        """Attention per source position (N, S), summed over the steps so far; 1 or more where the source is padding."""
        ...


def select_rows(stepper: Stepper[State], state: State, rows: Tensor, count: int, device: torch.device) -> State:
    """`stepper.select` from `count` rows, at no cost when every row stays in place."""
    if len(rows) == count and torch.equal(rows, torch.arange(count)):
        return state
    return stepper.select(state, rows.to(device))


def log_probs_of(logits: Tensor) -> Tensor:
    """In single precision at least, whatever the model computes in; one NaN makes its whole row NaN."""
    log_probs = logits.float().log_softmax(1)
    if log_probs[:, 0].isnan().any():
        raise Diverged("the model's outputs are NaN: its training diverged; use an earlier checkpoint")
    return log_probs


def chosen_log_prob(log_probs: Tensor, token: Tensor) -> Tensor:
    """The log-probability (N,) of one token a row, out of (N, V)."""
    return log_probs.gather(1, token.unsqueeze(1)).squeeze(1).clamp(min=LEAST_LOG_PROB)
