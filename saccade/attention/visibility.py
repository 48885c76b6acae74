"""Who may look at whom. One polarity everywhere: `visible` is bool, True = may be looked at.

A mask of any shape that broadcasts to the scores will do. Two kinds have a name of their own:
`padding(lengths)`, and a `Band` around the diagonal, which is described by two numbers instead of Q·K booleans, so that causal
attention and sliding windows can run on faster routes.

Axis legend: B batch, Q queries, K keys.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Band:
    """A query at position i sees the keys from i - before to i + after; None sets no limit on that side."""

    before: int | None = None
    after: int | None = None

    def __post_init__(self) -> None:
        for side, reach in (("before", self.before), ("after", self.after)):
            if reach is not None and reach < 0:
                raise ValueError(
                    f"a band reaches 0 or more positions {side} the query, or None for no limit; got {reach}"
                )

    def visible(self, queries: int, keys: int, first_query: int = 0, device: torch.device | None = None) -> Tensor:
        """The band as a mask (Q, K); query 0 stands at position `first_query` of the keys."""
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


def padding(lengths: Tensor, longest: int | None = None) -> Tensor:
    """Visible keys (B, 1, K) of sequences that were padded at the end to a common length."""
    keys = int(lengths.max()) if longest is None else longest
    return (torch.arange(keys, device=lengths.device) < lengths[:, None])[:, None]  # (B, 1, K)


def require_mask(visible: Tensor, scores: Sequence[int]) -> None:
    """What was given as `visible` says for each of the scores (..., Q, K), or for several of them at once, whether it is one."""
    if visible.dtype is not torch.bool:
        raise ValueError(
            f"visible is a mask of booleans, True where a query may look; got {visible.dtype}: compare it with a number (mask > 0), "
            "or give what is to be added to the scores as bias"
        )
    own, axes = visible.shape, scores[-visible.dim() :] if visible.dim() else ()
    if len(own) != len(axes) or any(size not in (1, other) for size, other in zip(own, axes, strict=True)):
        raise ValueError(
            f"visible must broadcast to the scores, {tuple(scores)} with queries and keys last; got {tuple(own)}: "
            "a mask of keys alone is (batch, 1, keys), as padding(lengths) gives it"
        )


def both(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    """Visible in both masks; None hides nothing."""
    if first is None or second is None:
        return second if first is None else first
    return first & second
