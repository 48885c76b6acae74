"""Each variable of a window to mean 0 and deviation 1, and forecasts back to the window's own level (Kim 2022, RevIN, without its gains).

    x' = (x − mean(x)) / √(var(x) + ε)      forecast = mean(x) + √(var(x) + ε) · forecast'

A level that drifts between training and test then costs nothing.

Axis legend: B batch, L look-back, V variables.
"""

from dataclasses import dataclass

from torch import Tensor

_EPSILON = 1e-5


@dataclass(frozen=True)
class Level:
    """What was taken out of a window, of each variable (B, 1, V)."""

    mean: Tensor
    deviation: Tensor

    def restore(self, forecast: Tensor) -> Tensor:
        """Forecasts (B, H, V) or (B, H, V, Q) at the window's level."""
        mean, deviation = self.mean, self.deviation
        if forecast.dim() == 4:
            mean, deviation = mean[..., None], deviation[..., None]
        return forecast * deviation + mean


def at_level_zero(window: Tensor) -> tuple[Tensor, Level]:
    """The normalised window (B, L, V), and what restores its level."""
    variance, mean = window.var(1, keepdim=True, unbiased=False), window.mean(1, keepdim=True)
    level = Level(mean, (variance + _EPSILON).sqrt())
    return (window - level.mean) / level.deviation, level
