"""How much attention falls on clouds, beside what chance would be.

Attention prefers some dates to others, and some dates are cloudier than others, so a share of attention on clouds means nothing by itself.
Date-matched chance is what a model would give to clouds that knew the date alone: of each date, its mean attention times how often it is
clouded,

    mass = 1/N Σ_i Σ_n a_in c_in        chance = Σ_d ( 1/N Σ_i a_id ) · ( mean of c on date d )        ratio = mass / chance

with a the attention of series i on its n-th observation and c whether that is clouded. 1 is no better than chance, 0 is no look at a cloud.

Axis legend: N series, T observations of all series together.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class CloudScores:
    mass: float  # of attention on clouded observations
    clouded: float  # share of observations that are
    chance: float  # date-matched
    untrained: float  # the ratio of the same model before training

    @property
    def ratio(self) -> float:
        return self.mass / self.chance if self.chance else float("nan")

    def rows(self) -> list[tuple[str, str]]:
        return [
            ("observations clouded", f"{100 * self.clouded:.1f} %"),
            ("attention on clouds", f"{100 * self.mass:.1f} %"),
            ("date-matched chance", f"{100 * self.chance:.1f} %"),
            ("ratio to chance", f"{self.ratio:.2f} (untrained {self.untrained:.2f})"),
        ]

    def to_dict(self) -> dict[str, Any]:
        return {
            "mass": self.mass,
            "clouded": self.clouded,
            "chance": self.chance,
            "ratio": self.ratio,
            "untrained": self.untrained,
        }


def mass_and_chance(
    attention: NDArray[np.floating[Any]], is_clouded: NDArray[np.bool_], dates: NDArray[np.integer[Any]], series: int
) -> tuple[float, float]:
    """Of attention (T,) that sums to 1 over each series, clouds (T,) and the number of each observation's date (T,)."""
    count = int(dates.max()) + 1
    mass = float(attention @ is_clouded) / series
    attended = np.bincount(dates, attention, count) / series
    clouded = np.bincount(dates, is_clouded, count) / np.maximum(np.bincount(dates, minlength=count), 1)
    return mass, float(attended @ clouded)
