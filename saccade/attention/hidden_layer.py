"""The hidden layer of the additive scores, vᵀ tanh(q + k), with a unit for every pair of a query and a key.

    tanh(q + k) = 1 - 2 / (1 + e²ᵠ e²ᵏ)

The exponentials belong to a query or to a key alone. So a pair costs two products, two sums and a reciprocal, on a CPU about a sixth of a
tanh. Where an exponential would leave the range of its dtype, tanh itself is taken. The error is that of numbers near 1, also where tanh
is much smaller.

Axis legend: B batch, H heads, Q queries, K keys, A hidden size.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from saccade.attention import hidden_layer_kernel as kernel
from saccade.attention.compiled import gradients_by_torch
from saccade.attention.derivatives import first_derivative_only
from saccade.attention.many_steps import current_pass, forget_after, is_plain, pays

FEWEST = 2**16  # numbers of all keys, for steps to be worth preparing


class TanhOfSums:
    """tanh(q + k) of these keys (..., K, A) and any query; nothing here has a gradient."""

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

    def compiled(self, query: Tensor, v: Tensor) -> tuple[Tensor, Tensor] | None:
        """The exponentials of query and keys, where a kernel takes them."""
        if (
            self.exponential is None
            or not kernel.can_compute(query, self.exponential, v)
            or not _has_exponential(query)
        ):
            return None
        return (2 * query).exp(), self.exponential


def _has_exponential(x: Tensor) -> bool:
    """Whether e²ˣ of this and of another that says so can be multiplied; halves are too coarse for it, and a GPU has a fast tanh."""
    if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64) or not x.numel():
        return False
    least, most = x.aminmax()
    return max(-least.item(), most.item()) < math.log(torch.finfo(x.dtype).max) / 4  # false for NaN


def _one(like: Tensor) -> Tensor:
    return like.new_ones(())


class ChunkedHiddenLayer(Function):
    """vᵀ tanh(q + k) for a few queries at a time, in one buffer that is used again and again."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, v: Tensor, elements: int) -> Tensor:
        ctx.elements = elements
        exponentials = TanhOfSums(key).compiled(query, v)
        if exponentials is not None:
            ctx.save_for_backward(query, key, v, *exponentials)
            return kernel.scores(*exponentials, v)
        ctx.save_for_backward(query, key, v)
        return torch.cat([_scores(hidden, v) for _, hidden in _hidden_chunks(query, key, elements)], dim=-2)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, v, *exponentials = ctx.saved_tensors
        if torch.is_grad_enabled():  # to be differentiated again
            return *gradients_by_torch(_by_definition, (query, key, v), gradient, ctx.needs_input_grad), None
        sums = _Gradients(key, v)
        if exponentials:
            of_query, of_key = exponentials
            return sums.add_compiled(of_query, of_key, gradient), *sums.of_key_and_v(), None
        of_query = torch.empty_like(query)
        for rows, hidden in _hidden_chunks(query, key, ctx.elements):
            of_query[..., rows, :] = sums.add(hidden, gradient[..., rows, :], hidden)
        return of_query, *sums.of_key_and_v(), None


def over_steps(key: Tensor, v: Tensor) -> Callable[[Tensor], Tensor]:
    """q (..., Q, A) → vᵀ tanh(q + k) (..., Q, K), for a loop that asks at every step; made once for its keys (..., K, A).

    The gradients of the keys and of v are gathered step by step and leave after the last one (see many_steps.py). As there, it has a first
    derivative only, none of `torch.func`'s kinds, and gradients must be wanted, or not, as when it was made. Ask `pays_over_steps` first.
    """
    sums = TanhOfSums(key.detach())
    if not torch.is_grad_enabled():
        return lambda query: _scores(sums(query), v)
    gathered: dict[int, _Gradients] = {}
    ticket = _Ticket.apply(key, v, gathered)
    return lambda query: _Step.apply(query, sums, key.detach(), v.detach(), ticket, gathered)


def pays_over_steps(key: Tensor, v: Tensor) -> bool:
    """Whether there is enough to compute at every step, and somebody to get the gradients where gradients are wanted."""
    learns_or_need_not = pays(key) or pays(v) if torch.is_grad_enabled() else is_plain(key)
    return learns_or_need_not and key.numel() >= FEWEST


