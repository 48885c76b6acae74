"""Held-out examples of a run by name: `test:0` is its first test sentence or picture, for whoever has none at hand."""

import re
from typing import Any

from saccade.data.splits import SplitName
from saccade.errors import UserError
from saccade.tasks.task import Example, Task

_NAME = re.compile(r"(valid|test):(\S*)")


def example_or_itself(task: Task, given: str) -> Any:
    """The example that is named, as the task's `predict` takes it; what names none is given back."""
    example = _named(task, given)
    return given if example is None else example.given


def truth_of(task: Task, given: str) -> str | None:
    """What people say of the example that is named: its translation, its captions, its class. None of what names no example."""
    example = _named(task, given)
    return None if example is None else example.truth


def _named(task: Task, given: str) -> Example | None:
    match = _NAME.fullmatch(given)
    if match is None:
        return None
    split: SplitName = "valid" if match[1] == "valid" else "test"
    if not re.fullmatch("[0-9]+", match[2]):
        raise UserError(f"{given} was asked for: name a {split} example by its number, as in {split}:0")
    number, count = int(match[2]), task.example_count(split)
    if number >= count:
        raise UserError(f"{split}:{number} was asked for: this run has {split}:0 to {split}:{count - 1}")
    return task.example(split, number)
