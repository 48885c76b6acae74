"""Attention rollout: how much of each input reaches each output through all layers together.

Abnar and Zuidema 2020, "Quantifying Attention Flow in Transformers". Every layer passes on its input (the residual
connection) beside what it attends to, so with Ā the mean over heads and r the residual's share

    Â_l = normalise_rows(r I + (1 - r) Ā_l)        rollout = Â_L · ... · Â_2 · Â_1

It holds for stacks of self-attention over one and the same sequence; not across shifted windows, where a position
changes its place.

Axis legend: H heads, N positions.
"""

from collections.abc import Sequence

import numpy as np

from saccade.errors import UserError
from saccade.views.maps import AttentionMap


def rollout(maps: Sequence[AttentionMap], residual: float = 0.5) -> AttentionMap:
    """The self-attention maps of all layers, first layer first, as one map of one head."""
    if not maps:
        raise UserError("Rollout needs the self-attention map of every layer, but none was given.")
    size = len(maps[0].queries)
    for attention in maps:
        if len(attention.queries) != size or len(attention.keys) != size:
            raise UserError(
                f"Rollout multiplies self-attention over one sequence, but {attention.name!r} looks from {len(attention.queries)} "
                f"to {len(attention.keys)} positions where {size} to {size} are needed; leave it out."
            )
    flow = np.eye(size)
    for attention in maps:
        mean = attention.weights.mean(axis=0, dtype=np.float64)  # (H, N, N) -> (N, N)
        mixed = residual * np.eye(size) + (1 - residual) * mean
        total = mixed.sum(axis=-1, keepdims=True)
        flow = np.divide(mixed, total, out=np.zeros_like(mixed), where=total > 0) @ flow
    titles = (maps[-1].query_title, maps[0].key_title)
    return AttentionMap(f"rollout of {len(maps)} layers", flow, maps[-1].queries, maps[0].keys, *titles)
