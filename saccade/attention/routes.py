"""Six ways to compute the same attention, and which of them to take.

| route     | for                                                         | holds                          |
|-----------|-------------------------------------------------------------|--------------------------------|
| explicit  | everything; the definition of the result                    | all scores, B·H·Q·K            |
| fused     | dot products in disguise with soft selection                | a tile of the scores           |
| short     | the same over few keys, by a kernel of our own              | all scores, B·H·Q·K            |
| long      | the same over many keys, by another one (sentences.py)      | a tile of the scores, K·D a head |
| chunked   | hidden-layer scores: B·H·Q·K·A is too much at once           | one chunk of queries           |
| blockwise | sliding windows: most of Q × K is hidden                     | B·H·Q·(block + window) scores  |

All give the numbers of the explicit route up to rounding. `choose` takes the fastest by thresholds that were measured, by device type
and dtype (benchmarks/attention.py; docs/results.md shows the measurement).

Axis legend: B batch, H heads, Q queries, K keys, D features, A hidden size of a score.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from saccade.attention import sentences
from saccade.attention.lookup import Lookup
from saccade.attention.scores import DotProductScore, HiddenLayerScore, Location, Score
from saccade.attention.selection import Selection, Soft, masked_softmax
from saccade.attention.sentence_kernels import Kernel
from saccade.attention.visibility import Band


class Route(str, Enum):
    EXPLICIT = "explicit"
    FUSED = "fused"
    SHORT = "short"
    LONG = "long"
    CHUNKED = "chunked"
    BLOCKWISE = "blockwise"


def named(route: Route | str) -> Route:
    """The route of this name."""
    try:
        return Route(route)
    except ValueError:
        names = ", ".join(each.value for each in Route)
        raise ValueError(f"{route!r} is not a route: choose {names}, or None to have the fastest chosen") from None


@dataclass(frozen=True)
class Thresholds:
    """Where a route begins to pay."""

    fused_pairs: int  # Q·K of one head
    chunk_elements: int  # hidden-layer numbers B·H·chunk·K·A held at once
    block_keys: int  # shortest sequence worth cutting into blocks
    block_share: float = 1 / 4  # largest share of the keys that a window may span to be worth it
    kernel_scores: int = 2**15  # B·H·Q·K that are worth a call of a kernel of our own
    long_queries: int = 96  # with fewer, getting keys ready takes too much of the kernel for long sequences


# By device type, dtype, and whether a gradient will be asked for. Measured on a CPU with AVX-512, one thread (docs/results.md): all of
# float32, and where the fused kernel begins to pay in float64; float64's chunks and blocks are set by analogy (half the numbers fill
# the same cache).
THRESHOLDS: dict[tuple[str, torch.dtype, bool], Thresholds] = {
    ("cpu", torch.float32, False): Thresholds(fused_pairs=64, chunk_elements=2**18, block_keys=256),
    ("cpu", torch.float32, True): Thresholds(fused_pairs=16, chunk_elements=2**18, block_keys=512),
    ("cpu", torch.float64, False): Thresholds(fused_pairs=64, chunk_elements=2**17, block_keys=256),
    ("cpu", torch.float64, True): Thresholds(fused_pairs=16, chunk_elements=2**17, block_keys=512),
    # Not measured: on a GPU the fused kernel is taken at every length, and chunks are large enough to fill it.
    ("cuda", torch.float32, False): Thresholds(fused_pairs=0, chunk_elements=2**26, block_keys=1024),
    ("cuda", torch.float32, True): Thresholds(fused_pairs=0, chunk_elements=2**26, block_keys=1024),
}


SCORES_HELD = 2**22  # B·H·Q·K scores of one part of the chunked route: 16 MB in single precision


def thresholds(lookup: Lookup) -> Thresholds:
    """Those of this device and dtype; what is not listed uses the nearest line."""
    device, dtype = lookup.query.device.type, lookup.query.dtype
    device = device if (device, torch.float32, True) in THRESHOLDS else "cpu"
    dtype = dtype if (device, dtype, True) in THRESHOLDS else torch.float32
    return THRESHOLDS[device, dtype, _needs_gradient(lookup)]


def choose(score: Score, selection: Selection, dropout: float, lookup: Lookup) -> Route:
    """The fastest route that gives the explicit result. `dropout` is the rate in force now."""
    limits = thresholds(lookup)
    queries, keys = lookup.query.shape[-2], lookup.prepared.shape[-2]
    if not all(isinstance(length, int) for length in (*lookup.query.shape, *lookup.prepared.shape)):
        # Symbols: a graph that is exported for every length cannot ask how long its input is.
        return Route.FUSED if fits_fused(score, selection, dropout, lookup) else Route.EXPLICIT
    if fits_blockwise(score, selection, dropout, lookup) and lookup.band is not None:
        window = _reach(lookup.band)
        if keys >= limits.block_keys and window <= limits.block_share * keys:
            return Route.BLOCKWISE
    scores = lookup.query.shape[:-2].numel() * queries * keys
    if scores >= limits.kernel_scores:
        if sentences.fits(Kernel.SHORT, score, selection, dropout, lookup):
            return Route.SHORT
        if queries >= limits.long_queries and sentences.fits(Kernel.LONG, score, selection, dropout, lookup):
            return Route.LONG
    if fits_fused(score, selection, dropout, lookup) and queries * keys >= limits.fused_pairs:
        return Route.FUSED
    if fits_chunked(score, selection, lookup) and _hidden_elements(lookup) > limits.chunk_elements and queries > 1:
        return Route.CHUNKED
    return Route.EXPLICIT


def require_fit(route: Route, score: Score, selection: Selection, dropout: float, lookup: Lookup) -> Route:
    """A route that somebody asked for, if it computes the same as the explicit one."""
    fits = {
        Route.EXPLICIT: True,
        Route.FUSED: fits_fused(score, selection, dropout, lookup),
        Route.SHORT: sentences.fits(Kernel.SHORT, score, selection, dropout, lookup),
        Route.LONG: sentences.fits(Kernel.LONG, score, selection, dropout, lookup),
        Route.CHUNKED: fits_chunked(score, selection, lookup),
        Route.BLOCKWISE: fits_blockwise(score, selection, dropout, lookup),
    }
    if not fits[route]:
        raise ValueError(
            f"the {route.value} route cannot compute this attention ({score.name} score, {selection.name} selection, dropout {dropout}) "
            f"or inputs of this kind: use the explicit route, or give none to have one chosen"
        )
    return route


def fits_fused(score: Score, selection: Selection, dropout: float, lookup: Lookup) -> bool:
    """The kernel is for soft selection over a dot product of equal sizes; on a CPU torch has none with dropout or a learned bias."""
    return (
        isinstance(score, DotProductScore)
        and isinstance(selection, Soft)
        and dropout == 0.0
        and lookup.prepared.shape[-1] == lookup.value.shape[-1]
        and not (lookup.bias is not None and lookup.bias.requires_grad)
        and 2 <= lookup.query.dim() <= 4
        and lookup.query.shape[:-2] == lookup.prepared.shape[:-2] == lookup.value.shape[:-2]
    )


def fits_chunked(score: Score, selection: Selection, lookup: Lookup) -> bool:
    alike = lookup.query.shape[:-2] == lookup.prepared.shape[:-2]
    return isinstance(score, HiddenLayerScore) and not selection.samples and alike


def fits_blockwise(score: Score, selection: Selection, dropout: float, lookup: Lookup) -> bool:
    """A band limited on both sides, over keys that are the queries' own sequence; a mask may hide keys but not by query."""
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


