"""Held-out examples of a run by name: `test:0` is its first test sentence or picture, for whoever has none at hand."""

import re
from typing import Any

from saccade.errors import UserError

_NAME = re.compile(r"(valid|test):(\S*)")


def example_or_itself(task: Any, given: str) -> Any:
    """The example that is named, as the task's `predict` takes it; what names none is given back."""
    named = _named(task, given)
    if named is None:
        return given
    split, number = named
    if task.recipe.task == "translation":
        return task.corpus.held_out(split)[number].source
    if task.recipe.task == "caption":
        return task.captions.split(split).pixels[number].transpose(1, 2, 0)  # (C, H, W) -> (H, W, C)
    return task.frame(split, number).permute(1, 2, 0).numpy()  # (C, H, W) -> (H, W, C)


def truth_of(task: Any, given: str) -> str | None:
    """What people say of the example that is named: its translation, its captions, its class. None of what names no example."""
    named = _named(task, given)
    if named is None:
        return None
    split, number = named
    if task.recipe.task == "translation":
        return str(task.corpus.held_out(split)[number].target)
    if task.recipe.task == "caption":
        return " / ".join(task.captions.split(split).captions[number])
    return str(task.classes[task.images.split(split).labels[number]])


def _named(task: Any, given: str) -> tuple[str, int] | None:
    match = _NAME.fullmatch(given)
    if match is None:
        return None
    split = match[1]
    if not re.fullmatch("[0-9]+", match[2]):
        raise UserError(f"{given} was asked for: name a {split} example by its number, as in {split}:0")
    number, count = int(match[2]), _count(task, split)
    if number >= count:
        raise UserError(f"{split}:{number} was asked for: this run has {split}:0 to {split}:{count - 1}")
    return split, number


def _count(task: Any, split: str) -> int:
    if task.recipe.task == "translation":
        return len(task.corpus.held_out(split))
    return len((task.captions if task.recipe.task == "caption" else task.images).split(split))
