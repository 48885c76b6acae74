"""Six ways to compute the same attention, and which one to take: the only module of this room that knows `saccade.kernels`.

| route     | for                                                         | holds                            |
|-----------|-------------------------------------------------------------|----------------------------------|
| explicit  | everything; the definition of the result (attend.py)        | all scores, B·H·Q·K              |
| fused     | scores that are dot products, with soft selection           | a tile of the scores             |
| short     | the same over few keys, by a kernel in C                    | all scores, B·H·Q·K              |
| long      | the same over many keys, by another kernel in C             | a tile of the scores, K·D a head |
| chunked   | hidden-layer scores: B·H·Q·K·A is too much at once          | one chunk of queries             |
| blockwise | sliding windows: most of Q × K is hidden                    | B·H·Q·(block + window) scores    |

All give the numbers of the explicit route up to rounding. `choose` takes the fastest by measured thresholds, by device type and dtype
(benchmarks/attention.py). Without `saccade.kernels` the routes short, long and chunked do not exist, and everything else works, slower.

Axis legend: B batch, H heads, Q queries, K keys, D features, A hidden size of a score.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from saccade.attention.blockwise import blockwise, fits_blockwise, reach
from saccade.attention.fused import fits_fused, fused
from saccade.attention.hooks import is_hooked
from saccade.attention.lookup import Lookup
from saccade.attention.scores import DotProductScore, HiddenLayerScore, Score
from saccade.attention.selection import Selection, Soft
from saccade.attention.visibility import CAUSAL

try:
    from saccade.kernels import compiled, hidden_layer, many_steps, pointwise, sentences
    from saccade.kernels import local2d as neighbourhoods
except ModuleNotFoundError:
    HAS_KERNELS = False
else:
    HAS_KERNELS = True


def has_compiled_kernels() -> bool:
    """Whether the C kernels were compiled and this processor runs them."""
    return HAS_KERNELS and compiled.kernels() is not None


class Route(str, Enum):
    EXPLICIT = "explicit"
    FUSED = "fused"
    SHORT = "short"
    LONG = "long"
    CHUNKED = "chunked"
    BLOCKWISE = "blockwise"


Explicit = Callable[[Lookup, Tensor], tuple[Tensor, Tensor]]
"""A question and its scores → context and log-probability, as the explicit route computes them."""


def named(route: Route | str) -> Route:
    """The route of this name."""
    try:
        return Route(route)
    except ValueError:
        names = ", ".join(known.value for known in Route)
        raise ValueError(f"{route!r} is not a route: choose {names}, or None for the fastest one") from None


@dataclass(frozen=True)
class Thresholds:
    """Where a route begins to pay."""

    fused_pairs: int  # Q·K of one head
    chunk_elements: int  # hidden-layer numbers B·H·chunk·K·A held at once
    block_keys: int  # shortest sequence worth cutting into blocks
    block_share: float = 1 / 4  # largest share of the keys that a window may span to be worth it
    kernel_scores: int = 2**15  # B·H·Q·K that are worth calling a C kernel for
    long_queries: int = 96  # with fewer queries, preparing the keys takes too much of the kernel for long sequences


# By device type, dtype, and whether a gradient is needed. Measured on a CPU with AVX-512, one thread: all of float32, and where the fused
# kernel begins to pay in float64; chunks and blocks of float64 are set by analogy (half the numbers fill the same cache).
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
    """Those of this device and dtype, or of the nearest that is listed."""
    device, dtype = lookup.query.device.type, lookup.query.dtype
    device = device if (device, torch.float32, True) in THRESHOLDS else "cpu"
    dtype = dtype if (device, dtype, True) in THRESHOLDS else torch.float32
    inputs = (lookup.query, lookup.prepared, lookup.value)
    needs_gradient = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
    return THRESHOLDS[device, dtype, needs_gradient]


def choose(score: Score, selection: Selection, dropout: float, lookup: Lookup) -> Route:
    """The fastest route that gives the explicit result. `dropout` is the rate in force now."""
    limits = thresholds(lookup)
    queries, keys = lookup.query.shape[-2], lookup.prepared.shape[-2]
    if not all(isinstance(length, int) for length in (*lookup.query.shape, *lookup.prepared.shape)):
        # Symbols: a graph exported for every length cannot ask how long its input is.
        return Route.FUSED if fits_fused(score, selection, dropout, lookup) else Route.EXPLICIT
    if lookup.packed is not None:
        return _packed_route(lookup)
    if fits_blockwise(score, selection, dropout, lookup):
        window = sum(reach(lookup.band)) + 1
        if keys >= limits.block_keys and window <= limits.block_share * keys:
            return Route.BLOCKWISE
    if lookup.query.shape[:-2].numel() * queries * keys >= limits.kernel_scores:
        if _fits_sentences(Route.SHORT, score, selection, dropout, lookup):
            return Route.SHORT
        if queries >= limits.long_queries and _fits_sentences(Route.LONG, score, selection, dropout, lookup):
            return Route.LONG
    if fits_fused(score, selection, dropout, lookup) and queries * keys >= limits.fused_pairs:
        return Route.FUSED
    hidden_elements = lookup.prepared.numel() * queries
    if fits_chunked(score, selection, lookup) and hidden_elements > limits.chunk_elements and queries > 1:
        return _unless_compiling(Route.CHUNKED)
    return Route.EXPLICIT


def require_fit(route: Route, score: Score, selection: Selection, dropout: float, lookup: Lookup) -> Route:
    """A route that somebody asked for, if it computes the same as the explicit one."""
    fits = {
        Route.EXPLICIT: True,
        Route.FUSED: fits_fused(score, selection, dropout, lookup),
        Route.SHORT: _fits_sentences(Route.SHORT, score, selection, dropout, lookup),
        Route.LONG: _fits_sentences(Route.LONG, score, selection, dropout, lookup),
        Route.CHUNKED: fits_chunked(score, selection, lookup),
        Route.BLOCKWISE: fits_blockwise(score, selection, dropout, lookup),
    }
    if not fits[route]:
        raise ValueError(
            f"the {route.value} route cannot compute this attention ({score.name} score, {selection.name} selection, dropout {dropout}) "
            f"or inputs of this kind: use the explicit route, or None for the fastest one"
        )
    return _unless_compiling(route)


def attend(route: Route, score: Score, lookup: Lookup, explicit: Explicit) -> tuple[Tensor, Tensor]:
    """Context and log-probability by any route but the explicit one. `explicit` serves the chunked route, part by part."""
    if route is Route.CHUNKED:
        return _chunked(score, lookup, explicit)
    if route is Route.FUSED:
        context = fused(score, lookup)
    elif route is Route.BLOCKWISE:
        context = blockwise(score, lookup, scores)
    else:
        context = _attend_sentences(route, score, lookup)
    return context, context.new_zeros(())


def scores(score: Score, lookup: Lookup) -> Tensor:
    """(..., Q, K); those of hidden layers without holding the layer."""
    same_batch = lookup.query.shape[:-2] == lookup.prepared.shape[:-2]
    if not (HAS_KERNELS and isinstance(score, HiddenLayerScore) and same_batch) or torch.compiler.is_compiling():
        return score(lookup.query, lookup.prepared)
    query, v = score.project_query(lookup.query), score.v.squeeze(-1)
    return hidden_layer.scores(query, lookup.prepared, v, thresholds(lookup).chunk_elements)


# Loops over steps


def scores_over_steps(score: Score, prepared: Tensor) -> Callable[[Tensor], Tensor]:
    """query → score(query, prepared), made once for a loop that asks at every step: with gradients throughout, or without."""
    plain = lambda query: score(query, prepared)  # noqa: E731
    if not HAS_KERNELS or not isinstance(score, HiddenLayerScore) or score.heads is not None or is_hooked(score):
        return plain
    kind, v = type(score), score.v.squeeze(-1)
    own = kind.forward is HiddenLayerScore.forward and kind.project_query is HiddenLayerScore.project_query
    if not own or not hidden_layer.pays_over_steps(prepared, v):
        return plain
    project, look = many_steps.over_many_steps(score.query_matrix), hidden_layer.over_steps(prepared, v)
    return lambda query: look(project(query))


def product_over_steps(matrix: Tensor, bias: Tensor | None = None) -> Callable[[Tensor], Tensor]:
    """x → x @ matrix + bias, made once for a loop that multiplies at every step."""
    if HAS_KERNELS:
        return many_steps.over_many_steps(matrix, bias)
    return lambda x: x @ matrix if bias is None else F.linear(x, matrix.mT, bias)


# Sentences, padded or packed


def packs(score: Score, selection: Selection, dropout: float, like: Tensor) -> bool:
    """Whether packed sequences with the dtype and device of `like` need no padding."""
    some = like.new_empty(1, score.heads or 1, 1, score.query_size)
    return _is_plain(Route.SHORT, score, selection, dropout, Lookup(some, some, some))


def fits_packed(score: Score, selection: Selection, dropout: float, lookup: Lookup) -> bool:
    """Whether a kernel takes packed sequences as they are."""
    packed = lookup.packed
    if packed is None or not HAS_KERNELS:
        return False
    in_order = lookup.band == CAUSAL and packed.queries is packed.keys
    return (lookup.band is None or in_order) and _is_plain(_packed_route(lookup), score, selection, dropout, lookup)


def _packed_route(lookup: Lookup) -> Route:
    assert lookup.packed is not None
    return Route.SHORT if lookup.packed.keys.longest <= sentences.LONGEST_SHORT else Route.LONG


def _kernel(route: Route) -> "sentences.Kernel":
    return sentences.Kernel.SHORT if route is Route.SHORT else sentences.Kernel.LONG


def _fits_sentences(route: Route, score: Score, selection: Selection, dropout: float, lookup: Lookup) -> bool:
    """Soft selection over a dot product, where only whole keys are hidden, or what comes later in the same sequence."""
    if score.heads is None:
        lookup = _with_heads(lookup)
    queries, keys = lookup.query.shape[-2], lookup.prepared.shape[-2]
    in_order = lookup.band == CAUSAL and lookup.first_query == 0 and queries == keys
    return (
        _is_plain(route, score, selection, dropout, lookup)
        and lookup.query.shape[0] == lookup.prepared.shape[0] == lookup.value.shape[0]
        and (route is Route.LONG or keys <= sentences.longest_short(lookup.query.shape[-1]))
        and (lookup.band is None or in_order)
        and (lookup.visible is None or _hides_keys_for_all(lookup.visible, lookup.query.shape[0]))
    )


def _is_plain(route: Route, score: Score, selection: Selection, dropout: float, lookup: Lookup) -> bool:
    query, prepared, value = lookup.query, lookup.prepared, lookup.value
    return (
        HAS_KERNELS
        and isinstance(score, DotProductScore)
        and isinstance(selection, Soft)
        and dropout == 0.0
        and lookup.bias is None
        and query.dim() == prepared.dim() == value.dim() == 4
        and query.shape[1] == prepared.shape[1] == value.shape[1] == (score.heads or query.shape[1])
        and prepared.shape[-2] == value.shape[-2]
        and sentences.can_compute(_kernel(route), query, prepared, value)
    )


def _attend_sentences(route: Route, score: Score, lookup: Lookup) -> Tensor:
    """(B, H, Q, D), or (B, Q, D) without heads"""
    assert isinstance(score, DotProductScore)
    four = _with_heads(lookup) if score.heads is None else lookup
    inputs, causal = (score.project_query(four.query), four.prepared, four.value), four.band is not None
    if lookup.packed is not None:
        starts = (lookup.packed.queries.starts, lookup.packed.keys.starts)
        return sentences.attend_packed(_kernel(route), *inputs, *starts, causal, score.scale)
    context = sentences.attend(_kernel(route), *inputs, four.visible, causal, score.scale)
    return context if lookup is four else context.squeeze(1)


def _with_heads(lookup: Lookup) -> Lookup:
    """Without heads, (B, length, D), it is one head."""
    inputs, visible = (lookup.query, lookup.prepared, lookup.value), lookup.visible
    if any(x.dim() != 3 for x in inputs) or (visible is not None and visible.dim() > 3):
        return lookup
    query, prepared, value = (x.unsqueeze(1) for x in inputs)
    if visible is not None and visible.dim() == 3:
        visible = visible.unsqueeze(1)
    return replace(lookup, query=query, prepared=prepared, value=value, visible=visible)


def _hides_keys_for_all(visible: Tensor, batch: int) -> bool:
    """The same for all heads and queries: (B or 1, 1, 1, K), or the last of these axes."""
    shape = (1,) * (4 - visible.dim()) + visible.shape
    return visible.dtype is torch.bool and len(shape) == 4 and shape[0] in (1, batch) and shape[1:3] == (1, 1)


# Hidden layers in chunks


def fits_chunked(score: Score, selection: Selection, lookup: Lookup) -> bool:
    same_batch = lookup.query.shape[:-2] == lookup.prepared.shape[:-2]
    return HAS_KERNELS and isinstance(score, HiddenLayerScore) and not selection.samples and same_batch


def _unless_compiling(route: Route) -> Route:
    """How much of a compiled graph is held at a time is for its compiler to decide."""
    return Route.EXPLICIT if route is Route.CHUNKED and torch.compiler.is_compiling() else route


def _chunked(score: Score, lookup: Lookup, explicit: Explicit) -> tuple[Tensor, Tensor]:
    """The explicit route for a part of the queries at a time, whose hidden layers are computed in chunks that fit the cache.

    Backward computes every part again, so that neither hidden layers nor all scores are ever held: B·K·A numbers and one part.
    """

    def attend_part(part: Lookup) -> tuple[Tensor, Tensor]:
        return explicit(part, scores(score, part))

    queries = lookup.query.shape[-2]
    score_count = max(1, lookup.prepared.numel() // lookup.prepared.shape[-1] * queries)  # B·H·Q·K
    size = max(1, SCORES_HELD * queries // score_count)
    if size >= queries:
        return attend_part(lookup)
    parts = [lookup.rows(start, min(start + size, queries)) for start in range(0, queries, size)]
    answers = [
        checkpoint(attend_part, part, use_reentrant=False) if torch.is_grad_enabled() else attend_part(part)
        for part in parts
    ]
    contexts, log_probs = zip(*answers, strict=True)
    sampled = log_probs[0].dim() > 0
    return torch.cat(contexts, dim=-2), torch.cat(log_probs, dim=-1) if sampled else log_probs[0]


# Vectors


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x cos + (x with its halves exchanged) sin: x (..., N, D), cos and sin (N, D), where sin has the sign of each half."""
    if HAS_KERNELS and pointwise.can_compute(x):
        return pointwise.turned(x, cos, sin)
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat((right, left), dim=-1) * sin


class RMSNorm(torch.nn.RMSNorm):
    """x / √(mean x² + ε) · gain (Zhang 2019)"""

    def forward(self, x: Tensor) -> Tensor:
        if HAS_KERNELS and self.eps is not None and pointwise.can_compute(x):
            return pointwise.rms_norm(x, self.weight, self.eps)
        return super().forward(x)


# Neighbourhoods of pixels


def attend_locally(
    definition: Callable[..., Tensor],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    rows: Tensor,
    columns: Tensor,
    stride: int,
) -> Tensor:
    """What `definition` computes of the same arguments (local2d.py), without copying every pixel's neighbourhood."""
    if not HAS_KERNELS or torch.compiler.is_exporting():
        return definition(query, key, value, rows, columns, stride)
    return neighbourhoods.attend(query, key, value, rows, columns, stride)
