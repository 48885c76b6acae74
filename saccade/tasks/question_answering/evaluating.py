"""How good a run's answers are: exact match, F1, and where its attention is when the data name the supporting sentences."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from saccade.attention import record_attention
from saccade.data.questions.batching import Window
from saccade.data.questions.exercises import Exercise, read_exercises
from saccade.data.questions.words import sentence_numbers
from saccade.files import write_text
from saccade.metrics.spans import FactScores, SpanScores, exact_match, score_spans
from saccade.tasks.question_answering.answering import Answered
from saccade.tasks.task import Example, SplitName
from saccade.views.axes import Tokens

if TYPE_CHECKING:
    from saccade.tasks.question_answering.options import QuestionOptions
    from saccade.tasks.question_answering.task import QuestionAnsweringTask


def evaluate(task: "QuestionAnsweringTask", split: SplitName, options: "QuestionOptions") -> SpanScores:
    """On the run's own held-out questions, or on those of a file."""
    own = task.questions_asked.held_out(split) if options.data is None else read_exercises(options.data)
    scores, answers = score(task, own)
    if options.mistakes is not None:
        _list_mistakes(options.mistakes, own, answers)
    return replace(scores, facts=tuple(fact_scores(task, own)))


def score(task: "QuestionAnsweringTask", exercises: Sequence[Exercise]) -> tuple[SpanScores, list[Answered]]:
    from saccade.tasks.question_answering.options import QuestionOptions

    answers = list(task.answers([Example(exercise.asked) for exercise in exercises], QuestionOptions()))
    return score_spans([answer.text for answer in answers], [exercise.answers for exercise in exercises]), answers


def _list_mistakes(path: Path, exercises: Sequence[Exercise], answers: Sequence[Answered]) -> None:
    rows = [
        (answer.best.probability, exercise.question, answer.text, " | ".join(exercise.answers))
        for exercise, answer in zip(exercises, answers, strict=True)
        if not exact_match(answer.text, exercise.answers)
    ]
    lines = ["\t".join(("probability", "question", "answer", "right answers"))]
    for probability, *texts in sorted(rows, reverse=True):
        lines.append("\t".join([f"{probability:.4f}", *(" ".join(text.split()) for text in texts)]))
    write_text(path, "\n".join([*lines, ""]))


@torch.no_grad()
def fact_scores(task: "QuestionAnsweringTask", exercises: Sequence[Exercise]) -> list[FactScores]:
    """For every attention that looks over the context: its weight on the supporting sentences, and how often the strongest sentence is one.
    Who looks is averaged. Contexts in several windows are left out."""
    chosen = [(exercise, task.windows(exercise)) for exercise in exercises if exercise.facts]
    whole = sorted(
        ((exercise, first) for exercise, (first, *more) in chosen if not more), key=lambda pair: len(pair[1])
    )
    masses: dict[str, list[tuple[float, bool]]] = {}
    task.model.eval()
    for place in range(0, len(whole), 64):
        part = whole[place : place + 64]
        batch = task.collate([window for _, window in part])
        with record_attention(task.model) as recorded:
            task.logits(batch)
        for name in recorded:
            if not _looks_at_context(task, name):
                continue
            weights = recorded.joined(name)
            weights = weights.mean(1) if weights.dim() == 4 else weights  # heads
            for row, (exercise, window) in enumerate(part):
                masses.setdefault(name, []).append(_on_facts(weights[row], exercise, window))
    return [
        FactScores(
            name,
            100 * sum(mass for mass, _ in found) / len(found),
            100 * sum(strongest for _, strongest in found) / len(found),
        )
        for name, found in masses.items()
    ]


def _looks_at_context(task: "QuestionAnsweringTask", name: str) -> bool:
    """As the model says."""
    context = Tokens(("context",))
    axes = {"question": Tokens(("question",)), "context": context, "sentences": context}
    return task.model.attention_axes(name, axes)[1] is context  # type: ignore[operator]


def _on_facts(weights: Tensor, exercise: Exercise, window: Window) -> tuple[float, bool]:
    """Of the weights (Q, C) of one question, averaged over its words: the share on the supporting sentences, and whether the strongest is
    one."""
    mean = weights[: len(window.question), : len(window)].mean(0)  # (C,)
    cut = window.context
    numbers = sentence_numbers(cut.words, cut.starts, cut.ends)
    facts = {
        number
        for number, start in zip(numbers, cut.starts, strict=True)
        if any(begin <= start < end for begin, end in exercise.facts)
    }
    by_sentence = torch.zeros(numbers[-1] + 1).index_add(0, torch.tensor(numbers), mean.cpu())
    mass = float(by_sentence[sorted(facts)].sum() / by_sentence.sum().clamp_min(1e-12))
    return mass, int(by_sentence.argmax()) in facts
