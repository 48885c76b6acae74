"""Which words of the context did the question look at, and where does the answer begin and end? One forward pass while recording.

Of a context in several windows, the one that holds the answer is shown.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import numpy as np
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

_BEST = 5
_SHORT = 60  # words of a context that a picture shows beside each word of the question


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
    begins, ends = found.first_words[here].float(), found.last_words[here].float()
    spans = [
        AttentionMap(f"answer {name}s", weights[None], Tokens((f"{name}s",)), Tokens(words), "answer", "context")
        for name, weights in (("begin", begins), ("end", ends))
    ]
    maps = _recorded(task, window, asked.context, only)
    is_short = only is not None or len(words) <= _SHORT
    said = f"{' '.join((answer.text or NO_ANSWER).split())} (probability {answer.best.probability:.2f})"
    whole = f"words {window.first + 1:,} to {window.last:,} of {len(window.context):,}"
    return View(
        title=asked.question,
        maps=(*maps, *spans),
        summary=() if is_short else (*_mean_looks(maps), *spans),
        hint=""
        if is_short
        else "shows the words of the question averaged: --only '*' draws every one, and .html holds them all",
        text=said,
        answer=answer.to_dict(),
        truth=example.truth,
        subtitle=" · ".join([f"answer: {said}", *([] if len(words) == len(window.context) else [whole])]),
        details={
            "question": asked.question,
            "context": asked.context,
            "places": [
                list(place) for place in zip(window.context.starts[here], window.context.ends[here], strict=True)
            ],
            "first_sentence": _sentence_before(window),
            "sentences": sentence_numbers(words, window.context.starts[here], window.context.ends[here]),
            "begins": begins.tolist(),
            "ends": ends.tolist(),
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


def _recorded(task: "QuestionAnsweringTask", window: Window, context: str, only: str | None) -> list[AttentionMap]:
    axes: dict[str, Axis] = {
        "question": Tokens(window.question.words),
        "context": Tokens(window.context.words[window.first : window.last]),
        "sentences": Tokens(tuple(_sentences(window, context))),
        "text": Tokens(("both texts",)),
    }
    titles = {id(axis): name for name, axis in axes.items()}
    with record_attention(task.model) as recorded:
        task.logits(task.collate([window]))
    maps = []
    for name in recorded:
        queries, keys = task.model.attention_axes(name, axes)
        weights = recorded.joined(name)[0]
        if keys is axes["text"]:  # both texts in one: what the question's tokens look at in the context
            asks, told = task.reader.places(window)
            queries, keys, weights = axes["question"], axes["context"], weights[..., asks, told]
        title = (titles.get(id(queries), "looks"), titles.get(id(keys), "context"))
        maps.append(AttentionMap(name, weights, queries, keys, *title))
    if only is None:
        return _with_hops_together(maps)
    chosen = [each for each in maps if fnmatchcase(each.name, only)]
    if not chosen:
        names = ", ".join(each.name for each in maps)
        raise UserError(f"no attention of this model matches {only!r}: it has {names}")
    return chosen


def _mean_looks(maps: Sequence[AttentionMap]) -> list[AttentionMap]:
    """Over the context, whoever looks: the mean over words of the question, heads and layers, as running text."""
    over = [each for each in maps if each.key_title == "context" and each.query_title != "context"]
    others = [each for each in maps if each.key_title == "sentences"]
    if not over:
        return others
    mean = np.mean([each.weights.mean(axis=(0, 1)) for each in over], axis=0)  # (K,)
    name = over[0].name if len(over) == 1 else "mean of the layers"
    return [AttentionMap(name, mean[None], Tokens(("the question",)), over[0].keys, "question", "context"), *others]


def _sentences(window: Window, context: str) -> list[str]:
    here = slice(window.first, window.last)
    words, starts, ends = window.context.words[here], window.context.starts[here], window.context.ends[here]
    numbers = sentence_numbers(words, starts, ends)
    firsts = [numbers.index(number) for number in range(numbers[-1] + 1)]
    lasts = [*(first - 1 for first in firsts[1:]), len(words) - 1]
    return [context[starts[first] : ends[last]] for first, last in zip(firsts, lasts, strict=True)]


def _with_hops_together(maps: list[AttentionMap]) -> list[AttentionMap]:
    """Looks over the same sentences, one after the other, as the rows of one map."""
    hops = [each for each in maps if len(each.queries) == 1 and each.key_title == "sentences"]
    if len(hops) < 2:
        return maps
    weights = np.concatenate([hop.weights for hop in hops], axis=1)  # (1, hops, sentences)
    queries = Tokens(tuple(label for hop in hops for label in hop.queries.labels))
    together = AttentionMap("hops", weights, queries, hops[0].keys, "looks", "sentences")
    return [together, *(each for each in maps if each not in hops)]
