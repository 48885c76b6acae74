"""How good a run's classes are: on its own held-out texts, or on other files; and whether it looked at what people marked."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from saccade.data.splits import SplitName
from saccade.data.text.labelled.files import Labelled, read_labelled
from saccade.data.text.labelled.splits import check_classes
from saccade.errors import UserError
from saccade.files import write_text
from saccade.metrics.classes import ClassScores, score_classes
from saccade.metrics.rationales import RationaleScores
from saccade.tasks.text_classes.rationales import evaluate_rationales

if TYPE_CHECKING:
    from saccade.tasks.text_classes.options import TextOptions
    from saccade.tasks.text_classes.task import TextClassTask

_SHOWN = 200  # letters of a text in a list of mistakes


@dataclass(frozen=True)
class TextScores:
    classes: ClassScores
    rationales: RationaleScores | None = None  # where people marked words

    def rows(self) -> list[tuple[str, str]]:
        return [*self.classes.rows(), *([] if self.rationales is None else self.rationales.rows())]

    def columns(self) -> list[tuple[str, list[str]]]:
        return self.classes.columns()

    def compared(self) -> dict[str, float]:
        return self.classes.compared()

    def to_dict(self) -> dict[str, Any]:
        looked = {} if self.rationales is None else {"rationales": self.rationales.to_dict()}
        return {**self.classes.to_dict(), **looked}


def evaluate(task: "TextClassTask", split: SplitName, options: "TextOptions") -> TextScores:
    from saccade.views import confusion
    from saccade.views.document import PICTURES, require_ending

    if options.confusion is not None:
        require_ending(options.confusion, PICTURES)
    left_out = 0
    examples: Sequence[Labelled] = task.texts.held_out(split)
    if options.data is not None:
        listing = read_labelled(options.data, task.recipe.data.wanted, _silent)
        check_classes(listing, task.classes)
        examples, left_out = listing.examples, listing.empty + listing.unlabelled
    if not examples:
        raise UserError("this model came without held-out texts: name some with labels, --data FILE")
    log_probabilities = task.judge([example.text for example in examples])
    names = [example.text[:_SHOWN] for example in examples]
    scores = score_classes(log_probabilities, task.texts.numbers(examples), task.classes, names, task.unit)
    if options.confusion is not None:
        confusion.save(scores.confusion, scores.classes, options.confusion)
    if options.mistakes is not None:
        write_text(options.mistakes, "\n".join([*scores.mistake_lines(), ""]))
    rationales = evaluate_rationales(task, examples, options.rationales) if options.rationales else None
    return TextScores(replace(scores, left_out=left_out), rationales)


def _silent(sentence: str) -> None:
    pass
