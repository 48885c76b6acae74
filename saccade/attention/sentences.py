"""The routes through kernels of our own (sentence_kernels.py), for sequences that are padded and for those that are packed.

A Transformer learns from sentences of a dozen words. There torch's fused kernel spends most of its time getting ready. Over long
sequences ours has less to read and write, and leaves out what a causal sequence does not see.

Axis legend: B batch, H heads, Q queries, K keys, N rows of all sequences, D features of a head.
"""

from dataclasses import replace

import torch
from torch import Tensor

from saccade.attention import compiled, sentence_kernels
from saccade.attention.lookup import Lookup
from saccade.attention.packing import Packed
from saccade.attention.scores import DotProductScore, Score
from saccade.attention.selection import Selection, Soft
from saccade.attention.sentence_kernels import Kernel
from saccade.attention.visibility import CAUSAL

LONGEST = 192  # keys of the kernel for short ones: with more, the weights that it keeps cost more than computing them again (measured)


def fits(kernel: Kernel, score: Score, selection: Selection, dropout: float, lookup: Lookup) -> bool:
    """Soft selection over a dot product, hidden by nothing but a mask of whole keys and the order of a sequence."""
    if score.heads is None:
        lookup = _with_heads(lookup)
    queries, keys = lookup.query.shape[-2], lookup.prepared.shape[-2]
    in_order = lookup.band == CAUSAL and lookup.first_query == 0 and queries == keys
    return (
        is_plain(kernel, score, selection, dropout, lookup)
        and lookup.query.shape[0] == lookup.prepared.shape[0] == lookup.value.shape[0]
        and (kernel is Kernel.LONG or keys <= _longest(lookup))
        and (lookup.band is None or in_order)
        and (lookup.visible is None or _tells_only_keys_apart(lookup.visible, lookup.query.shape[0]))
    )


def fits_packed(score: Score, selection: Selection, dropout: float, lookup: Lookup, packed: Packed) -> bool:
    in_order = lookup.band == CAUSAL and packed.queries is packed.keys
    return is_plain(_kernel_of(packed), score, selection, dropout, lookup) and (lookup.band is None or in_order)


def attend(kernel: Kernel, score: Score, lookup: Lookup) -> Tensor:
    """(B, H, Q, D), or (B, Q, D) where no heads were given"""
    assert isinstance(score, DotProductScore)
    apart = _with_heads(lookup) if score.heads is None else lookup
    query, key, value = score.project_query(apart.query), apart.prepared, apart.value
    batch, heads, queries, features = query.shape
    keys, visible = key.shape[-2], apart.visible
    if visible is not None:
        visible = visible[(None,) * (4 - visible.dim())].expand(batch, 1, 1, keys)
    stand_apart = all(each.is_contiguous() for each in (query, key, value))
    if stand_apart:  # given without projections, which put heads side by side: then each is a sentence
        query, key, value = (each.flatten(0, 1).unsqueeze(1) for each in (query, key, value))
        visible = None if visible is None else visible.expand(-1, heads, -1, -1)
    starts = torch.arange(len(query) + 1, device=query.device)
    seen, causal = None if visible is None else visible.flatten(), apart.band is not None
    rows = _attend(kernel, (query, key, value), starts * queries, starts * keys, seen, causal, score.scale)
    shape = (batch, heads, queries) if stand_apart else (batch, queries, heads)
    context = rows.view(*shape, features)
    context = context if stand_apart else context.transpose(1, 2)
    return context if lookup is apart else context.squeeze(1)


def attend_packed(score: Score, lookup: Lookup, packed: Packed) -> Tensor:
    """(1, H, N, D)"""
    assert isinstance(score, DotProductScore)
    inputs = (score.project_query(lookup.query), lookup.prepared, lookup.value)
    starts = (packed.queries.starts, packed.keys.starts)
    rows = _attend(_kernel_of(packed), inputs, *starts, None, lookup.band is not None, score.scale)
    return rows.transpose(0, 1)[None]


def _kernel_of(packed: Packed) -> Kernel:
    return Kernel.SHORT if packed.keys.longest <= LONGEST else Kernel.LONG


def _attend(
    kernel: Kernel,
    inputs: tuple[Tensor, Tensor, Tensor],
    query_starts: Tensor,
    key_starts: Tensor,
    visible: Tensor | None,
    causal: bool,
    scale: float,
) -> Tensor:
    """Of queries, keys and values (B, H, N, D) contexts in rows (B·N, H, D)"""
    query, key, value = (heads.transpose(1, 2).flatten(0, 1) for heads in inputs)
    return sentence_kernels.attend(kernel, query, key, value, query_starts, key_starts, visible, causal, scale)


def is_plain(kernel: Kernel, score: Score, selection: Selection, dropout: float, lookup: Lookup) -> bool:
    return (
        isinstance(score, DotProductScore)
        and isinstance(selection, Soft)
        and dropout == 0.0
        and lookup.bias is None
        and lookup.query.dim() == lookup.prepared.dim() == lookup.value.dim() == 4
        and lookup.query.shape[1]
        == lookup.prepared.shape[1]
        == lookup.value.shape[1]
        == (score.heads or lookup.query.shape[1])
        and lookup.prepared.shape[-2] == lookup.value.shape[-2]
        and sentence_kernels.can_compute(kernel, lookup.query, lookup.prepared, lookup.value)
    )


def _with_heads(lookup: Lookup) -> Lookup:
    """What has no heads, (B, length, D), is one head."""
    inputs, visible = (lookup.query, lookup.prepared, lookup.value), lookup.visible
    if any(x.dim() != 3 for x in inputs) or (visible is not None and visible.dim() > 3):
        return lookup
    query, prepared, value = (x.unsqueeze(1) for x in inputs)
    if visible is not None and visible.dim() == 3:
        visible = visible.unsqueeze(1)
    return replace(lookup, query=query, prepared=prepared, value=value, visible=visible)


def _longest(lookup: Lookup) -> int:
    """Keys of the kernel for short sequences. Eight lanes are soon behind torch's kernel where that has sixteen."""
    has_more = bool(compiled.wide_kernels()) and not Kernel.SHORT.is_wide(lookup.query.shape[-1])
    return LONGEST // 4 if has_more else LONGEST


def _tells_only_keys_apart(visible: Tensor, batch: int) -> bool:
    """For all heads and queries alike: of (B or 1, 1, 1, K), or the last of these axes."""
    shape = (1,) * (4 - visible.dim()) + visible.shape
    return visible.dtype is torch.bool and len(shape) == 4 and shape[0] in (1, batch) and shape[1:3] == (1, 1)