class _Step(Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        sums: TanhOfSums,
        key: Tensor,
        v: Tensor,
        ticket: Tensor,
        gathered: "dict[int, _Gradients]",
    ) -> Tensor:
        ctx.gathered = gathered
        exponentials = sums.compiled(query, v)
        ctx.is_compiled = exponentials is not None
        if exponentials is not None:
            ctx.save_for_backward(*exponentials, v)
            return kernel.scores(*exponentials, v)
        hidden = sums(query)
        ctx.save_for_backward(hidden, key, v)
        return _scores(hidden, v)

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        first, key, v = ctx.saved_tensors
        now = current_pass()
        if now not in ctx.gathered:
            ctx.gathered[now] = _Gradients(key, v)
            forget_after(now, ctx.gathered)
        gathered = ctx.gathered[now]
        of_query = gathered.add_compiled(first, key, gradient) if ctx.is_compiled else gathered.add(first, gradient)
        return of_query, None, None, None, gradient.new_zeros(()), None


class _Ticket(Function):
    """Its gradient comes after those of all steps, which hold it."""

    @staticmethod
    def forward(ctx: Any, key: Tensor, v: Tensor, gathered: "dict[int, _Gradients]") -> Tensor:
        ctx.gathered = gathered
        return key.new_zeros(())

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return *ctx.gathered.pop(current_pass()).of_key_and_v(), None


class _Gradients:
    """Those of keys and v, summed over queries; v is multiplied in at the end."""

    def __init__(self, key: Tensor, v: Tensor):
        self._v = v
        self._of_key, self._of_v, self._memory = key.new_zeros(key.shape), v.new_zeros(v.shape), key.new_empty(0)

    def add(self, hidden: Tensor, gradient: Tensor, memory: Tensor | None = None) -> Tensor:
        """Of some queries: hidden (..., Q, K, A), gradient (..., Q, K) → the gradient of these queries (..., Q, A)."""
        self._of_v += _weighted_sum(hidden, gradient, self._v)
        if memory is None:
            memory = self._memory = self._memory.resize_(hidden.shape)
        before_tanh = torch.addcmul(_one(hidden), hidden, hidden, value=-1, out=memory).mul_(gradient[..., None])
        of_key = before_tanh.squeeze(-3) if hidden.shape[-3] == 1 else before_tanh.sum(-3)
        self._of_key += of_key.sum_to_size(self._of_key.shape)
        return before_tanh.sum(-2) * self._v[..., None, :]

    def add_compiled(self, query: Tensor, key: Tensor, gradient: Tensor) -> Tensor:
        """The same from the exponentials of queries (..., Q, A) and keys (..., K, A)."""
        of_query = kernel.add_gradients(gradient, query, key, self._v, self._of_key, self._of_v)
        return of_query * self._v[..., None, :]

    def of_key_and_v(self) -> tuple[Tensor, Tensor]:
        return self._of_key * self._v[..., None, :], self._of_v


def _by_definition(query: Tensor, key: Tensor, v: Tensor) -> Tensor:
    """All units at once, by functions of torch that have derivatives of every order."""
    hidden = torch.tanh(query.unsqueeze(-2) + key.unsqueeze(-3))  # (..., Q, K, A)
    return torch.einsum("...qka,...a->...qk", hidden, v.to(hidden.dtype))


def _scores(hidden: Tensor, v: Tensor) -> Tensor:
    """(..., Q, K, A), (A,) or (H, A) → (..., Q, K). Without heads it is one product, for which einsum makes one per row of the batch."""
    if v.dim() == 1:
        return torch.mv(hidden.flatten(0, -2), v.to(hidden.dtype)).view(hidden.shape[:-1])  # autocast knows no mv
    return torch.einsum("...qka,...a->...qk", hidden, v)


def _weighted_sum(hidden: Tensor, weights: Tensor, v: Tensor) -> Tensor:
    """(..., Q, K, A), (..., Q, K) → like v"""
    if v.dim() == 1:
        return torch.mv(hidden.flatten(0, -2).t(), weights.reshape(-1))
    return torch.einsum("...qka,...qk->...a", hidden, weights).sum_to_size(v.shape)


def _hidden_chunks(query: Tensor, key: Tensor, elements: int) -> Iterator[tuple[slice, Tensor]]:
    """tanh(q + k) (..., rows, K, A) for one chunk of queries after another, always in the same memory."""
    queries = query.shape[-2]
    size = max(1, min(queries, elements // max(1, key.numel())))
    sums, buffer = TanhOfSums(key), key.new_empty(*key.shape[:-2], size, *key.shape[-2:])
    for start in range(0, queries, size):
        rows = slice(start, min(start + size, queries))
        yield rows, sums(query[..., rows, :], out=buffer[..., : rows.stop - start, :, :])
