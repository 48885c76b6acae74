"""The compiled kernels for sentences: softmax(scale · q kᵀ) v for sentences that stand one after the other, and its gradients.

A Transformer learns from sentences of a dozen words. There torch's fused kernel spends most of its time getting ready, and a batch of
them has to be padded. The kernel for short ones (short_kernel.c) reads every row once, and sentences of any lengths need no padding
between them. It keeps the weights for the way back. The one for long ones (long_kernel.c) keeps a number for each query instead, and
computes the weights again, a block of them at a time.

Axis legend: B sentences, N rows of all sentences, H heads, Q queries, K keys, D features of a head.
"""

import ctypes
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from saccade.attention import compiled
from saccade.attention.selection import masked_softmax

LANES, WIDE_LANES = 8, 16  # floats that are computed with at once, with AVX2 and with AVX-512


class Kernel(Enum):
    """With the name of its function in C, and what the features of a head must be a multiple of."""

    SHORT = ("saccade_attend", LANES)
    LONG = ("saccade_attend_long", WIDE_LANES)

    @property
    def function(self) -> str:
        return self.value[0]

    @property
    def unit(self) -> int:
        return self.value[1]

    def is_wide(self, features: int) -> bool:
        """Whether heads of so many features are computed with sixteen lanes here."""
        return features % WIDE_LANES == 0 and self.function in compiled.wide_kernels()


class _Batch(ctypes.Structure):
    """`Batch` of sentences.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("sentences", "heads", "features")),
        *((name, ctypes.c_void_p) for name in ("query_starts", "key_starts", "visible")),
        ("causal", ctypes.c_int64),
        ("scale", ctypes.c_float),
        *((name, ctypes.c_void_p) for name in ("query", "key", "value", "output_gradient")),
        *((name, ctypes.c_int64) for name in ("query_row", "key_row", "value_row")),
        *((name, ctypes.c_void_p) for name in ("output", "kept")),
        *((name, ctypes.c_void_p) for name in ("query_gradient", "key_gradient", "value_gradient")),
    )


def can_compute(kernel: Kernel, query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether the kernel is there and can compute with these (..., H, D)."""
    sizes = {query.shape[-1], key.shape[-1], value.shape[-1]}
    return len(sizes) == 1 and query.shape[-1] % kernel.unit == 0 and compiled.can_compute(query, key, value)


def attend(
    kernel: Kernel,
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
    alike = query.shape[1:] == key.shape[1:] and key.shape == value.shape
    if not (alike and query.dim() == 3 and can_compute(kernel, query, key, value)):
        raise ValueError(
            f"this kernel takes float32 of a CPU, (rows, heads, features) with the same heads of a multiple of {kernel.unit} features; got "
            + ", ".join(f"{x.dtype} {tuple(x.shape)}" for x in (query, key, value))
        )
    sentences = _Sentences(
        kernel,
        is_wide=kernel.is_wide(query.shape[2]),
        will_return=torch.is_grad_enabled() and any(x.requires_grad for x in (query, key, value)),
        query_starts=query_starts.contiguous(),
        key_starts=key_starts.contiguous(),
        # A copy: the way back reads it again, whatever its owner has done to it by then.
        visible=None if visible is None else visible.clone(memory_format=torch.contiguous_format),
        causal=causal,
        scale=scale,
    )
    return _Attention.apply(*(_heads_in_rows(each) for each in (query, key, value)), sentences)


@dataclass(frozen=True, eq=False)
class _Sentences:
    """Where they stand and what may be seen, as `attend` got it, and who computes it."""

    kernel: Kernel
    is_wide: bool
    will_return: bool  # to have gradients: something is to be kept for them
    query_starts: Tensor
    key_starts: Tensor
    visible: Tensor | None
    causal: bool
    scale: float


class _Attention(Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, sentences: _Sentences) -> Tensor:
        kept = query.new_empty(_numbers_kept(query, sentences)) if sentences.will_return else None
        output = query.new_empty(query.shape)
        batch = _describe(query, key, value, kept, sentences)
        batch.output = output.data_ptr()
        compiled.run(sentences.kernel.function, batch, sentences.is_wide)
        ctx.save_for_backward(query, key, value, kept, output if sentences.kernel is Kernel.LONG else None)
        ctx.sentences = sentences
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, kept, output = ctx.saved_tensors
        if torch.is_grad_enabled() or not compiled.can_compute(gradient):  # to be differentiated again, or many at once
            attend_again = partial(_by_torch, sentences=ctx.sentences)
            given = (query, key, value)
            return *compiled.gradients_by_torch(attend_again, given, gradient, ctx.needs_input_grad), None
        gradient = gradient.contiguous()
        batch = _describe(query, key, value, kept, ctx.sentences)
        gradients = [each.new_empty(each.shape) for each in (query, key, value)]
        batch.output = None if output is None else output.data_ptr()
        batch.output_gradient = gradient.data_ptr()
        batch.query_gradient, batch.key_gradient, batch.value_gradient = (each.data_ptr() for each in gradients)
        compiled.run(f"{ctx.sentences.kernel.function}_backward", batch, ctx.sentences.is_wide)
        return *gradients, None


def _numbers_kept(query: Tensor, sentences: _Sentences) -> int:
    """For the way back: all weights, with rows of whole lanes, or a number for each query and head."""
    if sentences.kernel is Kernel.LONG:
        return query.shape[0] * query.shape[1]
    lanes = WIDE_LANES if sentences.is_wide else LANES
    widths = (sentences.key_starts.diff() + lanes - 1).div_(lanes, rounding_mode="floor").mul_(lanes)
    return query.shape[1] * int(torch.dot(sentences.query_starts.diff(), widths))


def _by_torch(query: Tensor, key: Tensor, value: Tensor, sentences: _Sentences) -> Tensor:
    """What the kernel computes: all sentences at once where they are equally long, one at a time otherwise."""
    own, others = sentences.query_starts.diff().tolist(), sentences.key_starts.diff().tolist()
    visible = torch.ones(len(key), dtype=torch.bool) if sentences.visible is None else sentences.visible
    if len({*zip(own, others, strict=True)}) > 1:
        each = zip(query.split(own), key.split(others), value.split(others), visible.split(others), strict=True)
        return torch.cat([_batch_by_torch(1, *sentence, sentences) for sentence in each])
    return _batch_by_torch(len(own), query, key, value, visible, sentences)


def _batch_by_torch(
    count: int, query: Tensor, key: Tensor, value: Tensor, visible: Tensor, sentences: _Sentences
) -> Tensor:
    """Of `count` equally long sentences one after the other."""
    length, keys, rows = len(query) // max(count, 1), len(key) // max(count, 1), query.shape
    query = query.reshape(count, length, *rows[1:])
    key, value = (each.reshape(count, keys, *rows[1:]) for each in (key, value))
    scores = torch.einsum("bqhd,bkhd->bhqk", query, key) * sentences.scale
    mask = visible.view(count, 1, 1, keys).expand(count, 1, length, keys)
    weights = masked_softmax(scores, mask.tril() if sentences.causal else mask)
    return torch.einsum("bhqk,bkhd->bqhd", weights, value).reshape(rows)


def _describe(query: Tensor, key: Tensor, value: Tensor, kept: Tensor | None, sentences: _Sentences) -> _Batch:
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
        kept=None if kept is None else kept.data_ptr(),
    )


def _heads_in_rows(x: Tensor) -> Tensor:
    """(N, H, D) with the heads of a row side by side in memory."""
    return x if x.stride(2) == 1 and x.stride(1) == x.shape[2] else x.contiguous()
