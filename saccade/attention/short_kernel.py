"""The compiled kernel for short sentences (short_kernel.c): softmax(scale · q kᵀ) v for sentences that stand one after the other.

A Transformer learns from sentences of a dozen words. There torch's fused kernel spends most of its time getting ready, and a batch of
them has to be padded. This one reads every row once, and sentences of any lengths need no padding between them.

Axis legend: B sentences, N rows of all sentences, H heads, Q queries, K keys, D features of a head.
"""

import ctypes
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from saccade.attention import compiled
from saccade.attention.selection import masked_softmax

LANES = 8  # floats that are computed with at once: a head has a multiple of them


class _Batch(ctypes.Structure):
    """`Batch` of short_kernel.c."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("sentences", "heads", "features")),
        *((name, ctypes.c_void_p) for name in ("query_starts", "key_starts", "visible")),
        ("causal", ctypes.c_int64),
        ("scale", ctypes.c_float),
        *((name, ctypes.c_void_p) for name in ("query", "key", "value", "output_gradient")),
        *((name, ctypes.c_int64) for name in ("query_row", "key_row", "value_row")),
        *((name, ctypes.c_void_p) for name in ("output", "weights")),
        *((name, ctypes.c_void_p) for name in ("query_gradient", "key_gradient", "value_gradient")),
    )


def can_compute(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether the kernel is there and can compute with these (..., H, D)."""
    sizes = {query.shape[-1], key.shape[-1], value.shape[-1]}
    return len(sizes) == 1 and query.shape[-1] % LANES == 0 and compiled.can_compute(query, key, value)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_starts: Tensor,
    key_starts: Tensor,
    visible: Tensor | None = None,
    causal: bool = False,
    scale: float = 1.0,
) -> Tensor:
    """(N, H, D) queries and (N', H, D) keys and values → (N, H, D).

    `query_starts` and `key_starts` (B + 1,) say in which row each sentence begins, and where the last one ends. `visible` (N',) hides
    keys. `causal`: a query sees no key after its own place; then a sentence has as many keys as queries.
    """
    if not can_compute(query, key, value):
        raise ValueError(
            f"this kernel takes float32 of a CPU, heads of the same multiple of {LANES}; got "
            + ", ".join(f"{x.dtype} {tuple(x.shape)}" for x in (query, key, value))
        )
    return _Short.apply(query, key, value, _Sentences(query_starts, key_starts, visible, causal, scale))


@dataclass(frozen=True, eq=False)
class _Sentences:
    """Where they stand and what may be seen, as `attend` got it."""

    query_starts: Tensor
    key_starts: Tensor
    visible: Tensor | None
    causal: bool
    scale: float


class _Short(Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, sentences: _Sentences) -> Tensor:
        query, key, value = (_heads_in_rows(each) for each in (query, key, value))
        widths = (sentences.key_starts.diff() + LANES - 1).div_(LANES, rounding_mode="floor").mul_(LANES)
        weights = query.new_empty(query.shape[1] * int(torch.dot(sentences.query_starts.diff(), widths)))
        output = query.new_empty(query.shape)
        batch = _describe(query, key, value, weights, sentences)
        batch.output = output.data_ptr()
        compiled.run("saccade_attend", batch)
        ctx.save_for_backward(query, key, value, weights)
        ctx.sentences = sentences
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, weights = ctx.saved_tensors
        if torch.is_grad_enabled() or not compiled.can_compute(gradient):  # to be differentiated again, or many at once
            attend_again = partial(_by_torch, sentences=ctx.sentences)
            given = (query, key, value)
            return *compiled.gradients_by_torch(attend_again, given, gradient, ctx.needs_input_grad), None
        gradient = gradient.contiguous()
        batch = _describe(query, key, value, weights, ctx.sentences)
        gradients = [each.new_empty(each.shape) for each in (query, key, value)]
        batch.output_gradient = gradient.data_ptr()
        batch.query_gradient, batch.key_gradient, batch.value_gradient = (each.data_ptr() for each in gradients)
        compiled.run("saccade_attend_backward", batch)
        return *gradients, None


def _by_torch(query: Tensor, key: Tensor, value: Tensor, sentences: _Sentences) -> Tensor:
    """What the kernel computes, a sentence at a time."""
    contexts = []
    own, others = sentences.query_starts.diff().tolist(), sentences.key_starts.diff().tolist()
    seen = torch.ones(len(key), dtype=torch.bool) if sentences.visible is None else sentences.visible
    for q, k, v, mask in zip(query.split(own), key.split(others), value.split(others), seen.split(others), strict=True):
        scores = torch.einsum("qhd,khd->hqk", q, k) * sentences.scale
        mask = mask.expand(scores.shape[1:])
        weights = masked_softmax(scores, mask.tril() if sentences.causal else mask)
        contexts.append(torch.einsum("hqk,khd->qhd", weights, v))
    return torch.cat(contexts)


def _describe(query: Tensor, key: Tensor, value: Tensor, weights: Tensor, sentences: _Sentences) -> _Batch:
    visible = sentences.visible
    return _Batch(
        sentences=len(sentences.query_starts) - 1,
        heads=query.shape[1],
        features=query.shape[2],
        query_starts=sentences.query_starts.data_ptr(),
        key_starts=sentences.key_starts.data_ptr(),
        visible=None if visible is None else visible.data_ptr(),
        causal=sentences.causal,
        scale=sentences.scale,
        query=query.data_ptr(),
        key=key.data_ptr(),
        value=value.data_ptr(),
        query_row=query.stride(0),
        key_row=key.stride(0),
        value_row=value.stride(0),
        weights=weights.data_ptr(),
    )


def _heads_in_rows(x: Tensor) -> Tensor:
    """(N, H, D) with the heads of a row side by side in memory."""
    return x if x.stride(2) == 1 and x.stride(1) == x.shape[2] else x.contiguous()
