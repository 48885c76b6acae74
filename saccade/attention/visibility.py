"""Which keys a query sees. One polarity everywhere: `visible` is bool, True = may be looked at.

A mask of any shape that broadcasts to the scores will do. Two kinds have a name of their own:
`padding(lengths)`, and a `Band` around the diagonal, which is described by two numbers instead of Q·K booleans, so that causal
attention and sliding windows can run on faster routes.

Axis legend: B batch, Q queries, K keys.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral

import torch
from torch import Tensor


def is_whole(number: object) -> bool:
    """Whether it is an integer, of Python or of numpy."""
    return isinstance(number, Integral)


@dataclass(frozen=True)
class Band:
    """A query at position i sees the keys from i - before to i + after; None sets no limit on that side."""

    before: int | None = None
    after: int | None = None

    def __post_init__(self) -> None:
        for side, reach in (("before", self.before), ("after", self.after)):
            if reach is not None and (not is_whole(reach) or reach < 0):
                raise ValueError(f"{side} must be an integer, 0 or more, or None for no limit; got {reach}")

    def visible(self, queries: int, keys: int, first_query: int = 0, device: torch.device | None = None) -> Tensor:
        """The band as a mask (Q, K); query 0 is at position `first_query` of the keys."""
        offset = (
            torch.arange(keys, device=device) - torch.arange(first_query, first_query + queries, device=device)[:, None]
        )
        mask = torch.ones(queries, keys, dtype=torch.bool, device=device)
        if self.before is not None:
            mask &= offset >= -self.before
        if self.after is not None:
            mask &= offset <= self.after
        return mask


CAUSAL = Band(after=0)
"""No look into the future."""


def padding(lengths: Tensor | Sequence[int], longest: int | None = None) -> Tensor:
    """Visible keys (B, 1, K) of sequences that were padded at the end to a common length."""
    if not isinstance(lengths, Tensor):
        lengths = torch.tensor(lengths, dtype=None if len(lengths) else torch.long)
    if lengths.dim() != 1 or lengths.is_floating_point() or lengths.dtype is torch.bool:
        raise ValueError(
            f"padding takes the length of each sequence, integers (batch,); got {lengths.dtype} {tuple(lengths.shape)}: "
            "pass a mask of keys (batch, keys) as visible itself, mask.bool()[:, None]"
        )
    keys = int(lengths.max()) if longest is None else longest
    return (torch.arange(keys, device=lengths.device) < lengths[:, None])[:, None]  # (B, 1, K)


def both(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    """Visible in both masks; None hides nothing."""
    if first is None or second is None:
        return second if first is None else first
    return first & second
