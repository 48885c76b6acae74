"""Torch's fused kernel: softmax(scale · q kᵀ + mask) v, tile by tile, so that the weights never exist as a whole.

Axis legend: B batch, H heads, Q queries, K keys, D features.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from saccade.attention.lookup import Lookup
from saccade.attention.scores import DotProductScore, Score
from saccade.attention.selection import Selection, Soft
from saccade.attention.visibility import CAUSAL


def fits_fused(score: Score, selection: Selection, dropout: float, lookup: Lookup) -> bool:
    """Soft selection over a dot product of equal sizes; on a CPU torch has no fused kernel with dropout or a learned bias."""
    return (
        isinstance(score, DotProductScore)
        and isinstance(selection, Soft)
        and dropout == 0.0
        and lookup.prepared.shape[-1] == lookup.value.shape[-1]
        and not (lookup.bias is not None and lookup.bias.requires_grad)
        and 2 <= lookup.query.dim() <= 4
        and lookup.query.shape[:-2] == lookup.prepared.shape[:-2] == lookup.value.shape[:-2]
    )


def fused(score: Score, lookup: Lookup) -> Tensor:
    assert isinstance(score, DotProductScore)
    query = score.project_query(lookup.query)
    mask, causal = lookup.visible, False
    if lookup.band is not None:
        causal = lookup.band == CAUSAL and lookup.visible is None and lookup.bias is None and lookup.first_query == 0
        mask = None if causal else lookup.mask()
    if lookup.bias is not None:
        bias = lookup.bias.to(query.dtype)  # the kernel reads a bias of another dtype wrongly, without an error
        mask = bias if mask is None else bias.masked_fill(~mask, -torch.inf)
    attended = F.scaled_dot_product_attention(
        four_axes(query),
        four_axes(lookup.prepared),
        four_axes(lookup.value),
        attn_mask=None if mask is None else four_axes(mask, batched=query.dim()),
        is_causal=causal,
        scale=score.scale,
    )
    return attended.reshape(*query.shape[:-1], lookup.value.shape[-1])


def four_axes(tensor: Tensor, batched: int | None = None) -> Tensor:
    """The (B, H, length, D) that the kernel takes. A mask with fewer axes than the queries (`batched`) is completed in front first."""
    while batched is not None and tensor.dim() < batched:
        tensor = tensor.unsqueeze(0)
    while tensor.dim() < 4:
        tensor = tensor.unsqueeze(-3)
    return tensor
