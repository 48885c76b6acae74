"""One question to a memory, as the routes get it.

Axis legend: Q queries, K keys, D features.
"""

from dataclasses import dataclass, replace

from torch import Tensor

from saccade.attention.packing import Packed
from saccade.attention.visibility import Band, both


@dataclass(frozen=True)
class Lookup:
    """All that is needed to answer one question to a memory."""

    query: Tensor  # (..., Q, D)
    prepared: Tensor  # (..., K, as the score prepared it)
    value: Tensor  # (..., K, D)
    visible: Tensor | None = None
    band: Band | None = None
    bias: Tensor | None = None  # added to the scores
    first_query: int = 0
    packed: Packed | None = None

    def mask(self) -> Tensor | None:
        """`visible` and `band` as one mask."""
        if self.band is None:
            return self.visible
        queries, keys = self.query.shape[-2], self.prepared.shape[-2]
        return both(self.visible, self.band.visible(queries, keys, self.first_query, self.query.device))

    def padded(self) -> "Lookup":
        """The same question with a row for each sequence, where they were packed into one."""
        if self.packed is None:
            return self
        keys = self.packed.keys.visible  # (B, 1, K)
        return replace(
            self,
            query=self.packed.queries.pad(self.query),
            prepared=self.packed.keys.pad(self.prepared),
            value=self.packed.keys.pad(self.value),
            visible=keys if self.query.dim() == 3 else keys[:, None],
            packed=None,
        )

    def rows(self, start: int, stop: int) -> "Lookup":
        """The same question for the queries from start to stop."""
        return replace(
            self,
            query=self.query[..., start:stop, :],
            visible=_rows(self.visible, start, stop),
            bias=_rows(self.bias, start, stop),
            first_query=self.first_query + start,
        )


def _rows(mask: Tensor | None, start: int, stop: int) -> Tensor | None:
    return mask if mask is None or mask.dim() < 2 or mask.shape[-2] == 1 else mask[..., start:stop, :]
