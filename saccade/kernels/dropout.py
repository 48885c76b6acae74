"""Dropout by random bytes: one random number for eight elements, where torch's dropout draws a float for each.

The rate is rounded to the nearest 1/256 and the kept values are scaled by the rounded rate, so the expectation is exact.

Reference: `torch.nn.functional.dropout`, with other masks from the same seed. Gain: 1.19 times in training
(multi30k-de-en-transformer, dropout 0.3).
"""

import torch
from torch import Tensor


def dropout(x: Tensor, rate: float) -> Tensor:
    """x with a share `rate` of its elements set to 0 and the others scaled up; x is on a CPU."""
    kept, scale = draw_kept(x, rate)
    return x * kept.mul_(scale)


def draw_kept(like: Tensor, rate: float) -> tuple[Tensor, float]:
    """1 for what is kept and 0 for what is dropped, in the shape and dtype of `like`, and the scale of the kept values."""
    dropped = min(round(rate * 256), 255)  # of 256 bytes
    words = torch.empty((like.numel() + 7) // 8, dtype=torch.int64).random_(-(2**63), None)
    kept = words.view(torch.uint8)[: like.numel()]
    if dropped:
        kept.clamp_(dropped - 1, dropped).sub_(dropped - 1)  # arithmetic on bytes is much faster than a comparison
    else:
        kept.fill_(1)
    return kept.to(like.dtype).view(like.shape), 256.0 / (256 - dropped)
