"""An answer that is a course over time: for each variable what was known, what is forecast, between which ends, and what came."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Numbers = Sequence[float | None]  # None is missing


@dataclass(frozen=True)
class Course:
    name: str
    known: Numbers  # up to now
    forecast: Numbers  # from then on
    low: Numbers = ()
    high: Numbers = ()
    truth: Numbers = ()  # what came

    def to_dict(self) -> dict[str, Any]:
        parts = {
            "known": self.known,
            "forecast": self.forecast,
            "low": self.low,
            "high": self.high,
            "truth": self.truth,
        }
        return {"name": self.name, **{name: list(part) for name, part in parts.items()}}


@dataclass(frozen=True)
class Chart:
    """One course above another, over the same dates."""

    labels: tuple[str, ...]  # of everything that is known and forecast, in order
    courses: tuple[Course, ...]

    def to_dict(self) -> dict[str, Any]:
        return {"labels": list(self.labels), "courses": [course.to_dict() for course in self.courses]}
