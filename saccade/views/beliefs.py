"""What a model expected at every position of a text, and what each of its layers would have said: a part of a View.

Positions are labelled by what was read there; an expectation is of what comes next.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Belief:
    """After one position: the likeliest choices with their probabilities, best first, and what really came."""

    choices: tuple[tuple[str, float], ...]
    truth: str | None = None  # None where nothing follows
    truth_probability: float = 1.0


@dataclass(frozen=True)
class Beliefs:
    positions: tuple[str, ...]
    layers: tuple[str, ...]  # the last one is the model's answer
    table: tuple[tuple[Belief, ...], ...]  # of each layer and position
    at_position: bool = False  # whether what stands at the position itself was guessed, not what comes after it

    @property
    def final(self) -> tuple[Belief, ...]:
        return self.table[-1]

    def to_dict(self, digits: int = 4) -> Mapping[str, Any]:
        """JSON values for a page."""
        return {
            "positions": list(self.positions),
            "layers": list(self.layers),
            "at_position": self.at_position,
            "table": [[_to_dict(belief, digits) for belief in row] for row in self.table],
        }


def _to_dict(belief: Belief, digits: int) -> dict[str, Any]:
    return {
        "choices": [[text, round(probability, digits)] for text, probability in belief.choices],
        "truth": belief.truth,
        "truth_probability": round(belief.truth_probability, digits),
    }