def fused(score: Score, lookup: Lookup) -> Tensor:
    """Torch's kernel: softmax(scale · q kᵀ + mask) v, tile by tile."""
    assert isinstance(score, DotProductScore)
    query = score.project_query(lookup.query)
    mask, causal = lookup.visible, False
    if lookup.band is not None:
        causal = (
            lookup.band == Band(after=0) and lookup.visible is None and lookup.bias is None and lookup.first_query == 0
        )
        mask = None if causal else lookup.mask()
    if lookup.bias is not None:
        bias = lookup.bias.to(query.dtype)  # the kernel reads a bias of another dtype wrongly, without an error
        mask = bias if mask is None else bias.masked_fill(~mask, -torch.inf)
    attended = F.scaled_dot_product_attention(
        _four_axes(query),
        _four_axes(lookup.prepared),
        _four_axes(lookup.value),
        attn_mask=None if mask is None else _four_axes(mask, batched=query.dim()),
        is_causal=causal,
        scale=score.scale,
    )
    return attended.reshape(*query.shape[:-1], lookup.value.shape[-1])


def chunked(explicit: Callable[[Lookup], tuple[Tensor, Tensor]], lookup: Lookup) -> tuple[Tensor, Tensor]:
    """The explicit route for a part of the queries at a time, whose hidden layers in turn are computed in chunks that fit the cache.

    Backward computes every part again, so that neither hidden layers nor all scores are ever held: B·K·A numbers and one part.
    """
    queries = lookup.query.shape[-2]
    scores = max(1, lookup.prepared.numel() // lookup.prepared.shape[-1] * queries)  # B·H·Q·K
    size = max(1, SCORES_HELD * queries // scores)
    if size >= queries:
        return explicit(lookup)
    parts = [lookup.rows(start, min(start + size, queries)) for start in range(0, queries, size)]
    answers = [
        checkpoint(explicit, part, use_reentrant=False) if torch.is_grad_enabled() else explicit(part) for part in parts
    ]
    contexts, log_probs = zip(*answers, strict=True)
    sampled = log_probs[0].dim() > 0
    return torch.cat(contexts, dim=-2), torch.cat(log_probs, dim=-1) if sampled else log_probs[0]


def blockwise(score: Score, lookup: Lookup) -> Tensor:
    """A sliding window as dense attention inside blocks: block b of the queries against the keys that any of them can see."""
    band = lookup.band
    assert band is not None
    assert band.before is not None
    assert band.after is not None
    length = lookup.query.shape[-2]
    block = block_size(band)
    blocks = -(-length // block)
    end = blocks * block - length
    query = _blocks(F.pad(lookup.query, (0, 0, 0, end)), block, block)  # (blocks, ..., block, D)
    span = block + band.before + band.after
    around = (0, 0, band.before, band.after + end)
    prepared = _blocks(F.pad(lookup.prepared, around), span, block)  # (blocks, ..., span, D)
    value = _blocks(F.pad(lookup.value, around), span, block)
    exists = torch.ones(*[1] * (lookup.query.dim() - 1), length, dtype=torch.bool, device=query.device)
    if lookup.visible is not None:
        exists = exists & lookup.visible
    exists = F.pad(exists, (band.before, band.after + end)).unfold(-1, span, block)  # (..., 1, blocks, span)
    exists = exists.movedim(-2, 0)  # (blocks, ..., 1, span)
    inside = Band(before=0, after=band.before + band.after).visible(block, span, device=query.device)
    context = _inside_blocks(score, query, prepared, value, exists & inside)
    return context.movedim(0, -3).flatten(-3, -2)[..., :length, :]  # (blocks, ..., block, D) -> (..., length, D)


WITHOUT_WEIGHTS: dict[Route, Callable[[Score, Lookup], Tensor]] = {
    Route.FUSED: fused,
    Route.SHORT: partial(sentences.attend, Kernel.SHORT),
    Route.LONG: partial(sentences.attend, Kernel.LONG),
    Route.BLOCKWISE: blockwise,
}


def block_size(band: Band) -> int:
    """Half the window (measured): shorter blocks copy the keys too often, longer ones compute too many hidden scores."""
    return max(32, min(_reach(band) // 2, 128))


def _inside_blocks(score: Score, query: Tensor, prepared: Tensor, value: Tensor, visible: Tensor) -> Tensor:
    """Dense attention in every block, by the fused kernel where the score allows it; it wants no more than four axes."""
    if isinstance(score, HiddenLayerScore) and not torch.compiler.is_compiling():
        elements = thresholds(Lookup(query, prepared, value)).chunk_elements
        return masked_softmax(score.in_chunks(query, prepared, elements), visible) @ value
    if not isinstance(score, DotProductScore) or prepared.shape[-1] != value.shape[-1]:
        return masked_softmax(score(query, prepared), visible) @ value
    leading, query = query.shape[:-2], score.project_query(query)
    if query.dim() > 4:
        visible = visible.expand(*leading[:-1], *visible.shape[-3:]).flatten(0, -4)
        query, prepared, value = (tensor.flatten(0, -4) for tensor in (query, prepared, value))
    context = F.scaled_dot_product_attention(
        _four_axes(query),
        _four_axes(prepared),
        _four_axes(value),
        _four_axes(visible, batched=query.dim()),
        scale=score.scale,
    )
    return context.reshape(*leading, *context.shape[-2:])


def _blocks(padded: Tensor, size: int, step: int) -> Tensor:
    """Overlapping pieces of the length axis, moved in front of everything: (..., length, D) -> (pieces, ..., size, D)."""
    return padded.unfold(-2, size, step).movedim(-3, 0).transpose(-2, -1)


def _reach(band: Band) -> int:
    assert band.before is not None
    assert band.after is not None
    return band.before + band.after + 1


def _needs_gradient(lookup: Lookup) -> bool:
    inputs = (lookup.query, lookup.prepared, lookup.value)
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)


def _hidden_elements(lookup: Lookup) -> int:
    return lookup.prepared.numel() * lookup.query.shape[-2]


def _four_axes(tensor: Tensor, batched: int | None = None) -> Tensor:
    """The fused kernel wants (B, H, length, D). A mask of fewer axes than the queries' `batched` is completed in front first."""
    while batched is not None and tensor.dim() < batched:
        tensor = tensor.unsqueeze(0)
    while tensor.dim() < 4:
        tensor = tensor.unsqueeze(-3)
    return tensor
