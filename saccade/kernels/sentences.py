"""Soft dot-product attention over sentences, softmax(scale · Q Kᵀ) V, and its gradients, in C.

A Transformer trains on sentences of a dozen words. There torch's fused kernel spends most of its time on setup, and a batch has to be
padded. The kernel for short sentences (sentences_short.c) reads each row once and needs no padding between sentences; it saves the
weights for backward. The one for long sentences (sentences_long.c, after Dao 2022) saves one number per query instead, recomputes the
weights block by block, and skips what a causal mask hides.

Reference: `reference` below. Gain: 1.09 and 1.12 times in training (two looks, multi30k-de-en-transformer), packing included.

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

from saccade.kernels import compiled
from saccade.kernels.compiled import LANES, WIDE_LANES
from saccade.kernels.derivatives import gradients_by_torch

LONGEST_SHORT = 192  # keys: beyond, saving the weights costs more than recomputing them (measured)


class Kernel(Enum):
    """Its function in C, and what the features of a head must be a multiple of."""

    SHORT = ("saccade_attend", LANES)
    LONG = ("saccade_attend_long", WIDE_LANES)

    @property
    def function(self) -> str:
        return self.value[0]

    @property
    def unit(self) -> int:
        return self.value[1]

    def is_wide(self, features: int) -> bool:
        """Whether heads of this many features run on AVX-512 here."""
        return features % WIDE_LANES == 0 and self.function in compiled.wide_kernels()


def can_compute(kernel: Kernel, query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether this kernel exists and takes these tensors, (..., D) each."""
    sizes = {query.shape[-1], key.shape[-1], value.shape[-1]}
    return len(sizes) == 1 and query.shape[-1] % kernel.unit == 0 and compiled.can_compute(query, key, value)


def longest_short(features: int) -> int:
    """Up to how many keys the kernel for short sentences is the faster one; with AVX2 alone it soon loses to torch's AVX-512."""
    only_torch_is_wide = bool(compiled.wide_kernels()) and not Kernel.SHORT.is_wide(features)
    return LONGEST_SHORT // 4 if only_torch_is_wide else LONGEST_SHORT


def attend(
    kernel: Kernel,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    visible: Tensor | None = None,
    causal: bool = False,
    scale: float = 1.0,
) -> Tensor:
    """Padded sentences: (B, H, Q, D) and (B, H, K, D) → (B, H, Q, D). `visible` broadcasts to (B, 1, 1, K)."""
    batch, heads, queries, features = query.shape
    keys = key.shape[-2]
    if visible is not None:
        visible = visible[(None,) * (4 - visible.dim())].expand(batch, 1, 1, keys)
    heads_apart = all(x.is_contiguous() for x in (query, key, value))
    if heads_apart:  # not side by side in a row, as projections leave them: then each head is a sentence of its own
        query, key, value = (x.flatten(0, 1).unsqueeze(1) for x in (query, key, value))
        visible = None if visible is None else visible.expand(-1, heads, -1, -1)
    starts = torch.arange(len(query) + 1, device=query.device)
    mask = None if visible is None else visible.flatten()
    rows = attend_rows(
        kernel, _rows(query), _rows(key), _rows(value), starts * queries, starts * keys, mask, causal, scale
    )
    if heads_apart:
        return rows.view(batch, heads, queries, features)
    return rows.view(batch, queries, heads, features).transpose(1, 2)


def attend_packed(
    kernel: Kernel,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_starts: Tensor,
    key_starts: Tensor,
    causal: bool = False,
    scale: float = 1.0,
) -> Tensor:
    """Sentences without padding, one after the other: (1, H, N, D) → (1, H, N, D). For the starts see `attend_rows`."""
    rows = attend_rows(kernel, _rows(query), _rows(key), _rows(value), query_starts, key_starts, None, causal, scale)
    return rows.transpose(0, 1)[None]


def attend_rows(
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

    `query_starts` and `key_starts` (B + 1,) are the row at which each sentence begins, and where the last one ends. `visible` (N',)
    hides keys. `causal`: a query sees no key after its own position; then a sentence has as many keys as queries.
    """
    same_heads = query.shape[1:] == key.shape[1:] and key.shape == value.shape
    if not (same_heads and query.dim() == 3 and can_compute(kernel, query, key, value)):
        shapes = ", ".join(f"{x.dtype} {tuple(x.shape)}" for x in (query, key, value))
        raise ValueError(
            f"this kernel takes float32 CPU tensors (rows, heads, features) with equal heads and a multiple of {kernel.unit} features; "
            f"got {shapes}"
        )
    sentences = _Sentences(
        kernel,
        is_wide=kernel.is_wide(query.shape[2]),
        needs_backward=torch.is_grad_enabled() and any(x.requires_grad for x in (query, key, value)),
        query_starts=query_starts.contiguous(),
        key_starts=key_starts.contiguous(),
        # A copy: backward reads it again, and its owner may have changed it by then.
        visible=None if visible is None else visible.clone(memory_format=torch.contiguous_format),
        causal=causal,
        scale=scale,
    )
    return _Attention.apply(*(_heads_side_by_side(x) for x in (query, key, value)), sentences)


@dataclass(frozen=True, eq=False)
class _Sentences:
    """Where they are, what is visible, and which kernel computes them."""

    kernel: Kernel
    is_wide: bool
    needs_backward: bool
    query_starts: Tensor
    key_starts: Tensor
    visible: Tensor | None
    causal: bool
    scale: float


class _Batch(ctypes.Structure):
    """`Batch` of sentences.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("sentences", "heads", "features")),
        *((name, ctypes.c_void_p) for name in ("query_starts", "key_starts", "visible")),
        ("causal", ctypes.c_int64),
        ("scale", ctypes.c_float),
        *((name, ctypes.c_void_p) for name in ("query", "key", "value", "output_gradient")),
        *((name, ctypes.c_int64) for name in ("query_row", "key_row", "value_row")),
        *((name, ctypes.c_void_p) for name in ("output", "saved")),
        *((name, ctypes.c_void_p) for name in ("query_gradient", "key_gradient", "value_gradient")),
    )


