"""Saccade: train attention models on your own data, run them fast on your own machine, and look inside."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saccade.runs.run import Run

__version__ = "0.1.0"


def load(path: str | Path) -> "Run":
    """A trained run from its directory: `saccade.load("runs/my-run").predict(["A sentence."])`."""
    from saccade.runs.run import Run  # here, because importing torch takes a second that `saccade --help` should not

    return Run(path)
