"""Sliding windows as dense attention inside blocks: block b of the queries against the keys that any of them can see.

Axis legend: Q queries, K keys, D features.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from saccade.attention.fused import four_axes
from saccade.attention.lookup import Lookup
from saccade.attention.scores import DotProductScore, Location, Score
from saccade.attention.selection import Selection, Soft, masked_softmax
from saccade.attention.visibility import Band

Scores = Callable[[Score, Lookup], Tensor]


def fits_blockwise(score: Score, selection: Selection, dropout: float, lookup: Lookup) -> bool:
    """A band limited on both sides, over keys that are the queries' own sequence; a mask may hide keys, the same for all queries."""
    band = lookup.band
    return (
        band is not None
        and band.before is not None
        and band.after is not None
        and isinstance(selection, Soft)
        and not isinstance(score, Location)
        and dropout == 0.0
        and lookup.bias is None
        and lookup.first_query == 0
        and lookup.query.shape[-2] == lookup.prepared.shape[-2] > 0
        and lookup.query.shape[:-2] == lookup.prepared.shape[:-2] == lookup.value.shape[:-2]
        and (lookup.visible is None or (lookup.visible.dim() >= 2 and lookup.visible.shape[-2] == 1))
    )


def blockwise(score: Score, lookup: Lookup, scores: Scores) -> Tensor:
    """`scores` computes the scores of a block where the fused kernel cannot."""
    before, after = reach(lookup.band)
    length = lookup.query.shape[-2]
    block = block_size(before, after)
    end = -length % block  # padding, up to a whole block
    query = _blocks(F.pad(lookup.query, (0, 0, 0, end)), block, block)  # (blocks, ..., block, D)
    span = block + before + after
    around = (0, 0, before, after + end)
    prepared = _blocks(F.pad(lookup.prepared, around), span, block)  # (blocks, ..., span, D)
    value = _blocks(F.pad(lookup.value, around), span, block)
    exists = torch.ones(*[1] * (lookup.query.dim() - 1), length, dtype=torch.bool, device=query.device)
    if lookup.visible is not None:
        exists = exists & lookup.visible
    exists = F.pad(exists, (before, after + end)).unfold(-1, span, block)  # (..., 1, blocks, span)
    exists = exists.movedim(-2, 0)  # (blocks, ..., 1, span)
    inside = Band(before=0, after=before + after).visible(block, span, device=query.device)
    context = _inside_blocks(score, Lookup(query, prepared, value, exists & inside), scores)
    return context.movedim(0, -3).flatten(-3, -2)[..., :length, :]  # (blocks, ..., block, D) -> (..., length, D)


def block_size(before: int, after: int) -> int:
    """Half the window (measured): shorter blocks copy the keys too often, longer ones compute too many hidden scores."""
    return max(32, min((before + after + 1) // 2, 128))


def reach(band: Band | None) -> tuple[int, int]:
    """Of a band limited on both sides."""
    assert band is not None
    assert band.before is not None
    assert band.after is not None
    return band.before, band.after


def _inside_blocks(score: Score, blocks: Lookup, scores: Scores) -> Tensor:
    """Dense attention in every block, by the fused kernel where the score allows it; it takes no more than four axes."""
    prepared, value, visible = blocks.prepared, blocks.value, blocks.visible
    assert visible is not None
    if not isinstance(score, DotProductScore) or prepared.shape[-1] != value.shape[-1]:
        return masked_softmax(scores(score, blocks), visible) @ value
    leading, query = blocks.query.shape[:-2], score.project_query(blocks.query)
    if query.dim() > 4:
        visible = visible.expand(*leading[:-1], *visible.shape[-3:]).flatten(0, -4)
        query, prepared, value = (tensor.flatten(0, -4) for tensor in (query, prepared, value))
    mask = four_axes(visible, batched=query.dim())
    query, prepared, value = (four_axes(tensor) for tensor in (query, prepared, value))
    context = F.scaled_dot_product_attention(query, prepared, value, mask, scale=score.scale)
    return context.reshape(*leading, *context.shape[-2:])


def _blocks(padded: Tensor, size: int, step: int) -> Tensor:
    """Overlapping pieces of the length axis, moved in front of everything: (..., length, D) -> (pieces, ..., size, D)."""
    return padded.unfold(-2, size, step).movedim(-3, 0).transpose(-2, -1)
