"""The answer of a task that names a class."""

from dataclasses import dataclass
from typing import Any

from saccade.printable import cell


@dataclass(frozen=True)
class Classified:
    """The likeliest classes of one example and their probabilities, best first."""

    source: str
    classes: tuple[str, ...]
    probabilities: tuple[float, ...]

    @property
    def text(self) -> str:
        return self.classes[0]

    @property
    def probability(self) -> float:
        return self.probabilities[0]

    def lines(self) -> list[str]:
        """A class and its probability on each line, best first."""
        return [f"{cell(name)}\t{share:.4f}" for name, share in zip(self.classes, self.probabilities, strict=True)]

    def to_dict(self) -> dict[str, Any]:
        answers = zip(self.classes, self.probabilities, strict=True)
        return {"source": self.source, "classes": [{"class": name, "probability": share} for name, share in answers]}
