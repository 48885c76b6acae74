"""Dropout with masks from random bytes: on a CPU several times faster than torch's, which draws a float per element.

The rate is rounded to the nearest 1/256 and the kept values are scaled by the rounded rate, so the expectation is exact.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F

from saccade.attention import Attend
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
    kept, scale = draw_kept(x, dropout.rate)
    return _AddProduct.apply(to, x, kept.mul_(scale))


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
    dropped = min(round(rate * 256), 255)  # of 256 bytes
    words = torch.empty((like.numel() + 7) // 8, dtype=torch.int64).random_(-(2**63), None)
    kept = words.view(torch.uint8)[: like.numel()]
    if dropped:
        kept.clamp_(dropped - 1, dropped).sub_(dropped - 1)  # arithmetic on bytes is much faster than a comparison
    else:
        kept.fill_(1)
    return kept.to(like.dtype).view(like.shape), 256.0 / (256 - dropped)
