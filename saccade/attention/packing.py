"""Sequences packed one after the other into one row, instead of padded to a common length in rows of their own.

    padded   a b c ·        packed   a b c d e f g h i
             d e · ·
             f g h i

Everything but attention treats each position alone, so it can work on the row as it is. Attention has to know where sequences begin.

Axis legend: B sequences, N positions of all sequences together, L the longest, Q queries, K keys, D features.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from saccade.attention.visibility import padding


@dataclass(frozen=True, eq=False)
class Packing:
    """Where sequences of these lengths (B,) begin and end."""

    lengths: Tensor

    @cached_property
    def starts(self) -> Tensor:
        """(B + 1,) where each sequence begins, and the end."""
        return torch.cat((self.lengths.new_zeros(1), self.lengths.cumsum(0)))

    @cached_property
    def places(self) -> int:
        """N"""
        if self.lengths.numel() and int(self.lengths.min()) < 0:
            raise ValueError(f"the length of a sequence must be 0 or more; got {int(self.lengths.min())}")
        return int(self.starts[-1])

    @cached_property
    def longest(self) -> int:
        return int(self.lengths.max()) if len(self.lengths) else 0

    @cached_property
    def visible(self) -> Tensor:
        """(B, 1, L): what is not padding once they are padded."""
        return padding(self.lengths, self.longest)

    @cached_property
    def positions(self) -> Tensor:
        """(N,) positions within their own sequence."""
        return torch.arange(self.longest, device=self.lengths.device).expand(len(self.lengths), -1)[self.visible[:, 0]]

    @cached_property
    def _places(self) -> Tensor:
        """(N,) indices into the padded rows, B · L."""
        return self.visible.flatten().nonzero().squeeze(1)

    def pack(self, padded: Tensor) -> Tensor:
        """(B, ..., L, D) → (1, ..., N, D)"""
        rows = padded.movedim(-2, 1).flatten(0, 1).index_select(0, self._places)  # (N, ..., D)
        return rows.movedim(0, -2)[None]

    def pad(self, packed: Tensor) -> Tensor:
        """(1, ..., N, D) → (B, ..., L, D), with zeros for padding."""
        rows = packed.squeeze(0).movedim(-2, 0)  # (N, ..., D)
        padded = rows.new_zeros(len(self.lengths) * self.longest, *rows.shape[1:])
        padded = padded.index_copy(0, self._places, rows)
        return padded.unflatten(0, (len(self.lengths), self.longest)).movedim(1, -2)


@dataclass(frozen=True, eq=False)
class Packed:
    """Queries and keys of the same sequences: a query sees the keys of its own sequence."""

    queries: Packing
    keys: Packing

    def check(self, query: Tensor, key: Tensor) -> None:
        """That these are (1, ..., N, D)."""
        if len(self.queries.lengths) != len(self.keys.lengths):
            counts = f"{len(self.queries.lengths)} and {len(self.keys.lengths)}"
            raise ValueError(f"queries and keys must be of the same sequences; got {counts}")
        for packing, x, what in ((self.queries, query, "queries"), (self.keys, key, "keys")):
            if x.shape[0] != 1 or x.shape[-2] != packing.places:
                raise ValueError(
                    f"packed sequences form one row: {what} of {packing.places} positions must be (1, ..., {packing.places}, size); "
                    f"got {tuple(x.shape)}"
                )
