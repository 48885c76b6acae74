"""Sequences that stand one after the other in one row, instead of padded to a common length in rows of their own.

    padded   a b c ·        packed   a b c d e f g h i
             d e · ·
             f g h i

Everything but attention looks at each place alone, so it can work on the row as it is. Attention has to know where sequences begin.

Axis legend: B sequences, N places of all sequences together, L the longest, Q queries, K keys, D features.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from saccade.attention.visibility import padding


@dataclass(frozen=True, eq=False)
class Packing:
    """Where sequences of these lengths (B,) stand."""

    lengths: Tensor

    @cached_property
    def starts(self) -> Tensor:
        """(B + 1,) the place of each first one, and of the end."""
        return torch.cat((self.lengths.new_zeros(1), self.lengths.cumsum(0)))

    @cached_property
    def places(self) -> int:
        """N"""
        if self.lengths.numel() and int(self.lengths.min()) < 0:
            raise ValueError(f"a sequence has a length of 0 or more; got {int(self.lengths.min())}")
        return int(self.starts[-1])

    @cached_property
    def longest(self) -> int:
        return int(self.lengths.max()) if len(self.lengths) else 0

    @cached_property
    def visible(self) -> Tensor:
        """(B, 1, L): what is not padding where they are padded."""
        return padding(self.lengths, self.longest)

    @cached_property
    def positions(self) -> Tensor:
        """(N,) how far each place is from the beginning of its sequence."""
        return torch.arange(self.longest, device=self.lengths.device).expand(len(self.lengths), -1)[self.visible[:, 0]]

    @cached_property
    def _places(self) -> Tensor:
        """(N,) where each place stands among those of padded rows, B · L."""
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
    """Queries and keys of the same sequences: a query sees the keys of its own."""

    queries: Packing
    keys: Packing

    def check(self, query: Tensor, key: Tensor) -> None:
        """That these (1, ..., N, D) are all of them."""
        if len(self.queries.lengths) != len(self.keys.lengths):
            counts = f"{len(self.queries.lengths)} and {len(self.keys.lengths)}"
            raise ValueError(f"queries and keys must be of the same sequences; they are of {counts}")
        for packing, x, what in ((self.queries, query, "queries"), (self.keys, key, "keys")):
            if x.shape[0] != 1 or x.shape[-2] != packing.places:
                raise ValueError(
                    f"packed sequences stand in one row: {what} of {packing.places} places must be (1, ..., {packing.places}, size); "
                    f"got {tuple(x.shape)}"
                )
