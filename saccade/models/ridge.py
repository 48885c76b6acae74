"""Ridge regression over windows (Hoerl and Kennard 1970), solved at once instead of trained.

    W = argmin Σ |y − f W|² + λ |W|²  =  (FᵀF + λ I)⁻¹ Fᵀ Y

Forecasting, one W serves all variables, and f is a window's differences to its last value; so is y, to the steps after it. Of the same
day, each variable has a W of its own over everything that is known of all of them, and f and y are centred.

Axis legend: B batch, L look-back, V variables, H horizon, F features.
"""

from collections.abc import Iterable, Sequence
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from saccade.config.recipe import Config as BaseConfig
from saccade.models.shapes import Shapes, WindowShape

PENALTIES = (0.1, 1.0, 10.0, 100.0, 1_000.0, 10_000.0)


class Config(BaseConfig):
    serves: ClassVar[tuple[str, ...]] = ("forecast",)
    mixes_variables: ClassVar[bool] = True
    tells_quantiles: ClassVar[bool] = False

    penalty: float | None = Field(None, ge=0, description="λ; unless given, the best of six on the validation windows")


class Ridge(nn.Module):
    """Later steps from a window of the same variable."""

    weight: Tensor

    def __init__(self, config: Config, window: WindowShape):
        super().__init__()
        self.penalty = config.penalty
        self.register_buffer("weight", torch.zeros(window.look_back - 1, window.horizon))

    def forward(self, values: Tensor) -> Tensor:
        last = values[:, -1:]  # (B, 1, V)
        differences = (values[:, :-1] - last).transpose(1, 2)  # (B, V, L − 1)
        return ((differences @ self.weight).transpose(1, 2) + last)[..., None]  # (B, H, V, 1)

    @torch.no_grad()
    def fit(self, windows: Iterable[tuple[Tensor, Tensor]], held_out: Sequence[tuple[Tensor, Tensor]]) -> float:
        """From windows (B, L, V) and what came after them (B, H, V), NaN where it is unknown; returns the penalty that was taken."""
        normal = _Normal()
        for values, after in windows:
            last = values[:, -1:]
            features = (values[:, :-1] - last).transpose(1, 2).flatten(0, 1)  # (B·V, L − 1)
            wanted = (after - last).transpose(1, 2).flatten(0, 1)  # (B·V, H)
            known = wanted.isfinite().all(1)
            normal.add(features[known], wanted[known])
        return self._choose(normal, held_out)

    def _choose(self, normal: "_Normal", held_out: Sequence[tuple[Tensor, Tensor]]) -> float:
        def error(penalty: float) -> float:
            self._put(normal, penalty)
            errors = [(self(values)[..., 0] - after).square() for values, after in held_out]
            return sum(float(part.nan_to_num().sum()) for part in errors)

        penalty = min(PENALTIES, key=error) if self.penalty is None else self.penalty
        self._put(normal, penalty)
        return penalty

    def _put(self, normal: "_Normal", penalty: float) -> None:
        self.weight.copy_(normal.solved(penalty))


class _Normal:
    """FᵀF and FᵀY, added up in double precision."""

    def __init__(self) -> None:
        self.squares = torch.zeros((), dtype=torch.float64)
        self.products = torch.zeros((), dtype=torch.float64)

    def add(self, features: Tensor, wanted: Tensor) -> None:
        features, wanted = features.double(), wanted.double()
        self.squares = self.squares + features.T @ features
        self.products = self.products + features.T @ wanted

    def solved(self, penalty: float) -> Tensor:
        regular = self.squares + penalty * torch.eye(len(self.squares), dtype=torch.float64)
        return torch.linalg.lstsq(regular, self.products, driver="gelsd").solution


class SameDayRidge(nn.Module):
    """The last step of each variable from everything else: the others' last steps, and all steps before."""

    weight: Tensor
    offset: Tensor

    def __init__(self, config: Config, window: WindowShape):
        super().__init__()
        self.penalty = config.penalty
        self.register_buffer("weight", torch.zeros(window.look_back * window.variables, window.variables))
        self.register_buffer("offset", torch.zeros(window.variables))

    def forward(self, values: Tensor) -> Tensor:
        return (values.flatten(1) @ self.weight + self.offset)[:, None, :, None]  # (B, 1, V, 1)

    @torch.no_grad()
    def fit(self, windows: Iterable[tuple[Tensor, Tensor]], held_out: Sequence[tuple[Tensor, Tensor]]) -> float:
        """From windows (B, L, V) that are complete, and their last step (B, 1, V); returns the largest penalty that was taken."""
        features, told = _flat(windows)
        judged = _flat(held_out)
        return max(self._fit_one(variable, features, told[:, variable], judged) for variable in range(told.shape[1]))

    def _fit_one(self, variable: int, features: Tensor, told: Tensor, judged: tuple[Tensor, Tensor]) -> float:
        own = features.shape[1] - len(self.offset) + variable  # what is to be told is not known
        others = [column for column in range(features.shape[1]) if column != own]
        known = told.isfinite()
        features, told = features[known][:, others], told[known, None]
        centre, mean = features.mean(0), told.mean(0)
        normal = _Normal()
        normal.add(features - centre, told - mean)

        def error(penalty: float) -> float:
            forecast = (judged[0][:, others] - centre) @ normal.solved(penalty) + mean
            return float((forecast[:, 0] - judged[1][:, variable]).square().nan_to_num().sum())

        penalty = min(PENALTIES, key=error) if self.penalty is None else self.penalty
        weight = normal.solved(penalty)[:, 0]
        self.weight[others, variable] = weight.to(self.weight)
        self.offset[variable] = (mean - centre @ weight).to(self.offset)
        return penalty


def _flat(windows: Iterable[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Everything that stands in each window (N, L·V), and what is to be told of it (N, V)."""
    features, told = zip(*((values.flatten(1), after[:, 0]) for values, after in windows), strict=True)
    return torch.cat(features).double(), torch.cat(told).double()


def build(config: Config, shapes: Shapes) -> Ridge | SameDayRidge:
    window = shapes.require_window()
    return SameDayRidge(config, window) if window.same_day else Ridge(config, window)
