"""The two lines above a classified picture: what the model takes it for; where it came from, its true class, what else it might be."""

from collections.abc import Sequence
from pathlib import Path

from saccade.tasks.image_classes.task import Classified


def title(answer: Classified) -> str:
    return f"{answer.text} (probability {answer.probability:.2f})"


def subtitle(answer: Classified, truth: str | None, remarks: Sequence[str] = ()) -> str:
    """`truth` is known of held-out examples; `remarks` say what else there is to know."""
    others = zip(answer.classes[1:4], answer.probabilities[1:4], strict=True)
    parts = [
        Path(answer.source).name,
        f"in truth {truth}" if truth else "",
        f"else {', '.join(f'{name} {share:.2f}' for name, share in others)}",
        *remarks,
    ]
    return " · ".join(part for part in parts if part)
