"""What the last layer does with a chunk of its logits: loss and gradient in their own memory, compiled (softmax_kernel.c) or by torch.

    x = logits + bias        nll = log Σ eˣ - x[target]        gradient = softmax(x) - (1 - ε) onehot(target)

Axis legend: V vocabulary.
"""

import ctypes
from dataclasses import dataclass

import torch
from torch import Tensor

from saccade.attention import compiled


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some rows of logits and where to put what comes of them."""

    logits: Tensor  # (rows, V) without bias; they become their gradient, where one is wanted
    bias: Tensor  # (V,)
    targets: Tensor  # (rows,)
    target_logit: Tensor  # (rows,) written: the logit of each target
    nll: Tensor  # (rows,) written: its negative log-likelihood; infinite where torch's own probability is 0
    smoothing: float
    bias_gradient: Tensor | None  # (V,) added to; None: no gradient is wanted


def visit(chunk: Chunk) -> None:
    """Loss and gradient of a chunk, compiled where that can be done; otherwise by torch, which also says what is wrong."""
    (_compiled if _can_be_compiled(chunk) else _by_torch)(chunk)


def _can_be_compiled(chunk: Chunk) -> bool:
    logits, bias, targets = chunk.logits, chunk.bias, chunk.targets
    return (
        compiled.can_compute(logits, bias)
        and all(x.is_contiguous() for x in (logits, bias, targets))
        and targets.dtype is torch.int64
        and targets.shape == logits.shape[:1]
        and bias.shape == logits.shape[1:]
        and _are_words(targets, logits.shape[1])
    )


def _are_words(targets: Tensor, words: int) -> bool:
    least, most = targets.aminmax() if len(targets) else (0, 0)
    return bool(least >= 0 and most < words)


class _Rows(ctypes.Structure):
    """`Rows` of softmax_kernel.c."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("logits", "bias", "targets", "target_logit", "nll", "bias_gradient")),
        *((name, ctypes.c_int64) for name in ("rows", "words")),
        ("of_target", ctypes.c_float),
    )


def _compiled(chunk: Chunk) -> None:
    given = (chunk.logits, chunk.bias, chunk.targets, chunk.target_logit, chunk.nll)
    gradient = None if chunk.bias_gradient is None else chunk.bias_gradient.data_ptr()
    rows = _Rows(*(each.data_ptr() for each in given), gradient, *chunk.logits.shape, chunk.smoothing - 1)
    compiled.run("saccade_softmax_rows", rows)


def _by_torch(chunk: Chunk) -> None:
    logits, chosen = chunk.logits, chunk.targets[:, None]
    chunk.target_logit.copy_(logits.add_(chunk.bias).gather(1, chosen).squeeze(1))
    probabilities = torch.softmax(logits, 1, out=logits)
    chunk.nll.copy_(-probabilities.gather(1, chosen).squeeze(1).log())
    if chunk.bias_gradient is not None:
        probabilities.scatter_add_(1, chosen, logits.new_full((1, 1), chunk.smoothing - 1).expand_as(chosen))
        ones = logits.new_ones(len(logits))
        chunk.bias_gradient.add_(torch.mv(probabilities.t(), ones))  # a sum, by the faster kernel
