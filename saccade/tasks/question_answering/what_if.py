"""What would the answer be without a sentence of the context? Asked once for each sentence, and for those that somebody hides."""

from typing import TYPE_CHECKING, Any

from pydantic import Field

from saccade.config.recipe import Config
from saccade.data.questions.exercises import Asked
from saccade.data.questions.words import cut, sentence_numbers
from saccade.errors import UserError
from saccade.tasks.question_answering.answering import Answered
from saccade.tasks.task import Example, Question

if TYPE_CHECKING:
    from saccade.tasks.question_answering.task import QuestionAnsweringTask

_MOST = 60  # sentences that are hidden one by one


class HiddenFields(Config):
    hidden: list[int] = Field(
        default_factory=list,
        max_length=1000,
        description="numbers of the sentences to hide, from 0; none asks for each in turn",
    )


def sentences_of(context: str) -> list[tuple[int, int]]:
    """Characters [start, end) of each sentence."""
    words = cut(context)
    numbers = sentence_numbers(words.words, words.starts, words.ends)
    spans: list[tuple[int, int]] = []
    for number, start, end in zip(numbers, words.starts, words.ends, strict=True):
        if number == len(spans):
            spans.append((start, end))
        spans[number] = spans[number][0], end
    return spans


def hide(context: str, sentences: list[tuple[int, int]], hidden: set[int]) -> str:
    """The context without some sentences, each replaced by as many spaces, so that places stay what they are."""
    for number in hidden:
        start, end = sentences[number]
        context = context[:start] + " " * (end - start) + context[end:]
    return context


def without(task: "QuestionAnsweringTask") -> Question[Asked]:
    def answer(example: Example[Asked], fields: HiddenFields) -> dict[str, Any]:
        asked = example.content
        sentences = sentences_of(asked.context)
        wrong = [number for number in fields.hidden if not 0 <= number < len(sentences)]
        if wrong:
            raise UserError(f"there is no sentence {wrong[0]}: the context has the sentences 0 to {len(sentences) - 1}")
        each = [set(fields.hidden)] if fields.hidden else [{number} for number in range(min(len(sentences), _MOST))]
        contexts = [hide(asked.context, sentences, hidden) for hidden in each]
        left = [(hidden, context) for hidden, context in zip(each, contexts, strict=True) if context.strip()]
        found = task.found([Asked(asked.question, context) for _, context in left])
        answers = [
            {"hidden": sorted(hidden), **Answered(asked.question, spans.best(3, context, window)).to_dict()}
            for (hidden, context), (spans, window) in zip(left, found, strict=True)
        ]
        return {"sentences": [list(span) for span in sentences], "answers": answers}

    return Question("without", "The answer when sentences of the context are hidden", HiddenFields, answer)
