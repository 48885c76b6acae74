"""Batches of sentence pairs with little padding, the same after every restart and on any number of processes.

Examples are shuffled, cut into pools, sorted by length inside each pool and cut into batches; then the batches are shuffled. So a
batch has sentences of nearly equal length, and its composition changes from epoch to epoch.

    batches = TokenBatches(*pairs.lengths, tokens_per_batch=4096, seed=1)
    for indices in batches.epoch(3)[resume_at:]:
        batch = collate(pairs, indices)

Axis legend: B pairs of the batch, S longest source, T longest target, both with their end token.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from saccade.data.text.tokenizer import BOS, EOS, PAD

Array = np.ndarray[Any, np.dtype[Any]]


class TokenBatches:
    """The batches of any epoch, from the lengths (in tokens, without special ones) of the two sides alone.

    A batch counts the padded size of its larger side: rows × the longest source or target in it, the end token included. That is at
    most `tokens_per_batch`, except for a pair that is longer by itself: it forms a batch alone and is never dropped.

    `shard=(rank, world)` gives each of `world` processes every `world`-th row of every batch: together they see exactly the batches
    that one process would see, `tokens_per_batch` being the size of all slices together. A slice is empty when a batch has fewer rows
    than there are processes; the number of batches is the same everywhere.

    `pool` is the number of examples sorted at a time. With `shuffle=False` every epoch is the same, pools taken in the given order.
    """

    def __init__(
        self,
        lengths_source: Array,
        lengths_target: Array,
        tokens_per_batch: int,
        pool: int = 20_000,
        seed: int = 0,
        shuffle: bool = True,
        shard: tuple[int, int] = (0, 1),
    ):
        rank, world = shard
        if len(lengths_source) != len(lengths_target):
            raise ValueError(f"there are {len(lengths_source)} source lengths and {len(lengths_target)} target lengths")
        if pool < 1 or tokens_per_batch < 1 or not 0 <= rank < world:
            raise ValueError(
                f"pool {pool} and tokens_per_batch {tokens_per_batch} must be 1 or more, {shard} (rank, world)"
            )
        self._source = np.asarray(lengths_source, np.int64) + 1
        self._target = np.asarray(lengths_target, np.int64) + 1
        self._tokens_per_batch = tokens_per_batch
        self._pool = pool
        self._seed = seed
        self._shuffle = shuffle
        self._shard = shard

    def epoch(self, number: int) -> list[Array]:
        """This process's rows of each batch of an epoch, as indices. They depend on the arguments and `number` alone: the epoch and the
        number of the next batch are enough to resume exactly."""
        rank, world = self._shard
        return [batch[rank::world] for batch in self._global_batches(number)]

    def padding_share(self, number: int) -> float:
        """The share of padding among an epoch's source and target positions, over all processes."""
        useful = int(self._source.sum() + self._target.sum())
        padded = sum(
            len(batch) * int(self._source[batch].max() + self._target[batch].max())
            for batch in self._global_batches(number)
        )
        return 1 - useful / padded if padded else 0.0

    def _global_batches(self, number: int) -> list[Array]:
        count = len(self._source)
        generator = np.random.default_rng([self._seed, number])
        order = generator.permutation(count) if self._shuffle else np.arange(count)
        batches = [
            batch for start in range(0, count, self._pool) for batch in self._cut(order[start : start + self._pool])
        ]
        if self._shuffle:
            batches = [batches[index] for index in generator.permutation(len(batches))]
        return batches

    def _cut(self, pool: Array) -> Iterator[Array]:
        """Sorted by length, and then as many rows at a time as fit."""
        source, target = self._source[pool], self._target[pool]
        pool = pool[np.lexsort((target, source, np.maximum(source, target)))]
        longest = np.maximum(self._source[pool], self._target[pool])
        start = 0
        while start < len(pool):
            most = max(1, self._tokens_per_batch // longest[start])
            ahead = longest[start : start + most]
            rows = max(1, int(np.searchsorted(ahead * np.arange(1, len(ahead) + 1), self._tokens_per_batch, "right")))
            yield pool[start : start + rows]
            start += rows


@dataclass(frozen=True)
class PairBatch:
    """Padded with 0. The source ends with its end token; the target is shifted for teacher forcing."""

    source: Tensor  # (B, S) tokens, <eos>
    source_lengths: Tensor  # (B,) with <eos>
    target_in: Tensor  # (B, T) <bos>, tokens
    target_out: Tensor  # (B, T) tokens, <eos>
    target_lengths: Tensor  # (B,) with <eos>
    indices: Tensor  # (B,) of the pairs in the corpus

    def to(self, device: torch.device | str) -> "PairBatch":
        return PairBatch(**{field.name: getattr(self, field.name).to(device) for field in fields(self)})

    def twice(self) -> "PairBatch":
        """All pairs twice."""
        return PairBatch(**{field.name: torch.cat([getattr(self, field.name)] * 2) for field in fields(self)})


class _Pairs(Protocol):
    def __getitem__(self, index: int, /) -> tuple[Array, Array]: ...


def collate(pairs: _Pairs, indices: Array | Sequence[int]) -> PairBatch:
    """The pairs at these indices as one batch. No indices give a batch of no rows and one column."""
    chosen = [pairs[int(index)] for index in indices]
    sources, targets = [source for source, _ in chosen], [target for _, target in chosen]
    return PairBatch(
        source=_padded(sources, after=EOS),
        source_lengths=_lengths(sources),
        target_in=_padded(targets, before=BOS),
        target_out=_padded(targets, after=EOS),
        target_lengths=_lengths(targets),
        indices=torch.as_tensor(np.asarray(indices, np.int64)),
    )


def _padded(rows: list[Array], before: int | None = None, after: int | None = None) -> Tensor:
    shift = 0 if before is None else 1
    padded = np.full((len(rows), 1 + max(map(len, rows), default=0)), PAD, np.int64)
    for place, row in zip(padded, rows, strict=True):
        place[shift : shift + len(row)] = row
        if after is not None:
            place[len(row)] = after
    if before is not None:
        padded[:, 0] = before
    return torch.from_numpy(padded)


def _lengths(rows: list[Array]) -> Tensor:
    return torch.tensor([len(row) + 1 for row in rows], dtype=torch.int64)
