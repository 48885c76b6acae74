"""A trained run as the server shows it. What answers questions runs in workers, and nothing here knows a task."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from saccade.errors import UserError
from saccade.runs.run import Run
from saccade.serve.limits import Limits
from saccade.serve.messages import RunInfo
from saccade.serve.requests import Body, FigureFields, Question
from saccade.tasks.task import Json
from saccade.views.maps import AttentionMap
from saccade.views.view import View

Tell = Callable[[Json], None]
_DIGITS = 5  # of a weight: enough for eyes, a third of the bytes


class Served:
    """One run under its name."""

    def __init__(self, name: str, run: Run, limits: Limits):
        self.name = name
        self.run = run
        self.limits = limits
        self.questions = {question.name: question for question in run.task.questions()}
        self.streams = run.task.stream()
        self.bodies = self._bodies()

    def _bodies(self) -> dict[str, Body]:
        """What each endpoint takes of this run."""
        bodies = {
            "predict": Body.of(f"{self.name} predict", self.run, "predict"),
            "look": Body.of(f"{self.name} look", self.run, "look"),
            "figure": Body.of(f"{self.name} figure", self.run, "look", FigureFields),
        }
        if self.streams is not None:
            bodies["stream"] = Body.of(f"{self.name} stream", self.run, None, self.streams.takes)
        for name, question in self.questions.items():
            bodies[name] = Body.of(f"{self.name} {name}", self.run, None, question.takes)
        return bodies

    def info(self) -> RunInfo:
        recipe, task = self.run.recipe, self.run.task
        return RunInfo(
            name=self.name,
            task=recipe.task,
            reads=task.input.kind,
            model=recipe.model_name,
            description=recipe.description.partition(" (--set ")[0],  # how it was started is no news to a visitor
            attends=task.attends,
            asks=list(self.bodies),
            page=self.page is not None,
            examples=self.examples,
            decode=recipe.to_dict().get("decode", {}),
        )

    @property
    def page(self) -> Path | None:
        """The part of the page that the run's task brings along, if it has one."""
        module = self.run.recipe.task_module.__file__
        script = None if module is None else Path(module).with_name("page.js")
        return script if script is not None and script.is_file() else None

    @cached_property
    def examples(self) -> list[str]:
        """None where somebody removed them: predicting does not need them."""
        try:
            return self.run.task.input.suggestions(self.run.task.held_out("valid"))
        except UserError:
            return []

    def read(self, endpoint: str, body: Mapping[str, Any]) -> Question:
        """The question that a request holds, or a UserError."""
        if endpoint not in self.bodies:
            raise UserError(f"the run {self.name} does not answer /api/{endpoint}: it answers {', '.join(self.bodies)}")
        return self.bodies[endpoint].read(body, self.limits)

    def predict(self, questions: Sequence[Question]) -> list[Json]:
        """Answers to questions that have the same options."""
        options = questions[0].options
        answers = self.run.task.answers([question.example for question in questions], options)
        return [
            {"run": self.name, **answer.to_dict(), **self._unknown(question)}
            for question, answer in zip(questions, answers, strict=True)
        ]

    def look(self, question: Question) -> Json:
        view = self._view(question)
        view = replace(view, maps=view.rows(), seen_from={})  # a page asks again for what another cell looks at
        self.require_few(view.maps, self.limits.weights)
        return {"run": self.name, **view.to_dict(digits=_DIGITS), **self._unknown(question)}

    def figure(self, question: Question) -> bytes:
        view, fields = self._view(question), question.fields
        if fields.head is not None:
            heads = tuple(attention.head(fields.head) for attention in view.maps)
            view = replace(view, maps=heads, summary=())
        self.require_few([one for one in view.maps if view.picture is None], self.limits.drawn)
        return {"png": view.png, "svg": view.svg, "pdf": view.pdf}[fields.format]()

    def _unknown(self, question: Question) -> Json:
        """The words of the input that the model does not know, where there are any: its answer may have nothing to do with them."""
        words = self.run.task.input.unknown([question.example])
        return {"unknown": list(words)} if words else {}

    def _view(self, question: Question) -> View:
        return self.run.task.look(question.example, question.options)

    def answer(self, endpoint: str, question: Question) -> Json:
        """One of the task's own questions."""
        return {"run": self.name, **self.questions[endpoint].answer(question.example, question.fields)}

    def stream(self, question: Question, tell: Tell) -> None:
        assert self.streams is not None
        self.streams.answer(question.example, question.fields, tell)

    def require_few(self, maps: Sequence[AttentionMap], most: int) -> None:
        count = sum(attention.weights.size for attention in maps)
        if count > most:
            raise UserError(
                f"the answer would hold {count:,} weights, and {most:,} are allowed: "
                f"name fewer attentions with `only`, such as {maps[-1].name}"
            )


def open_runs(paths: Sequence[Path], limits: Limits) -> dict[str, Served]:
    """Every run under the name of its directory; a second one of the same name gets a number."""
    runs: dict[str, Served] = {}
    for path in paths:
        run = Run(path)
        base = run.path.resolve().name
        name, number = base, 2
        while name in runs:
            name, number = f"{base}-{number}", number + 1
        runs[name] = Served(name, run, limits)
    return runs


def as_json(content: Any) -> bytes:
    """JSON that can always be sent: half a surrogate pair in a client's text becomes a question mark, not a failure."""
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")
