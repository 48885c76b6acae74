"""Question answering: a question and a text in, the span of the text that answers it out.

The objective is the negative log-probability of the answer, summed over questions. Where the words of the answer stand in the context more
than once and nobody says which are meant, the probabilities of all occurrences are added (Clark and Gardner 2018):

    loss = -log Σ_(i, j) p(start = i) p(end = j)        (i, j) the right spans; (0, 0) is "no answer"

A context that is longer than data.window is read in windows. A window without the answer says "no answer", where the data have questions
without one; otherwise it is not trained on.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from saccade.config.recipe import Config as BaseConfig
from saccade.config.recipe import Recipe
from saccade.data.questions import dataset
from saccade.data.questions.batching import NO_ANSWER, Window, windows
from saccade.data.questions.dataset import Questions, QuestionsConfig
from saccade.data.questions.exercises import Asked, Exercise
from saccade.data.text.batching import TokenBatches
from saccade.errors import UserError
from saccade.metrics.spans import SpanScores
from saccade.models.bert import Bert
from saccade.models.bidaf import Bidaf
from saccade.models.memory import Memory
from saccade.tasks.held_out import HeldOut
from saccade.tasks.inputs import TextPair
from saccade.tasks.question_answering import evaluating
from saccade.tasks.question_answering.answering import Answered, SpanProbabilities, span_probabilities
from saccade.tasks.question_answering.options import QuestionOptions
from saccade.tasks.question_answering.reading import Batch, Reader, WordReader, new_reader, open_reader
from saccade.tasks.task import (
    Example,
    Loss,
    Question,
    Say,
    SplitName,
    Step,
    Trained,
    Validation,
    build_model,
    device,
    trainable,
)
from saccade.tasks.tuning import TuningConfig, freeze, rates
from saccade.views.view import View

AT_A_TIME = 64  # windows judged or answered in one go
_MOST_VALID = 1000  # questions of a validation


class Config(BaseConfig):
    model_kind: ClassVar[str] = "spans"

    data: QuestionsConfig
    tuning: TuningConfig


class QuestionAnsweringTask(Trained[Asked, QuestionOptions]):
    unit = "questions"

    def __init__(self, recipe: Recipe, questions: Questions, reader: Reader):
        self.recipe = recipe
        self.questions_asked = questions
        self.reader = reader
        self.device = device()
        self.model: Bidaf | Memory | Bert = build_model(recipe, reader.shapes, self.device)  # type: ignore[assignment]
        freeze(self.model, recipe.tuning.freeze)

    @classmethod
    def prepare(cls, recipe: Recipe, directory: Path, say: Say) -> "QuestionAnsweringTask":
        questions = dataset.prepare(recipe.data, directory, say)
        reader, vectors = new_reader(recipe, questions.train, directory, say)
        task = cls(recipe, questions, reader)
        if vectors is not None and isinstance(reader, WordReader):
            reader.take(vectors, task.model, say)
        return task

    @classmethod
    def reopen(cls, recipe: Recipe, directory: Path) -> "QuestionAnsweringTask":
        return cls(recipe, dataset.reopen(directory), open_reader(recipe, directory))

    @classmethod
    def options(cls, recipe: Recipe) -> type[QuestionOptions]:
        return QuestionOptions

    @property
    def input(self) -> TextPair:
        return TextPair()

    @property
    def attends(self) -> bool:
        return True

    # Training

    def steps(self) -> list[Step]:
        tuned = rates(self.model.stack(), self.recipe.tuning)
        return [Step("loss", trainable([self.model]), self._loss, rates=tuned)]

    def epoch(self, number: int, rank: int, world: int) -> Sequence[np.ndarray[Any, Any]]:
        asked = np.array([len(window.question) for window in self._train])
        contexts = np.array([len(window) for window in self._train])
        seed, tokens = self.recipe.train.seed, self.recipe.data.batch_tokens
        return TokenBatches(asked, contexts, tokens, seed=seed, shard=(rank, world)).epoch(number)

    def batch(self, work: np.ndarray[Any, Any]) -> Batch | None:
        return self.collate([self._train[index] for index in work]) if len(work) else None

    def describe(self, work: np.ndarray[Any, Any]) -> str:
        first = " ".join(self._train[int(work[0])].question.words) if len(work) else "none"
        return f"{len(work)} questions, the first: {first}"

    @cached_property
    def _train(self) -> list[Window]:
        """Windows that are learned from."""
        found = [window for exercise in self.questions_asked.train for window in self.windows(exercise)]
        if not self.questions_asked.unanswered:
            found = [window for window in found if window.spans != (NO_ANSWER,)]
        if not found:
            raise UserError("no window of a context holds an answer: raise data.window")
        return found

    def windows(self, exercise: Exercise) -> list[Window]:
        """The windows over its context. A model that reads few tokens at a time takes shorter steps too."""
        question, data = self.reader.cut(exercise.question), self.recipe.data
        size = self.reader.room(question, data.window)
        stride = min(data.stride, max(1, size // 2))
        return windows(question, self.reader.cut(exercise.context), size, stride, exercise.spans)

    def collate(self, chosen: Sequence[Window]) -> Batch:
        return self.reader.collate(chosen).to(self.device)

    def logits(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Of the first and the last word (B, 1 + C); "no answer" is hidden where no question was trained with it."""
        start, end = self.reader.logits(self.model, batch)
        start, end = start.float(), end.float()
        if not self.questions_asked.unanswered:
            hidden = torch.zeros_like(start, dtype=torch.bool)
            hidden[:, 0] = True
            start, end = start.masked_fill(hidden, -torch.inf), end.masked_fill(hidden, -torch.inf)
        return start, end

    def _loss(self, batch: Batch) -> Loss:
        return Loss(-self.log_likelihood(batch).sum(), len(batch))

    def log_likelihood(self, batch: Batch) -> Tensor:
        """(B,) of the right answers, added up where there are several."""
        start, end = (logits.log_softmax(1) for logits in self.logits(batch))
        right = start[batch.rows, batch.starts] + end[batch.rows, batch.ends]  # (A,)
        highest = torch.full_like(start[:, 0], -torch.inf).scatter_reduce(0, batch.rows, right.detach(), "amax")
        shares = (right - highest[batch.rows]).exp()
        return torch.zeros_like(highest).index_add(0, batch.rows, shares).log() + highest

    # Judging

    def validate(self) -> Validation:
        exercises = self.questions_asked.valid[:_MOST_VALID]
        scores, answers = evaluating.score(self, exercises)
        samples = [f"{answer.question} → {answer.text or 'no answer'}" for answer in answers[:3]]
        return Validation({"F1": scores.f1, "exact": scores.exact}, scores.f1 + 1e-3 * scores.exact, samples)

    def evaluate(self, split: SplitName, options: QuestionOptions) -> SpanScores:
        return evaluating.evaluate(self, split, options)

    def held_out(self, split: SplitName) -> Sequence[Example[Asked]]:
        exercises = self.questions_asked.held_out(split)

        def example(number: int) -> Example[Asked]:
            exercise = exercises[number]
            return Example(exercise.asked, f"{split}:{number}", " | ".join(exercise.answers) or "no answer")

        return HeldOut(len(exercises), example)

    # Answering

    def answers(self, examples: Sequence[Example[Asked]], options: QuestionOptions) -> Iterator[Answered]:
        asked = [example.content for example in examples]
        for one, (found, first) in zip(asked, self.found(asked), strict=True):
            yield Answered(one.question, found.best(options.best, one.context, first))

    @torch.no_grad()
    def found(self, asked: Sequence[Asked]) -> Iterator[tuple[SpanProbabilities, Window]]:
        """For each question the probabilities of all spans, and a window of its context."""
        self.model.eval()
        for begin in range(0, len(asked), AT_A_TIME):
            part = [self.windows(Exercise(one.question, one.context)) for one in asked[begin : begin + AT_A_TIME]]
            flat = sorted((window for several in part for window in several), key=len)
            logits: dict[int, tuple[Tensor, Tensor]] = {}
            for place in range(0, len(flat), AT_A_TIME):
                chosen = flat[place : place + AT_A_TIME]
                start, end = (side.cpu() for side in self.logits(self.collate(chosen)))
                logits |= {id(window): (start[row], end[row]) for row, window in enumerate(chosen)}
            for several in part:
                starts, ends = zip(*(logits[id(window)] for window in several), strict=True)
                yield span_probabilities(several, starts, ends, self.questions_asked.unanswered), several[0]

    def look(self, example: Example[Asked], options: QuestionOptions) -> View:
        from saccade.tasks.question_answering.look import look

        return look(self, example, options.only)

    def questions(self) -> Sequence[Question[Asked]]:
        from saccade.tasks.question_answering.what_if import without

        return [without(self)]


TASK = QuestionAnsweringTask
