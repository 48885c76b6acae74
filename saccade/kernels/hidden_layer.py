"""vᵀ tanh(q + k) for every pair of a query and a key: the scores of additive attention without holding their hidden layer.

    tanh(q + k) = 1 - 2 / (1 + e²ᵠ e²ᵏ)

Each exponential belongs to a query or to a key alone, so a pair costs two products, two sums and a reciprocal, on a CPU about a sixth of
a tanh. Where an exponential would overflow, tanh itself is taken. The rounding error is that of numbers near 1, also where tanh is much
smaller. `scores` computes a few queries at a time and recomputes them in backward; `over_steps` serves a loop that asks at every step.
Both use C where they can (hidden_layer_compiled.py).

Reference: `reference` below.
Gain: `over_steps` 1.09 and 1.10 times in training (two looks, multi30k-de-en-rnn), of which C has 1.03 and 1.04;
C in `scores` 5.9 times against chunks by torch, forward and backward of one layer (Q = K = 1024, A = 256).

Axis legend: B batch, H heads, Q queries, K keys, A hidden size.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from saccade.kernels import hidden_layer_compiled
from saccade.kernels.derivatives import first_derivative_only, gradients_by_torch
from saccade.kernels.many_steps import current_pass, drop_after_pass, is_plain, pays

FEWEST = 2**16  # elements of all keys for which preparing a loop over steps pays


def scores(query: Tensor, key: Tensor, v: Tensor, elements: int) -> Tensor:
    """(..., Q, A), (..., K, A), v (A,) or (H, A) → (..., Q, K), holding at most `elements` numbers of the hidden layer at a time."""
    return _Chunked.apply(query, key, v, elements)


def over_steps(key: Tensor, v: Tensor) -> Callable[[Tensor], Tensor]:
    """q (..., Q, A) → vᵀ tanh(q + k) (..., Q, K), for a loop that asks at every step; made once for its keys (..., K, A).

    The gradients of keys and v are summed over the steps and delivered after the last one (see many_steps.py). As there, only first
    derivatives exist, none of `torch.func`, and gradients must be enabled, or not, as when it was made. Ask `pays_over_steps` first.
    """
    tanh = TanhOfSums(key.detach())
    if not torch.is_grad_enabled():
        return lambda query: _weighted_by_v(tanh(query), v)
    sums: dict[int, _Gradients] = {}
    ticket = _Ticket.apply(key, v, sums)
    return lambda query: _Step.apply(query, tanh, key.detach(), v.detach(), ticket, sums)


def pays_over_steps(key: Tensor, v: Tensor) -> bool:
    """Whether there is enough to compute at every step and, where gradients are enabled, something that learns."""
    learns_or_need_not = pays(key) or pays(v) if torch.is_grad_enabled() else is_plain(key)
    return learns_or_need_not and key.numel() >= FEWEST


def reference(query: Tensor, key: Tensor, v: Tensor) -> Tensor:
    """The definition, all pairs at once, with derivatives of every order."""
    hidden = torch.tanh(query.unsqueeze(-2) + key.unsqueeze(-3))  # (..., Q, K, A)
    return torch.einsum("...qka,...a->...qk", hidden, v.to(hidden.dtype))


class TanhOfSums:
    """tanh(q + k) of fixed keys (..., K, A) and any query, without gradients."""

    def __init__(self, key: Tensor):
        self._key = key
        self.exponential = (2 * key).exp().contiguous() if _has_exponential(key) else None

    def __call__(self, query: Tensor, out: Tensor | None = None) -> Tensor:
        """(..., Q, A) → (..., Q, K, A)"""
        query, key = query[..., None, :], self._key[..., None, :, :]
        if self.exponential is None or not _has_exponential(query):
            return torch.add(query, key, out=out).tanh_()
        hidden = torch.mul((2 * query).exp(), self.exponential[..., None, :, :], out=out)
        hidden = hidden.add_(1.0).reciprocal_()
        return torch.add(_one(hidden), hidden, alpha=-2.0, out=hidden)

    def exponentials(self, query: Tensor, v: Tensor) -> tuple[Tensor, Tensor] | None:
        """e²ᵠ and e²ᵏ, where the C kernel takes them."""
        exists = self.exponential is not None and hidden_layer_compiled.can_compute(query, self.exponential, v)
        if self.exponential is None or not exists or not _has_exponential(query):
            return None
        return (2 * query).exp(), self.exponential


def _has_exponential(x: Tensor) -> bool:
    """Whether e²ˣ can be multiplied with another such number; half precision is too coarse for it, and a GPU has a fast tanh."""
    if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64) or not x.numel():
        return False
    least, most = x.aminmax()
    return max(-least.item(), most.item()) < math.log(torch.finfo(x.dtype).max) / 4  # False for NaN


def _one(like: Tensor) -> Tensor:
    return like.new_ones(())


class _Chunked(Function):
    """A few queries at a time, in one buffer that is reused."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, v: Tensor, elements: int) -> Tensor:
        ctx.elements = elements
        exponentials = TanhOfSums(key).exponentials(query, v)
        if exponentials is not None:
            ctx.save_for_backward(query, key, v, *exponentials)
            return hidden_layer_compiled.scores(*exponentials, v)
        ctx.save_for_backward(query, key, v)
        return torch.cat([_weighted_by_v(hidden, v) for _, hidden in _hidden_chunks(query, key, elements)], dim=-2)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, v, *exponentials = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative
            return *gradients_by_torch(reference, (query, key, v), gradient, ctx.needs_input_grad), None
        sums = _Gradients(key, v)
        if exponentials:
            query_exponential, key_exponential = exponentials
            query_gradient = sums.add_compiled(query_exponential, key_exponential, gradient)
            return query_gradient, *sums.of_key_and_v(), None
        query_gradient = torch.empty_like(query)
        for rows, hidden in _hidden_chunks(query, key, ctx.elements):
            query_gradient[..., rows, :] = sums.add(hidden, gradient[..., rows, :], hidden)
        return query_gradient, *sums.of_key_and_v(), None


