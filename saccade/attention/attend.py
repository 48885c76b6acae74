"""Attention in three steps: score the query against each key, select (normalise), sum the values by weight.

    e = score(query, key)            # how well does each key fit
    a = select(e)                    # weights, 0 where not visible
    context = a @ value              # what is seen

Axis legend: B batch, H heads, Q queries, K keys, D features. `Attend` takes (..., length, D), usually (B, length, D).
"""

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.attention import routes, sentences
from saccade.attention.border import check_question, require_share
from saccade.attention.lookup import Lookup
from saccade.attention.many_steps import over_many_steps
from saccade.attention.packing import Packed
from saccade.attention.recording import is_watched, record
from saccade.attention.routes import Route
from saccade.attention.scores import HiddenLayerScore, Score
from saccade.attention.selection import Alignment, Selection, Soft
from saccade.attention.sentence_kernels import Kernel
from saccade.attention.visibility import Band, both


class Attended(NamedTuple):
    context: Tensor  # (..., Q, D)
    log_prob: Tensor  # (..., Q) of what was sampled, or a single 0


class Memory(NamedTuple):
    """What can be looked at, with all that depends on it alone computed once. Rows can be taken and positions added."""

    prepared: Tensor  # (..., K, as the score prepared it)
    value: Tensor  # (..., K, D)

    def scores(self, score: Score, query: Tensor) -> Tensor:
        """(..., Q, D) → (..., Q, K)"""
        return score(query, self.prepared)

    def sum(self, weights: Tensor) -> Tensor:
        """(..., Q, K) → (..., Q, D)"""
        return weights @ self.value

    def over_steps(self) -> "Memory":
        """The same for a loop that looks at it at every step: what stays is computed once, its gradient from all steps at once."""
        return _MemoryOverSteps(*self)

    def rows(self, index: Tensor) -> "Memory":
        return Memory(self.prepared[index], self.value[index])

    def then(self, later: "Memory") -> "Memory":
        return Memory(torch.cat((self.prepared, later.prepared), dim=-2), torch.cat((self.value, later.value), dim=-2))


class _MemoryOverSteps(Memory):
    def scores(self, score: Score, query: Tensor) -> Tensor:
        asked = score, torch.is_grad_enabled()
        if asked not in self._answers:
            self._answers[asked] = score.over_steps(self.prepared)
        return self._answers[asked](query)

    @cached_property
    def _answers(self) -> dict[tuple[Score, bool], Callable[[Tensor], Tensor]]:
        return {}

    @cached_property
    def sum(self) -> Callable[[Tensor], Tensor]:
        return over_many_steps(self.value)


