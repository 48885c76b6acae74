"""Which words of the context did the question look at, and where does the answer begin and end? One forward pass while recording.

Of a context in several windows, the one that holds the answer is shown.
"""

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import torch

from saccade.attention import record_attention
from saccade.data.questions.batching import Window
from saccade.data.questions.exercises import Asked, Exercise
from saccade.data.questions.words import sentence_numbers
from saccade.errors import UserError
from saccade.tasks.question_answering.answering import NO_ANSWER, Answered
from saccade.tasks.task import Example
from saccade.views.axes import Axis, Tokens
from saccade.views.maps import AttentionMap
from saccade.views.view import View

if TYPE_CHECKING:
    from saccade.tasks.question_answering.task import QuestionAnsweringTask

SPAN = "answer"  # the name of the map of start and end probabilities
_BEST = 5


@torch.no_grad()
def look(task: "QuestionAnsweringTask", example: Example[Asked], only: str | None = None) -> View:
    asked = example.content
    if not asked.question.strip() or not asked.context.strip():
        raise UserError("an empty question or context was given: there is nothing to look at; give some words")
    ((found, first),) = task.found([asked])
    answer = Answered(asked.question, found.best(_BEST, asked.context, first))
    window = _holding(task, asked, answer)
    here = slice(window.first, window.last)
    words = window.context.words[here]
    span = torch.stack((found.first_words[here], found.last_words[here])).float()
    maps = _recorded(task, window, only)
    text = answer.text or NO_ANSWER
    whole = f"words {window.first + 1:,} to {window.last:,} of {len(window.context):,}"
    return View(
        title=asked.question,
        maps=(*maps, AttentionMap(SPAN, span, Tokens(("begins", "ends")), Tokens(words), "answer", "context")),
        text=f"{' '.join(text.split())} (probability {answer.best.probability:.2f})",
        answer=answer.to_dict(),
        truth=example.truth,
        subtitle="" if len(words) == len(window.context) else whole,
        details={
            "question": asked.question,
            "context": asked.context,
            "places": [
                list(place) for place in zip(window.context.starts[here], window.context.ends[here], strict=True)
            ],
            "first_sentence": _sentence_before(window),
            "sentences": sentence_numbers(words, window.context.starts[here], window.context.ends[here]),
            "begins": span[0].tolist(),
            "ends": span[1].tolist(),
        },
    )


def _holding(task: "QuestionAnsweringTask", asked: Asked, answer: Answered) -> Window:
    """The window that has the answer farthest from its edges; the first one where there is no answer."""
    several = task.windows(Exercise(asked.question, asked.context))

    def room(window: Window) -> int:
        places = window.context
        if not answer.text or not len(window):
            return -window.first
        before = answer.best.start - places.starts[window.first]
        return min(before, places.ends[window.last - 1] - answer.best.end)

    return max(several, key=room)


def _sentence_before(window: Window) -> int:
    """The number, in the whole context, of the sentence that the window begins in."""
    words = window.context
    return sentence_numbers(words.words, words.starts, words.ends)[window.first]


def _recorded(task: "QuestionAnsweringTask", window: Window, only: str | None) -> list[AttentionMap]:
    words = window.context.words[window.first : window.last]
    cut = window.context
    places = (cut.starts[window.first : window.last], cut.ends[window.first : window.last])
    numbers = sentence_numbers(words, *places)
    sentences = [
        " ".join(word for word, own in zip(words, numbers, strict=True) if own == number)
        for number in range(numbers[-1] + 1)
    ]
    axes: dict[str, Axis] = {
        "question": Tokens(window.question.words),
        "context": Tokens(words),
        "sentences": Tokens(tuple(sentences)),
        "text": Tokens(task.reader.labels(window)),
    }
    titles = {id(axis): name for name, axis in axes.items()}
    with record_attention(task.model) as recorded:
        task.logits(task.collate([window]))
    maps = []
    for name in recorded:
        queries, keys = task.model.attention_axes(name, axes)  # type: ignore[operator]
        title = (titles.get(id(queries), "question"), titles.get(id(keys), "context"))
        maps.append(AttentionMap(name, recorded.joined(name)[0], queries, keys, *title))
    chosen = [each for each in maps if fnmatchcase(each.name, only or "*")]
    if not chosen:
        names = ", ".join(each.name for each in maps)
        raise UserError(f"no attention of this model matches {only!r}: it has {names}")
    return chosen
