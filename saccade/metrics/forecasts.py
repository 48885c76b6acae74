"""How far forecasts are from what came: errors on standardised and on original values, R², and how often intervals hold.

    MSE = mean (y − ŷ)²    MAE = mean |y − ŷ|    R² = 1 − Σ (y − ŷ)² / Σ (y − mean y)²    skill = 1 − MSE / MSE of no change

A value that is not known (NaN) is not judged. Axis legend: N windows, H horizon, V variables, Q quantiles.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.floating[Any]]


class Errors:
    """Sums over windows as they come; `forecast` and `truth` are (N, H, V), standardised."""

    def __init__(self, deviation: Numbers):
        self.deviation = np.asarray(deviation, np.float64)  # (V,) to original units
        variables = len(self.deviation)
        self._count, self._squared, self._absolute = (np.zeros(variables) for _ in range(3))
        self._truth, self._truth_squared = np.zeros(variables), np.zeros(variables)

    def add(self, forecast: Numbers, truth: Numbers) -> None:
        known = np.isfinite(truth)
        error = np.where(known, forecast - truth, 0).astype(np.float64)
        value = np.where(known, truth, 0).astype(np.float64)
        self._count += known.sum((0, 1))
        self._squared += (error**2).sum((0, 1))
        self._absolute += np.abs(error).sum((0, 1))
        self._truth += value.sum((0, 1))
        self._truth_squared += (value**2).sum((0, 1))

    def measured(self) -> "Measured":
        count = np.maximum(self._count, 1)
        total = max(float(self._count.sum()), 1.0)
        spread = self._truth_squared - self._truth**2 / count
        mse = self._squared / count
        return Measured(
            mse=float(self._squared.sum() / total),
            mae=float(self._absolute.sum() / total),
            original_mae=float((self._absolute / count * self.deviation).mean()),
            original_rmse=float((np.sqrt(mse) * self.deviation).mean()),
            r2=tuple(float(r2) for r2 in 1 - self._squared / np.where(spread > 0, spread, np.nan)),
            windows=int(self._count.max(initial=0)),
        )


@dataclass(frozen=True)
class Measured:
    mse: float  # of standardised values
    mae: float
    original_mae: float  # mean of the variables, each in its own units
    original_rmse: float
    r2: tuple[float, ...]  # of each variable
    windows: int

    @property
    def median_r2(self) -> float:
        return float(np.nanmedian(self.r2))


@dataclass(frozen=True)
class ForecastScores:
    variables: tuple[str, ...]  # that were forecast
    windows: int
    model: Measured
    yardsticks: Mapping[str, Measured]  # by name; "no change" is one of them
    same_day: bool = False
    coverage: Mapping[str, float] = field(default_factory=dict)  # "10 to 90 %": the share of values inside, percent
    remarks: Sequence[str] = ()
    attention: Mapping[str, float] = field(default_factory=dict)  # what is known of the attention, percent

    @property
    def skill(self) -> float:
        """Percent of the error of no change that is gone."""
        return 100 * (1 - self.model.mse / max(self.yardsticks["no change"].mse, 1e-12))

    def rows(self) -> list[tuple[str, str]]:
        shown = [("windows", f"{self.windows:,}")]
        shown.append(("variables told", ", ".join(self.variables[:6]) + (" …" if len(self.variables) > 6 else "")))
        shown.append(("skill, against no change", f"{self.skill:.1f} %"))
        if self.same_day:
            shown.append(("median R²", f"{self.model.median_r2:.3f}"))
        shown += [(f"values inside {name}", f"{share:.1f} %") for name, share in self.coverage.items()]
        shown += [(name, f"{share:.0f} %") for name, share in self.attention.items()]
        return shown + [("remark", remark) for remark in self.remarks]

    def columns(self) -> list[tuple[str, list[str]]]:
        """The model among the yardsticks."""
        table = {"this run": self.model, **self.yardsticks}
        measured = list(table.values())
        return [
            ("forecast by", list(table)),
            ("MSE", [f"{one.mse:.4f}" for one in measured]),
            ("MAE", [f"{one.mae:.4f}" for one in measured]),
            ("RMSE, own units", [f"{one.original_rmse:.4g}" for one in measured]),
            ("MAE, own units", [f"{one.original_mae:.4g}" for one in measured]),
            ("median R²", [f"{one.median_r2:.3f}" for one in measured]),
        ]

    def compared(self) -> dict[str, float]:
        figures = {"MSE": self.model.mse, "MAE": self.model.mae}
        skill = {"skill %": self.skill}
        return {"median R²": self.model.median_r2, **skill, **figures} if self.same_day else {**skill, **figures}

    def to_dict(self) -> dict[str, Any]:
        def values(one: Measured) -> dict[str, Any]:
            r2 = dict(zip(self.variables, one.r2, strict=True))
            own = {"rmse": one.original_rmse, "mae": one.original_mae}
            return {"mse": one.mse, "mae": one.mae, "own_units": own, "r2": r2, "median_r2": one.median_r2}

        return {
            "windows": self.windows,
            "variables": list(self.variables),
            "same_day": self.same_day,
            "skill": self.skill,
            **values(self.model),
            "yardsticks": {name: values(one) for name, one in self.yardsticks.items()},
            "coverage": dict(self.coverage),
            "attention": dict(self.attention),
            "remarks": list(self.remarks),
        }


def coverage(low: Numbers, high: Numbers, truth: Numbers) -> tuple[int, int]:
    """How many of the known values lie inside, and how many are known."""
    known = np.isfinite(truth)
    return int(((truth >= low) & (truth <= high) & known).sum()), int(known.sum())


def seasonal(windows: Numbers, steps: int, season: int) -> Numbers:
    """The last season again and again: (N, L, V) -> (N, H, V)."""
    last = windows[:, -season:]
    return last[:, np.arange(steps) % season]