class Attend(nn.Module):
    """One attention over any score and selection.

    `attend(query, key, value)` for whole sequences. For many steps over one source: `memory = attend.remember(key, value)` once,
    then `attend.recall(query, memory)` per step. `visible` is any bool mask that broadcasts to (..., Q, K); `band` is a causal or
    sliding window; `first_query` is the position of the first query, for bands and local selections while decoding; `packed` says
    that sequences stand one after the other in one row (1, ..., N, D), each to be looked at by itself. Dropout works on the weights.
    `route` forces one way of computing, for tests and benchmarks.
    """

    def __init__(
        self, score: Score, selection: Selection | None = None, dropout: float = 0.0, route: Route | str | None = None
    ):
        super().__init__()
        if not isinstance(score, nn.Module):  # a Score, or one in a wrapper
            raise ValueError(f"score is one that was made for its sizes, such as ScaledDot(64); got {score!r}")
        if not isinstance(selection, nn.Module | None):
            raise ValueError(f"selection is one that was made, such as Hard(), or None for Soft(); got {selection!r}")
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
        """The memory over these keys; the values are the keys themselves unless given."""
        if key.shape[-1] != self.score.key_size:
            raise ValueError(f"this attention was made for keys of size {self.score.key_size} and got {key.shape[-1]}")
        if value is not None and value.shape[-2] != key.shape[-2]:
            raise ValueError(f"every key has a value; got {key.shape[-2]} keys and {value.shape[-2]} values")
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
        if query.shape[-1] != self.score.query_size:
            raise ValueError(
                f"this attention was made for queries of size {self.score.query_size} and got {query.shape[-1]}"
            )
        lookup = Lookup(query, memory.prepared, memory.value, visible, band, bias, first_query)
        check_question(lookup)
        dropout = self.dropout * self.dropout_share if self.training else 0.0
        if packed is not None:
            return self._recall_packed(lookup, packed, dropout)
        if self.route is None:
            route = routes.choose(self.score, self.selection, dropout, lookup)
        else:
            route = routes.require_fit(self.route, self.score, self.selection, dropout, lookup)
        if route is Route.CHUNKED and torch.compiler.is_compiling():
            route = (
                Route.EXPLICIT
            )  # the same numbers; how much of a graph to hold at a time is for its compiler to decide
        if route is Route.EXPLICIT:
            alignment = self._select(memory.scores(self.score, query), lookup)
            if is_watched(self):
                record(self, alignment.weights)
            return Attended(memory.sum(self._drop(alignment.weights)), alignment.log_prob)
        if is_watched(self):
            with torch.no_grad():
                chunks = routes.fits_chunked(self.score, self.selection, lookup)
                record(self, (self._align_in_chunks if chunks else self._align)(lookup).weights)
        if route is Route.CHUNKED:
            return Attended(*routes.chunked(self._in_chunks, lookup))
        return Attended(routes.WITHOUT_WEIGHTS[route](self.score, lookup), query.new_zeros(()))

    def packs(self, like: Tensor) -> bool:
        """Whether packed sequences of a tensor's dtype and device need no padding here (see sentences.py)."""
        dropout = self.dropout if self.training else 0.0
        some = like.new_empty(1, self.score.heads or 1, 1, self.score.query_size)
        lookup = Lookup(some, some, some)
        return self.route is None and sentences.is_plain(Kernel.SHORT, self.score, self.selection, dropout, lookup)

    def _recall_packed(self, lookup: Lookup, packed: Packed, dropout: float) -> Attended:
        """Each sequence by itself: without padding where a kernel can, padded otherwise."""
        if lookup.visible is not None or lookup.bias is not None or lookup.first_query:
            raise ValueError("packed sequences may have a band, but no mask, bias or first query: pad them instead")
        packed.check(lookup.query, lookup.prepared)
        if self.route is None and sentences.fits_packed(self.score, self.selection, dropout, lookup, packed):
            if is_watched(self):
                with torch.no_grad():
                    record(self, self._align(lookup.padded(packed)).weights)
            return Attended(sentences.attend_packed(self.score, lookup, packed), lookup.query.new_zeros(()))
        apart = lookup.padded(packed)
        memory = Memory(apart.prepared, apart.value)
        context, log_prob = Attend.recall(self, apart.query, memory, visible=apart.visible, band=apart.band)
        if log_prob.dim():
            log_prob = packed.queries.pack(log_prob[..., None])[..., 0]
        return Attended(packed.queries.pack(context), log_prob)

    def _align(self, lookup: Lookup) -> Alignment:
        return self._select(self.score(lookup.query, lookup.prepared), lookup)

    def _select(self, scores: Tensor, lookup: Lookup) -> Alignment:
        visible = lookup.mask()
        if lookup.bias is not None:
            scores = scores + lookup.bias
            visible = both(
                visible, ~torch.isneginf(lookup.bias)
            )  # a bias of -inf hides, as it does in the fused kernel
        return self.selection(scores, visible, lookup.query, lookup.first_query)

    def _drop(self, weights: Tensor) -> Tensor:
        return F.dropout(weights, self.dropout * self.dropout_share, self.training)

    def _align_in_chunks(self, lookup: Lookup) -> Alignment:
        assert isinstance(self.score, HiddenLayerScore)
        elements = routes.thresholds(lookup).chunk_elements
        return self._select(self.score.in_chunks(lookup.query, lookup.prepared, elements), lookup)

    def _in_chunks(self, lookup: Lookup) -> tuple[Tensor, Tensor]:
        weights, log_prob = self._align_in_chunks(lookup)
        return self._drop(weights) @ lookup.value, log_prob  # (..., Q, K) @ (..., K, D) -> (..., Q, D)
