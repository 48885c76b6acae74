"""Attention in three steps: score the query against each key, select (normalise), sum the values by weight.

    e = score(query, key)            # how well does each key fit
    a = select(e)                    # weights, 0 where not visible
    context = a @ value              # what is read

Axis legend: B batch, H heads, Q queries, K keys, D features. `Attend` takes (..., length, D), usually (B, length, D).
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.attention import routes
from saccade.attention.border import check_question, require_share
from saccade.attention.lookup import Lookup
from saccade.attention.memory import Memory
from saccade.attention.packing import Packed
from saccade.attention.recording import is_watched, record
from saccade.attention.routes import Route
from saccade.attention.scores import Score
from saccade.attention.selection import Alignment, Selection, Soft
from saccade.attention.visibility import Band, both


class Attended(NamedTuple):
    context: Tensor  # (..., Q, D)
    log_prob: Tensor  # (..., Q) of what was sampled, or a single 0


class Attend(nn.Module):
    """One attention over any score and selection.

    `attend(query, key, value)` for whole sequences. For many steps over one source: `memory = attend.remember(key, value)` once,
    then `attend.recall(query, memory)` per step. `visible` is any bool mask that broadcasts to (..., Q, K); `band` is a causal or
    sliding window; `first_query` is the position of the first query, for bands and local selections while decoding; `packed` says
    that sequences stand one after the other in one row (1, ..., N, D), each to be attended to by itself. Dropout acts on the weights.
    `route` forces one way of computing, for tests and benchmarks.
    """

    def __init__(
        self, score: Score, selection: Selection | None = None, dropout: float = 0.0, route: Route | str | None = None
    ):
        super().__init__()
        if not isinstance(score, nn.Module):  # a Score, or one in a wrapper
            raise ValueError(f"score must be an instance with its sizes, such as ScaledDot(64); got {score!r}")
        if not isinstance(selection, nn.Module | None):
            raise ValueError(f"selection must be an instance, such as Hard(), or None for Soft(); got {selection!r}")
        self.score = score
        self.selection = Soft() if selection is None else selection
        self.dropout = require_share(dropout)
        self.dropout_share = 1.0  # training may begin with less
        self.route = None if route is None else routes.named(route)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor | None = None,
        *,
        visible: Tensor | None = None,
        band: Band | None = None,
        bias: Tensor | None = None,
        first_query: int = 0,
        packed: Packed | None = None,
    ) -> Attended:
        memory = self.remember(key, value)
        return self.recall(query, memory, visible=visible, band=band, bias=bias, first_query=first_query, packed=packed)

    def remember(self, key: Tensor, value: Tensor | None = None) -> Memory:
        """The memory over these keys; without values, the values are the keys."""
        if key.shape[-1] != self.score.key_size:
            raise ValueError(f"this attention takes keys of size {self.score.key_size}; got {key.shape[-1]}")
        if value is not None and value.shape[-2] != key.shape[-2]:
            raise ValueError(f"every key needs a value; got {key.shape[-2]} keys and {value.shape[-2]} values")
        return Memory(self.score.prepare(key), key if value is None else value)

    def recall(
        self,
        query: Tensor,
        memory: Memory,
        *,
        visible: Tensor | None = None,
        band: Band | None = None,
        bias: Tensor | None = None,
        first_query: int = 0,
        packed: Packed | None = None,
    ) -> Attended:
        lookup = Lookup(query, memory.prepared, memory.value, visible, band, bias, first_query, packed)
        check_question(lookup, self.score.query_size)
        if packed is not None and not self._takes_packed(lookup):
            return self._recall_padded(lookup.padded(), packed)
        route = self._choose_route(lookup)
        if route is not Route.EXPLICIT:
            return self._recall_by(route, lookup)
        scores = memory.scores(self.score, query)
        weights, log_prob = self._select(scores, lookup)
        record(self, weights)
        return Attended(memory.sum(self._drop(weights)), log_prob)

    def packs(self, like: Tensor) -> bool:
        """Whether packed sequences with the dtype and device of `like` need no padding here."""
        dropout = self.dropout if self.training else 0.0
        return self.route is None and routes.packs(self.score, self.selection, dropout, like)

    def _select(self, scores: Tensor, lookup: Lookup) -> Alignment:
        visible = lookup.mask()
        if lookup.bias is not None:
            scores = scores + lookup.bias
            # A bias of -inf hides, as it does in the fused kernel.
            visible = both(visible, ~torch.isneginf(lookup.bias))
        return self.selection(scores, visible, lookup.query, lookup.first_query)

    def _drop(self, weights: Tensor) -> Tensor:
        return F.dropout(weights, self.dropout * self.dropout_share, self.training)

    def _dropout_rate(self) -> float:
        return self.dropout * self.dropout_share if self.training else 0.0

    def _choose_route(self, lookup: Lookup) -> Route:
        if self.route is None:
            return routes.choose(self.score, self.selection, self._dropout_rate(), lookup)
        return routes.require_fit(self.route, self.score, self.selection, self._dropout_rate(), lookup)

    def _recall_by(self, route: Route, lookup: Lookup) -> Attended:
        """By a route that holds no weights; whoever records them gets them computed as well."""
        if is_watched(self):
            with torch.no_grad():
                apart = lookup.padded()
                record(self, self._select(routes.scores(self.score, apart), apart).weights)
        return Attended(*routes.attend(route, self.score, lookup, self._explicit))

    def _explicit(self, lookup: Lookup, scores: Tensor) -> tuple[Tensor, Tensor]:
        weights, log_prob = self._select(scores, lookup)
        return self._drop(weights) @ lookup.value, log_prob  # (..., Q, K) @ (..., K, D) -> (..., Q, D)

    def _takes_packed(self, lookup: Lookup) -> bool:
        rate = self._dropout_rate()
        return self.route is None and routes.fits_packed(self.score, self.selection, rate, lookup)

    def _recall_padded(self, lookup: Lookup, packed: Packed) -> Attended:
        memory = Memory(lookup.prepared, lookup.value)
        context, log_prob = Attend.recall(self, lookup.query, memory, visible=lookup.visible, band=lookup.band)
        if log_prob.dim():
            log_prob = packed.queries.pack(log_prob[..., None])[..., 0]
        return Attended(packed.queries.pack(context), log_prob)
