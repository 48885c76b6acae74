"""Windows of a long row of tokens: what is read, what comes next, and where one document ends within them.

Axis legend: B windows, N tokens of each.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from saccade.attention import Packing

Array = np.ndarray[Any, np.dtype[Any]]
SCORED_AT_ONCE = 4096  # tokens


@dataclass(frozen=True)
class Windows:
    """Tokens (B, N) and the one after each. `documents` are the lengths of the parts that belong together, where a window has several: of
    all windows one after the other, (1, B · N)."""

    tokens: Tensor
    following: Tensor
    documents: Packing | None = None

    def to(self, device: torch.device) -> "Windows":
        documents = None if self.documents is None else Packing(self.documents.lengths.to(device))
        return Windows(self.tokens.to(device), self.following.to(device), documents)


def windows(stream: Array, starts: Array, context: int, begin: int) -> Windows:
    """The windows that begin at these places. The token `begin` begins a document."""
    places = starts[:, None] + np.arange(context + 1)
    rows = torch.from_numpy(stream[places].astype(np.int64))  # (B, N + 1)
    tokens, following = rows[:, :-1].contiguous(), rows[:, 1:].contiguous()
    begins = tokens == begin
    begins[:, 0] = True
    if int(begins.sum()) == len(begins):
        return Windows(tokens, following)
    return Windows(tokens, following, Packing(_lengths(begins.flatten())))


def _lengths(begins: Tensor) -> Tensor:
    first = begins.nonzero().squeeze(1)
    return torch.diff(first, append=first.new_tensor([len(begins)]))


class WindowBatches:
    """All windows of a row in every epoch, once each, in another order and cut at other places each time."""

    def __init__(self, length: int, context: int, batch_size: int, seed: int, shard: tuple[int, int] = (0, 1)):
        self._length, self._context, self._batch_size, self._seed = length, context, batch_size, seed
        self._rank, self._world = shard

    def epoch(self, number: int) -> list[Array]:
        """This process's windows of each batch, as the places where they begin."""
        generator = np.random.default_rng([self._seed, number])
        spare = self._length - 1  # the last token is only predicted
        first = int(generator.integers(min(self._context, spare - self._context + 1)))
        count = (spare - first) // self._context
        starts = first + self._context * generator.permutation(count)
        batches = [starts[at : at + self._batch_size] for at in range(0, count, self._batch_size)]
        return [batch[self._rank :: self._world] for batch in batches]


def consecutive(stream: Array, context: int, begin: int) -> Iterator[Windows]:
    """The whole row in windows that do not overlap, some at a time; the last one may be shorter."""
    whole = (len(stream) - 1) // context
    at_once = max(1, SCORED_AT_ONCE // context)
    for first in range(0, whole, at_once):
        yield windows(stream, context * np.arange(first, min(first + at_once, whole)), context, begin)
    rest = len(stream) - 1 - whole * context
    if rest:
        yield windows(stream, np.array([whole * context]), rest, begin)
