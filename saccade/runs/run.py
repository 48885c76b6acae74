"""A trained run: `saccade.load(path)`, then predict, evaluate, look."""

import re
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from torch import nn

from saccade.config.options import Command, Options, chosen
from saccade.config.recipe import Recipe
from saccade.errors import UserError
from saccade.runs.opening import open_task
from saccade.tasks.task import Answer, AnyTask, Example, Probable, Scores, SplitName
from saccade.views.view import View

_HELD_OUT = re.compile(r"(valid|test):(\S*)")


class Run:
    """What `saccade train` left in a directory, or a model in another library's format that a task can adopt, ready to use."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.task: AnyTask = open_task(self.path)

    @property
    def recipe(self) -> Recipe:
        return self.task.recipe

    @property
    def model(self) -> nn.Module:
        """The network of a run that the loop trained."""
        return self.task.network()

    def predict(self, inputs: Sequence[object], **options: Any) -> list[Answer]:
        """Answers in the order of the inputs (sentences, images). Keywords are the options of `saccade predict`."""
        return list(self.answers(inputs, **options))

    def answers(self, inputs: Sequence[object], **options: Any) -> Iterator[Answer]:
        """The same one by one, as they are found: for more inputs than one wants to wait for. Until the last, weights must not change."""
        if isinstance(inputs, str):
            raise UserError(f"{inputs!r} is one input: give a list of inputs, for example [{inputs!r}]")
        examples = [self.example(value) for value in inputs]
        return self.task.answers(examples, self.options("predict", options))

    def evaluate(self, split: SplitName = "test", **options: Any) -> Scores:
        """The task's metrics on held-out examples. Keywords are the options of `saccade evaluate`."""
        if split not in ("valid", "test"):
            raise UserError(f"{split!r} is not a part of the held-out examples: choose valid or test")
        return self.task.evaluate(split, self.options("evaluate", options))

    def look(self, value: object, **options: Any) -> View:
        """What was attended to for one input: a View, which shows itself in a notebook and saves itself as a file. Keywords are the options
        of `saccade look`."""
        if isinstance(value, list | tuple):
            raise UserError(
                f"{value!r} is a list: look at one input, for example look({value[0] if value else '...'!r})"
            )
        return self.task.look(self.example(value), self.options("look", options))

    def score(self, outputs: Sequence[Any]) -> Sequence[Probable]:
        """How probable given outputs are, such as pairs of a sentence and its translation."""
        scorer = self.task.scorer()
        if scorer is None:
            raise UserError(f"{self.path} is a run of the task {self.recipe.task}, which does not score given outputs")
        return scorer.score(outputs)

    def example(self, value: object) -> Example[Any]:
        """An input as the task reads it; "test:0" is the run's own first test example."""
        held_out = self.held_out(value) if isinstance(value, str) else None
        return self.task.input.from_python(value) if held_out is None else held_out

    def held_out(self, name: str) -> Example[Any] | None:
        """The held-out example of this name; None where it names none."""
        match = _HELD_OUT.fullmatch(name)
        if match is None:
            return None
        split: SplitName = "valid" if match[1] == "valid" else "test"
        if not re.fullmatch("[0-9]+", match[2]):
            raise UserError(f"{name} was asked for: name a {split} example by its number, as in {split}:0")
        number, examples = int(match[2]), self.task.held_out(split)
        if number >= len(examples):
            raise UserError(f"{split}:{number} was asked for: this run has {split}:0 to {split}:{len(examples) - 1}")
        return examples[number]

    def options(self, command: Command, values: dict[str, Any], spelled: str = "{}") -> Options:
        """The task's options with these values, checked."""
        return chosen(self.task.options(self.recipe), command, values, str(self.path), spelled)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}: {self.recipe.task}, {self.recipe.model_name}, {self.recipe.description})"

    def _repr_html_(self) -> str:
        rows = {"task": self.recipe.task, "model": self.recipe.model_name, "recipe": self.recipe.description}
        cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows.items())
        return f"<table><caption>{escape(str(self.path))}</caption>{cells}</table>"
