"""Tables over time that are made up, for trying things out without data.

`tides`: four gauges of one coast, hourly: two tides and a day's rhythm, each gauge later and weaker than the one before, and weather that
all of them share. `companies`: daily prices of nine companies in three sectors; a company moves with the market, with its sector and a
little by itself, so that the same day's best witnesses of a company are the other two of its sector.

Axis legend: T moments, V variables.
"""

from collections.abc import Callable, Mapping

import numpy as np

from saccade.data.series.timeline import Timeline

_FIRST_DAY = 18_262.0  # 2020-01-01, in days since 1970-01-01
SECTORS = ("bank", "chip", "food")


def tides(hours: int = 4_000, seed: int = 0) -> Timeline:
    draw = np.random.default_rng(seed)
    time = np.arange(hours)
    weather = _smooth(draw.normal(0, 0.04, hours), 0.95)
    gauges = []
    for number in range(4):
        late = time - 0.7 * number
        moon, sun = 2.0 * np.sin(2 * np.pi * late / 12.42), 0.6 * np.sin(2 * np.pi * late / 12.0)
        day = 0.3 * np.sin(2 * np.pi * late / 24.0)
        gauges.append(5 + (1 - 0.15 * number) * (moon + sun + day) + weather + draw.normal(0, 0.05, hours))
    names = tuple(f"gauge {letter}" for letter in "ABCD")
    return Timeline(names, _FIRST_DAY + time / 24, np.stack(gauges, 1).astype(np.float32), True)


def companies(days: int = 2_000, seed: int = 0) -> Timeline:
    draw = np.random.default_rng(seed)
    calendar = _FIRST_DAY + np.arange(2 * days)
    open_days = calendar[np.array([(int(day) + 3) % 7 < 5 for day in calendar])][:days]  # 1970-01-01 was a Thursday
    market = draw.standard_t(5, days) * 0.006
    names, prices = [], []
    for sector in SECTORS:
        with_sector = market + draw.standard_t(5, days) * 0.009
        for letter in "ABC":
            returns = with_sector + draw.standard_t(5, days) * 0.005
            names.append(f"{sector} {letter}")
            prices.append(draw.uniform(20, 200) * np.exp(np.cumsum(returns)))
    return Timeline(tuple(names), open_days, np.stack(prices, 1).astype(np.float32), True)


BUILT_IN: Mapping[str, Callable[[], Timeline]] = {"tides": tides, "companies": companies}


def _smooth(noise: np.ndarray, share: float) -> np.ndarray:
    """Each value a share of the one before, and noise."""
    smooth = np.empty_like(noise)
    last = 0.0
    for place, value in enumerate(noise):
        last = share * last + value
        smooth[place] = last
    return smooth
