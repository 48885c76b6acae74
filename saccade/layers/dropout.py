"""Dropout with masks from random bytes: on a CPU several times faster than torch's, which draws a float per element.

The rate is rounded to the nearest 1/256 and the kept values are scaled by the rounded rate, so the expectation is exact.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Dropout(nn.Module):
    def __init__(self, rate: float):
        super().__init__()
        if not 0.0 <= rate < 1.0:
            raise ValueError(f"a dropout rate is at least 0 and less than 1; got {rate}")
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0.0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.rate)
        dropped = min(round(self.rate * 256), 255)
        words = torch.empty((x.numel() + 7) // 8, dtype=torch.int64).random_(-(2**63), None)
        kept = words.view(torch.uint8)[: x.numel()].view(x.shape) >= dropped
        return x * (kept * (256.0 / (256 - dropped))).to(x.dtype)

    def extra_repr(self) -> str:
        return f"rate={self.rate}"