class _Step(Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        tanh: TanhOfSums,
        key: Tensor,
        v: Tensor,
        ticket: Tensor,
        sums: "dict[int, _Gradients]",
    ) -> Tensor:
        ctx.sums = sums
        exponentials = tanh.exponentials(query, v)
        ctx.is_compiled = exponentials is not None
        if exponentials is not None:
            ctx.save_for_backward(*exponentials, v)
            return hidden_layer_compiled.scores(*exponentials, v)
        hidden = tanh(query)
        ctx.save_for_backward(hidden, key, v)
        return _weighted_by_v(hidden, v)

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        first, key, v = ctx.saved_tensors
        number = current_pass()
        if number not in ctx.sums:
            ctx.sums[number] = _Gradients(key, v)
            drop_after_pass(number, ctx.sums)
        sums = ctx.sums[number]
        query_gradient = sums.add_compiled(first, key, gradient) if ctx.is_compiled else sums.add(first, gradient)
        return query_gradient, None, None, None, gradient.new_zeros(()), None


class _Ticket(Function):
    """An input of every step, so that its backward runs after those of all steps."""

    @staticmethod
    def forward(ctx: Any, key: Tensor, v: Tensor, sums: "dict[int, _Gradients]") -> Tensor:
        ctx.sums = sums
        return key.new_zeros(())

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return *ctx.sums.pop(current_pass()).of_key_and_v(), None


class _Gradients:
    """Those of keys and v, summed over queries; v is multiplied in at the end."""

    def __init__(self, key: Tensor, v: Tensor):
        self._v = v
        self._of_key, self._of_v, self._buffer = key.new_zeros(key.shape), v.new_zeros(v.shape), key.new_empty(0)

    def add(self, hidden: Tensor, gradient: Tensor, buffer: Tensor | None = None) -> Tensor:
        """Add hidden (..., Q, K, A) with gradient (..., Q, K), and return the gradient of these queries (..., Q, A)."""
        self._of_v += _weighted_sum(hidden, gradient, self._v)
        if buffer is None:
            buffer = self._buffer = self._buffer.resize_(hidden.shape)
        before_tanh = torch.addcmul(_one(hidden), hidden, hidden, value=-1, out=buffer).mul_(gradient[..., None])
        of_key = before_tanh.squeeze(-3) if hidden.shape[-3] == 1 else before_tanh.sum(-3)
        self._of_key += of_key.sum_to_size(self._of_key.shape)
        return before_tanh.sum(-2) * self._v[..., None, :]

    def add_compiled(self, query: Tensor, key: Tensor, gradient: Tensor) -> Tensor:
        """The same from the exponentials of queries (..., Q, A) and keys (..., K, A)."""
        of_query = hidden_layer_compiled.add_gradients(gradient, query, key, self._v, self._of_key, self._of_v)
        return of_query * self._v[..., None, :]

    def of_key_and_v(self) -> tuple[Tensor, Tensor]:
        return self._of_key * self._v[..., None, :], self._of_v


def _weighted_by_v(hidden: Tensor, v: Tensor) -> Tensor:
    """(..., Q, K, A), (A,) or (H, A) → (..., Q, K). Without heads it is one product, where einsum makes one per row of the batch."""
    if v.dim() == 1:
        return torch.mv(hidden.flatten(0, -2), v.to(hidden.dtype)).view(hidden.shape[:-1])  # autocast does not cover mv
    return torch.einsum("...qka,...a->...qk", hidden, v)


def _weighted_sum(hidden: Tensor, weights: Tensor, v: Tensor) -> Tensor:
    """(..., Q, K, A), (..., Q, K) → the shape of v"""
    if v.dim() == 1:
        return torch.mv(hidden.flatten(0, -2).t(), weights.reshape(-1))
    return torch.einsum("...qka,...qk->...a", hidden, weights).sum_to_size(v.shape)


def _hidden_chunks(query: Tensor, key: Tensor, elements: int) -> Iterator[tuple[slice, Tensor]]:
    """tanh(q + k) (..., rows, K, A) for one chunk of queries after another, always in the same buffer."""
    queries = query.shape[-2]
    size = max(1, min(queries, elements // max(1, key.numel())))
    tanh, buffer = TanhOfSums(key), key.new_empty(*key.shape[:-2], size, *key.shape[-2:])
    for start in range(0, queries, size):
        rows = slice(start, min(start + size, queries))
        yield rows, tanh(query[..., rows, :], out=buffer[..., : rows.stop - start, :, :])
