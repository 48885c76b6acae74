"""Dropout by random bytes: on a CPU several times faster than torch's, which draws a float per element.

The rate is rounded to the nearest 1/256 and the kept values are scaled by the rounded rate, so the expectation is exact. Compiled
(dropout_kernel.c) it takes one pass and keeps no mask: backward finds out again who was dropped.
"""

import ctypes
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F

from saccade.attention import Attend, compiled
from saccade.attention.hooks import is_hooked


class Dropout(nn.Module):
    """Drops at `rate`: a `share` of the highest rate, all of it unless training begins with less (see `set_share`)."""

    def __init__(self, rate: float):
        super().__init__()
        if not 0.0 <= rate < 1.0:
            raise ValueError(f"a dropout rate is at least 0 and less than 1; got {rate}")
        self.highest = rate
        self.share = 1.0

    @property
    def rate(self) -> float:
        return self.highest * self.share

    @property
    def drops(self) -> bool:
        return self.training and self.rate > 0.0

    def forward(self, x: Tensor) -> Tensor:
        if not self.drops:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.rate)
        if _fits(x):
            return _Dropped.apply(x, None, _drawn_seed(), self.rate)
        kept, scale = draw_kept(x, self.rate)
        return x * kept.mul_(scale)

    def extra_repr(self) -> str:
        return f"rate={self.highest}"


def set_share(model: nn.Module, share: float) -> None:
    """From now on every dropout of the model drops this share of its highest rate (curriculum dropout, Morerio 2017: little at first)."""
    for module in model.modules():
        if isinstance(module, Dropout):
            module.share = share
        elif isinstance(module, Attend):
            module.dropout_share = share


def add_dropped(to: Tensor, x: Tensor, dropout: nn.Module) -> Tensor:
    """to + dropout(x), in one pass over both where that is all there is to it."""
    if type(dropout) is not Dropout or not dropout.drops or is_hooked(dropout) or x.device.type != "cpu":
        return to + dropout(x)
    if to.shape == x.shape and _fits(to, x):
        return _Dropped.apply(x, to, _drawn_seed(), dropout.rate)
    kept, scale = draw_kept(x, dropout.rate)
    return _AddProduct.apply(to, x, kept.mul_(scale))


def rectify_and_drop_(x: Tensor, rate: float) -> float:
    """max(x, 0), of which a share becomes 0, in place; what the rest is still to be scaled by."""
    if rate and _fits(x):
        _drop(x, None, x, _drawn_seed(), rate, scale=1.0, rectified=True)
        return _scale(rate)
    x.relu_()
    if not rate:
        return 1.0
    kept, scale = draw_kept(x, rate)
    x.mul_(kept)
    return scale


class _Numbers(ctypes.Structure):
    """`Numbers` of dropout_kernel.c."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("x", "to", "y")),
        ("count", ctypes.c_int64),
        ("seed", ctypes.c_uint64),
        ("scale", ctypes.c_float),
        ("dropped", ctypes.c_int32),
        ("rectified", ctypes.c_int64),
    )


def _drop(x: Tensor, to: Tensor | None, y: Tensor, seed: int, rate: float, scale: float, rectified: bool) -> None:
    added = None if to is None else to.data_ptr()
    numbers = _Numbers(x.data_ptr(), added, y.data_ptr(), x.numel(), seed, scale, _dropped(rate), rectified)
    compiled.run("saccade_drop", numbers)


class _Dropped(Function):
    """to + dropout(x), `to` being 0 where it is None. The same seed drops the same places."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, to: Tensor | None, seed: int, rate: float) -> Tensor:
        ctx.how, ctx.shape = (seed, rate), x.shape
        dropped = x.new_empty(x.shape)
        _drop(x, to, dropped, seed, rate, _scale(rate), rectified=False)
        return dropped

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        of_x = None
        if ctx.needs_input_grad[0] and compiled.can_compute(gradient):
            of_x = _Dropped.apply(gradient.contiguous(), None, *ctx.how)
        elif ctx.needs_input_grad[0]:  # many gradients at once
            of_x = gradient * _Dropped.apply(torch.ones(ctx.shape), None, *ctx.how)
        return of_x, gradient if ctx.needs_input_grad[1] else None, None, None


def _fits(*tensors: Tensor) -> bool:
    return all(x.is_contiguous() for x in tensors) and compiled.can_compute(*tensors)


def _drawn_seed() -> int:
    return int(torch.empty((), dtype=torch.int64).random_())


def _dropped(rate: float) -> int:
    """Of 256 bytes."""
    return min(round(rate * 256), 255)


def _scale(rate: float) -> float:
    return 256.0 / (256 - _dropped(rate))


class _AddProduct(Function):
    """to + x ∘ factors. Torch's own addcmul multiplies the factors by its `value` once more on the way back, even where that is 1."""

    @staticmethod
    def forward(ctx: Any, to: Tensor, x: Tensor, factors: Tensor) -> Tensor:
        ctx.save_for_backward(factors)
        return torch.addcmul(to, x, factors)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        (factors,) = ctx.saved_tensors
        return gradient, gradient * factors, None


def draw_kept(like: Tensor, rate: float) -> tuple[Tensor, float]:
    """1 for what is kept and 0 for what is dropped, in the shape and dtype of `like`, and what the kept values are to be scaled by."""
    dropped = _dropped(rate)
    words = torch.empty((like.numel() + 7) // 8, dtype=torch.int64).random_(-(2**63), None)
    kept = words.view(torch.uint8)[: like.numel()]
    if dropped:
        kept.clamp_(dropped - 1, dropped).sub_(dropped - 1)  # arithmetic on bytes is much faster than a comparison
    else:
        kept.fill_(1)
    return kept.to(like.dtype).view(like.shape), _scale(rate)
