"""How good a run's answers are: exact match, F1, and where its attention is when the data name the supporting sentences."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
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
from saccade.views.axes import Axis, Tokens

_AT_A_TIME = 64

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
    """For every attention that looks over the context: its weight on the supporting sentences, and how often the strongest sentence is one;
    of several hops also together. Who looks is averaged. Contexts in several windows are left out."""
    chosen = [(exercise, task.windows(exercise)) for exercise in exercises if exercise.facts]
    whole = [(exercise, first) for exercise, (first, *more) in chosen if not more]
    whole.sort(key=lambda pair: len(pair[1]))
    looks: dict[str, list[Looked]] = {}
    task.model.eval()
    for place in range(0, len(whole), _AT_A_TIME):
        part = whole[place : place + _AT_A_TIME]
        with record_attention(task.model) as recorded:
            task.logits(task.collate([window for _, window in part]))
        for name in recorded:
            kind = _keys_of(task, name)
            weights = recorded.joined(name).cpu()
            weights = weights.mean(1) if weights.dim() == 4 else weights  # heads
            for row, (exercise, window) in enumerate(part if kind else ()):
                looks.setdefault(name, []).append(_on_facts(weights[row], kind == "sentences", exercise, window))
    scores = [_scored(name, found) for name, found in looks.items()]
    return scores if len(looks) < 2 else [*scores, _together(list(looks.values()))]


def _keys_of(task: "QuestionAnsweringTask", name: str) -> str:
    """What this attention looks at, as the model says: the words or the sentences of the context; nothing where it is neither."""
    axes: dict[str, Axis] = {side: Tokens((side,)) for side in ("question", "context", "sentences", "text")}
    keys = task.model.attention_axes(name, axes)[1]
    return next((side for side in ("context", "sentences") if keys is axes[side]), "")


@dataclass(frozen=True)
class Looked:
    """Where one attention looked in one story."""

    mass: float  # on the supporting sentences
    strongest: int  # sentence
    facts: frozenset[int]


def _on_facts(weights: Tensor, of_sentences: bool, exercise: Exercise, window: Window) -> Looked:
    """Weights (Q, K) of one question over words or sentences, averaged over who looks."""
    cut = window.context
    numbers = sentence_numbers(cut.words, cut.starts, cut.ends)
    facts = frozenset(
        number
        for number, start in zip(numbers, cut.starts, strict=True)
        if any(begin <= start < end for begin, end in exercise.facts)
    )
    count = numbers[-1] + 1
    if of_sentences:
        by_sentence = weights.mean(0)[:count]
    else:
        mean = weights[: len(window.question), : len(window)].mean(0)  # (C,)
        by_sentence = torch.zeros(count).index_add(0, torch.tensor(numbers), mean)
    mass = float(by_sentence[sorted(facts)].sum() / by_sentence.sum().clamp_min(1e-12))
    return Looked(mass, int(by_sentence.argmax()), facts)


def _scored(name: str, looks: Sequence[Looked]) -> FactScores:
    strongest = [look.strongest in look.facts for look in looks]
    return FactScores(name, 100 * sum(look.mass for look in looks) / len(looks), 100 * sum(strongest) / len(looks))


def _together(looks: Sequence[Sequence[Looked]]) -> FactScores:
    """Several attentions: how often each supporting sentence is the strongest of some."""
    found = [hops[0].facts <= {look.strongest for look in hops} for hops in zip(*looks, strict=True)]
    mass = sum(look.mass for several in looks for look in several) / sum(map(len, looks))
    return FactScores("all together (every fact is the strongest of one)", 100 * mass, 100 * sum(found) / len(found))
