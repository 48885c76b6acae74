"""Greedy search: the most probable token at every step."""

from typing import Any

from torch import Tensor

from saccade.decoding.constraints import Constraints, Prefix
from saccade.decoding.hypothesis import Hypothesis
from saccade.decoding.largest import largest
from saccade.decoding.stepper import State, Stepper
from saccade.decoding.walk import walk


def greedy_search(
    stepper: Stepper[State],
    memory: Any,
    begin: Tensor,
    *,
    eos: int,
    pad: int,
    max_length: Tensor | int,
    prefix: Prefix | None = None,
) -> list[Hypothesis]:
    """One hypothesis per sentence, in the order of the sentences.

    `begin` (B,) is the token each sentence starts from; it gives the number of sentences and the device.
    `max_length` is the most tokens an output may have, eos included, for all or per sentence (B,).
    """

    def choose(log_probs: Tensor, rows: Tensor, position: int) -> Tensor:
        return most_probable(log_probs, pad)

    return walk(stepper, memory, begin, choose, Constraints.of(begin, eos, pad, max_length, prefix))


def most_probable(log_probs: Tensor, pad: int) -> Tensor:
    """The best token of each row (N, V) -> (N,); pad is never written."""
    _, token = largest(log_probs, 2)
    return token[:, 0].where(token[:, 0] != pad, token[:, 1])
