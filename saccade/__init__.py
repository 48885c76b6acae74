"""Saccade: train attention models on your own data, run them fast on your own machine, and look inside."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saccade.runs.run import Run

__version__ = "0.1.0"


def load(path: str | Path) -> "Run":
    """A trained run from its directory: `saccade.load("runs/my-run").predict(["A sentence."])`."""
    from saccade.runs.run import Run  # here, because importing torch takes a second that `saccade --help` should not

    return Run(path)


def train(recipe: str | Path, settings: Mapping[str, object] | None = None, *, out: str | Path | None = None) -> "Run":
    """Train a recipe, as `saccade train` does, and open the run: `saccade.train("translation", {"data.source": "my.en"}, out="my-run")`.

    `recipe` is a name that `saccade recipes` lists or the path of a YAML file, `settings` are those of `--set`; `out` is runs/RECIPE
    unless given.
    """
    from saccade.runs.train import train as start

    changes = [f"{place}={_written(value)}" for place, value in (settings or {}).items()]
    return load(start(recipe, changes, None if out is None else Path(out)))


def _written(value: object) -> str:
    """A value as `--set` takes it."""
    return str(value) if isinstance(value, str | Path) else json.dumps(value)
