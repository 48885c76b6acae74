"""Dropout (Srivastava 2014) whose rate training may raise step by step."""

from torch import Tensor, nn
from torch.nn import functional as F

from saccade.attention import Attend
from saccade.attention.routes import HAS_KERNELS

if HAS_KERNELS:
    from saccade.kernels import dropout as kernel


class Dropout(nn.Module):
    """Drops at `rate`: a `share` of the highest rate, all of it unless training begins with less (see `set_share`)."""

    def __init__(self, rate: float):
        super().__init__()
        if not 0.0 <= rate < 1.0:
            raise ValueError(f"a dropout rate must be at least 0 and less than 1; got {rate}")
        self.highest = rate
        self.share = 1.0

    @property
    def rate(self) -> float:
        return self.highest * self.share

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0.0:
            return x
        return kernel.dropout(x, self.rate) if HAS_KERNELS and x.device.type == "cpu" else F.dropout(x, self.rate)

    def extra_repr(self) -> str:
        return f"rate={self.highest}"


def set_share(model: nn.Module, share: float) -> None:
    """From now on every dropout of the model drops this share of its highest rate (curriculum dropout, Morerio 2017: little at first)."""
    for module in model.modules():
        if isinstance(module, Dropout):
            module.share = share
        elif isinstance(module, Attend):
            module.dropout_share = share
