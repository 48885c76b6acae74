"""What the last layer does with a chunk of its logits: loss and gradient in their own memory, compiled (softmax_kernel.c) or by torch.

    x = logits + bias        nll = log Σ eˣ - x[target]        gradient = softmax(x) - (1 - ε) onehot(target)

Axis legend: V vocabulary.
"""

import ctypes

import torch
from torch import Tensor

from saccade.attention import compiled


def visit(
    logits: Tensor,
    bias: Tensor,
    targets: Tensor,
    target_logit: Tensor,
    nll: Tensor,
    smoothing: float,
    bias_gradient: Tensor | None,
) -> None:
    """Logits without bias (rows, V) become their gradient, where one is wanted: then its sum is added to `bias_gradient` (V,).

    The logit of each target (rows,) and its negative log-likelihood are written; the latter is infinite where torch's own probability is 0.
    """
    ours = compiled.can_compute(logits, bias) and all(x.is_contiguous() for x in (logits, bias, targets))
    is_right = targets.dtype is torch.int64 and targets.shape == logits.shape[:1] and bias.shape == logits.shape[1:]
    way = (
        _compiled if ours and is_right and _are_words(targets, logits.shape[1]) else _by_torch
    )  # which says what is wrong
    way(logits, bias, targets, target_logit, nll, smoothing, bias_gradient)


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


def _compiled(
    logits: Tensor,
    bias: Tensor,
    targets: Tensor,
    target_logit: Tensor,
    nll: Tensor,
    smoothing: float,
    bias_gradient: Tensor | None,
) -> None:
    given = (logits, bias, targets, target_logit, nll)
    gradient = None if bias_gradient is None else bias_gradient.data_ptr()
    rows = _Rows(*(each.data_ptr() for each in given), gradient, *logits.shape, smoothing - 1)
    compiled.run("saccade_softmax_rows", rows)


def _by_torch(
    logits: Tensor,
    bias: Tensor,
    targets: Tensor,
    target_logit: Tensor,
    nll: Tensor,
    smoothing: float,
    bias_gradient: Tensor | None,
) -> None:
    chosen = targets[:, None]
    target_logit.copy_(logits.add_(bias).gather(1, chosen).squeeze(1))
    probabilities = torch.softmax(logits, 1, out=logits)
    nll.copy_(-probabilities.gather(1, chosen).squeeze(1).log())
    if bias_gradient is not None:
        probabilities.scatter_add_(1, chosen, logits.new_full((1, 1), smoothing - 1).expand_as(chosen))
        bias_gradient.add_(torch.mv(probabilities.t(), logits.new_ones(len(logits))))  # a sum, by the faster kernel
