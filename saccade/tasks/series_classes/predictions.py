"""Predictions as a table: id, class, probability, and the probability of every class."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from saccade.errors import ConfigError
from saccade.files import replacing

ENDINGS = (".csv", ".gz", ".parquet")


def require_ending(path: Path) -> None:
    if path.suffix.lower() not in ENDINGS:
        raise ConfigError(f"--out {path} must end in .csv, .csv.gz or .parquet")


class Predictions:
    def __init__(self, classes: Sequence[str]):
        self.classes = classes
        self.ids: list[str] = []
        self.parts: list[np.ndarray[Any, np.dtype[np.float32]]] = []

    def add(self, ids: Sequence[str], probabilities: np.ndarray[Any, np.dtype[np.float32]]) -> None:
        self.ids += ids
        self.parts.append(probabilities)

    def write(self, path: Path) -> None:
        shares = np.concatenate(self.parts) if self.parts else np.zeros((0, len(self.classes)), np.float32)
        best = shares.argmax(1)
        columns: dict[str, Any] = {
            "id": self.ids,
            "class": [self.classes[number] for number in best],
            "probability": shares[np.arange(len(best)), best].round(5),
        }
        columns |= {f"p({name})": shares[:, place].round(5) for place, name in enumerate(self.classes)}
        frame = pd.DataFrame(columns)
        with replacing(path) as aside:
            if path.suffix.lower() == ".parquet":
                frame.to_parquet(aside, index=False)
            else:
                frame.to_csv(aside, index=False, compression="gzip" if path.suffix.lower() == ".gz" else None)
