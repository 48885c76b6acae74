"""The route for short sequences: the kernel of short_kernel.py, for those that are padded and for those that are packed.

A Transformer learns from sentences of a dozen words. There torch's fused kernel spends most of its time getting ready.

Axis legend: B batch, H heads, Q queries, K keys, N rows of all sequences, D features of a head.
"""

import torch
from torch import Tensor

from saccade.attention import short_kernel
from saccade.attention.lookup import Lookup
from saccade.attention.packing import Packed
from saccade.attention.scores import DotProductScore, Score
from saccade.attention.selection import Selection, Soft
from saccade.attention.visibility import CAUSAL

LONGEST = 256  # keys; with more, the weights that are kept for the way back would take too much memory


def fits(score: Score, selection: Selection, dropout: float, lookup: Lookup) -> bool:
    """Soft selection over a dot product, of few keys, hidden by nothing but a mask of whole keys and the order of a sequence."""
    queries, keys = lookup.query.shape[-2], lookup.prepared.shape[-2]
    in_order = lookup.band == CAUSAL and lookup.first_query == 0 and queries == keys
    return (
        is_plain(score, selection, dropout, lookup)
        and lookup.query.shape[0] == lookup.prepared.shape[0] == lookup.value.shape[0]
        and keys <= LONGEST
        and (lookup.band is None or in_order)
        and (lookup.visible is None or _tells_only_keys_apart(lookup.visible))
    )


def fits_packed(score: Score, selection: Selection, dropout: float, lookup: Lookup, packed: Packed) -> bool:
    in_order = lookup.band == CAUSAL and packed.queries is packed.keys
    return (
        is_plain(score, selection, dropout, lookup)
        and packed.keys.longest <= LONGEST
        and (lookup.band is None or in_order)
    )


def attend(score: Score, lookup: Lookup) -> Tensor:
    """(B, H, Q, D)"""
    batch, _, queries, _ = lookup.query.shape
    keys = lookup.prepared.shape[-2]
    visible = lookup.visible
    if visible is not None:
        visible = visible[(None,) * (4 - visible.dim())].expand(batch, 1, 1, keys).flatten()
    starts = torch.arange(batch + 1, device=lookup.query.device)
    context = _attend(score, lookup, starts * queries, starts * keys, visible)  # (B·Q, H, D)
    return context.unflatten(0, (batch, queries)).transpose(1, 2)


def attend_packed(score: Score, lookup: Lookup, packed: Packed) -> Tensor:
    """(1, H, N, D)"""
    return _attend(score, lookup, packed.queries.starts, packed.keys.starts).transpose(0, 1)[None]


def _attend(
    score: Score, lookup: Lookup, query_starts: Tensor, key_starts: Tensor, visible: Tensor | None = None
) -> Tensor:
    assert isinstance(score, DotProductScore)
    query, key, value = (
        heads.transpose(1, 2).flatten(0, 1)  # (B, H, N, D) -> (B·N, H, D)
        for heads in (score.project_query(lookup.query), lookup.prepared, lookup.value)
    )
    causal = lookup.band is not None
    return short_kernel.attend(query, key, value, query_starts, key_starts, visible, causal, score.scale)


def is_plain(score: Score, selection: Selection, dropout: float, lookup: Lookup) -> bool:
    return (
        isinstance(score, DotProductScore)
        and isinstance(selection, Soft)
        and dropout == 0.0
        and lookup.bias is None
        and lookup.query.dim() == lookup.prepared.dim() == lookup.value.dim() == 4
        and lookup.query.shape[1] == lookup.prepared.shape[1] == lookup.value.shape[1]
        and lookup.prepared.shape[-2] == lookup.value.shape[-2]
        and short_kernel.can_compute(lookup.query, lookup.prepared, lookup.value)
    )


def _tells_only_keys_apart(visible: Tensor) -> bool:
    heads_and_queries = visible.shape[-3:-1]
    return visible.dtype is torch.bool and 1 <= visible.dim() <= 4 and heads_and_queries.numel() == 1