class _Attention(Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, sentences: _Sentences) -> Tensor:
        saved = query.new_empty(_saved_count(query, sentences)) if sentences.needs_backward else None
        output = query.new_empty(query.shape)
        batch = _describe(query, key, value, saved, sentences)
        batch.output = output.data_ptr()
        compiled.run(sentences.kernel.function, batch, sentences.is_wide)
        ctx.save_for_backward(query, key, value, saved, output if sentences.kernel is Kernel.LONG else None)
        ctx.sentences = sentences
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, saved, output = ctx.saved_tensors
        inputs = (query, key, value)
        if torch.is_grad_enabled() or not compiled.can_compute(gradient):  # a second derivative, or torch.func
            differentiable = partial(reference, sentences=ctx.sentences)
            return *gradients_by_torch(differentiable, inputs, gradient, ctx.needs_input_grad), None
        gradient = gradient.contiguous()
        batch = _describe(query, key, value, saved, ctx.sentences)
        gradients = [x.new_empty(x.shape) for x in inputs]
        batch.output = None if output is None else output.data_ptr()
        batch.output_gradient = gradient.data_ptr()
        batch.query_gradient, batch.key_gradient, batch.value_gradient = (x.data_ptr() for x in gradients)
        compiled.run(f"{ctx.sentences.kernel.function}_backward", batch, ctx.sentences.is_wide)
        return *gradients, None


def _saved_count(query: Tensor, sentences: _Sentences) -> int:
    """Floats saved for backward: all weights, with rows padded to whole registers, or one per query and head."""
    if sentences.kernel is Kernel.LONG:
        return query.shape[0] * query.shape[1]
    lanes = WIDE_LANES if sentences.is_wide else LANES
    widths = (sentences.key_starts.diff() + lanes - 1).div_(lanes, rounding_mode="floor").mul_(lanes)
    return query.shape[1] * int(torch.dot(sentences.query_starts.diff(), widths))


def reference(query: Tensor, key: Tensor, value: Tensor, sentences: _Sentences) -> Tensor:
    """The same by torch: all sentences at once where they have equal lengths, one by one otherwise."""
    query_lengths, key_lengths = sentences.query_starts.diff().tolist(), sentences.key_starts.diff().tolist()
    visible = torch.ones(len(key), dtype=torch.bool) if sentences.visible is None else sentences.visible
    if len({*zip(query_lengths, key_lengths, strict=True)}) > 1:
        keys, values, masks = (x.split(key_lengths) for x in (key, value, visible))
        one_by_one = zip(query.split(query_lengths), keys, values, masks, strict=True)
        return torch.cat([_reference_batch(1, *sentence, sentences) for sentence in one_by_one])
    return _reference_batch(len(query_lengths), query, key, value, visible, sentences)


def _reference_batch(
    count: int, query: Tensor, key: Tensor, value: Tensor, visible: Tensor, sentences: _Sentences
) -> Tensor:
    """Of `count` sentences of equal lengths."""
    length, keys, rows = len(query) // max(count, 1), len(key) // max(count, 1), query.shape
    query = query.reshape(count, length, *rows[1:])
    key, value = (x.reshape(count, keys, *rows[1:]) for x in (key, value))
    scores = torch.einsum("bqhd,bkhd->bhqk", query, key) * sentences.scale
    mask = visible.view(count, 1, 1, keys).expand(count, 1, length, keys)
    hidden = ~(mask.tril() if sentences.causal else mask)
    weights = scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(-1).masked_fill(hidden, 0.0)
    return torch.einsum("bhqk,bkhd->bqhd", weights, value).reshape(rows)


def _describe(query: Tensor, key: Tensor, value: Tensor, saved: Tensor | None, sentences: _Sentences) -> _Batch:
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
        saved=None if saved is None else saved.data_ptr(),
    )


def _rows(heads: Tensor) -> Tensor:
    """(B, H, N, D) → (B·N, H, D)"""
    return heads.transpose(1, 2).flatten(0, 1)


def _heads_side_by_side(x: Tensor) -> Tensor:
    """(N, H, D) with the heads of a row adjacent in memory."""
    return x if x.stride(2) == 1 and x.stride(1) == x.shape[2] else x.contiguous()
