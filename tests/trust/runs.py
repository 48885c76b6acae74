"""A small run of every task that has a recipe on built-in data."""

import os
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

from saccade.config import recipe as configs
from saccade.errors import ConfigError
from saccade.runs.train import train

SMALL = [
    "train.steps=2",
    "train.validate_every=1",
    "train.checkpoint_every=1",
    "train.warmup_steps=1",
    "train.threads=1",
    "train.precision=fp32",
    "train.average=1",
    "data.examples=50",
    "decode.valid_sentences=2",
    "model.size=null",
    "model.hidden=16",
    "model.heads=2",
    "model.layers=1",
    "model.embedding=8",
    "model.feed_forward=16",
]


def recipes() -> dict[tuple[str, str], str]:
    """By task and model the first recipe that names no files."""
    found: dict[tuple[str, str], str] = {}
    for name, _ in configs.recipes():
        try:
            with patch.dict(os.environ):
                os.environ.pop("SACCADE_DATA", None)
                recipe = configs.load(name)
        except ConfigError:
            continue  # needs files
        found.setdefault((recipe.task, recipe.model_name), name)
    return found


def one_for_each_task() -> dict[tuple[str, str], str]:
    chosen: dict[str, tuple[str, str]] = {}
    for task, model in recipes():
        chosen.setdefault(task, (task, model))
    return {key: recipes()[key] for key in chosen.values()}


def small(name: str) -> list[str]:
    """The settings among SMALL that this recipe has and takes."""
    taken: list[str] = []
    for setting in SMALL:
        try:
            configs.load(name, [*taken, setting])
        except ConfigError:
            continue
        taken.append(setting)
    return taken


def trained(names: dict[tuple[str, str], str], folder: Path) -> dict[str, Path]:
    return {name: train(name, small(name), folder / name) for name in names.values()}


def files(run: Path) -> Iterator[Path]:
    """What a person would send: without the hidden marks of the training and its board."""
    for path in sorted(run.rglob("*")):
        inside = path.relative_to(run).parts
        if path.is_file() and not inside[0].startswith(".") and inside[0] not in ("tensorboard", "samples"):
            yield path
