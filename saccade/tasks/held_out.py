"""Held-out examples of a run by name: `test:0` is its first test sentence or picture, for whoever has none at hand."""

import re
from typing import Any

from saccade.errors import UserError

_NAME = re.compile(r"(valid|test):(\S*)")


def example_or_itself(task: Any, given: str) -> Any:
    """The example that is named, as the task's `predict` takes it; what names none is given back."""
    match = _NAME.fullmatch(given)
    if match is None:
        return given
    split = match[1]
    if not re.fullmatch("[0-9]+", match[2]):
        raise UserError(f"{given} was asked for: name a {split} example by its number, as in {split}:0")
    number = int(match[2])
    if task.recipe.task == "translation":
        phrases = task.corpus.held_out(split)
        return phrases[_within(number, len(phrases), split)].source
    if task.recipe.task == "caption":
        pixels = task.captions.split(split).pixels
        return pixels[_within(number, len(pixels), split)].transpose(1, 2, 0)  # (C, H, W) -> (H, W, C)
    number = _within(number, len(task.images.split(split)), split)
    return task.frame(split, number).permute(1, 2, 0).numpy()  # (C, H, W) -> (H, W, C)


def _within(number: int, count: int, split: str) -> int:
    if number >= count:
        raise UserError(f"{split}:{number} was asked for: this run has {split}:0 to {split}:{count - 1}")
    return number
