"""A caption run as the server shows it: pictures in, sentences out, and where each word looked."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from PIL import Image

from saccade.errors import UserError
from saccade.serve.messages import FigureQuestion, LookQuestion, PredictQuestion
from saccade.serve.served import (
    PictureReader,
    data_address,
    settings_of,
    shown_picture,
    spread,
    word_probabilities,
    written,
)
from saccade.tasks.captions import look as captioning
from saccade.tasks.captions.task import CaptionTask
from saccade.tasks.translation.what_if import over_source

_LONGEST = 60  # words of a given caption: as many as the model itself may write


class CaptionRun(PictureReader):
    """Pictures in, captions out."""

    @property
    def task(self) -> CaptionTask:
        task = self.run.task
        assert isinstance(task, CaptionTask)
        return task

    def check(self, question: Any) -> None:
        super().check(question)
        if getattr(question, "prefix", ""):
            raise UserError(f"the run {self.name} describes pictures in its own words: leave out `prefix`")
        if getattr(question, "pixel", None) is not None:
            raise UserError(f"in the run {self.name} words look, not pixels: leave out `pixel`")
        target = getattr(question, "target", None) or ""
        if len(target) > self.limits.characters or len(self.task.vocabulary.encode(target)) > _LONGEST:
            raise UserError(f"`target` is longer than the {_LONGEST} words that are allowed: shorten it")

    def attends(self) -> bool:
        """Whether words look at the picture; an encoder's own attention does not count."""
        return bool(over_source(self.task.model))

    def examples(self) -> list[str]:
        """Held-out pictures; none where somebody removed them, for predicting does not need them."""
        try:
            held_out = self.task.captions.valid
        except UserError:
            return []
        return [data_address(held_out.pixels[place].transpose(1, 2, 0)) for place in spread(len(held_out))]

    def predict(self, questions: Sequence[PredictQuestion]) -> list[dict[str, Any]]:
        pictures = [self.picture(str(question.image)) for question in questions]
        found = self.task.predict(pictures, best=questions[0].best, **settings_of(questions[0]))
        return [
            {
                "run": self.name,
                "captions": [
                    written(text, hypothesis, self.task.vocabulary)
                    for text, hypothesis in zip(each.lines(), each.hypotheses, strict=True)
                ],
            }
            for each in found
        ]

    def look(self, question: LookQuestion) -> dict[str, Any]:
        picture = self.picture(str(question.image))
        if not self.attends():
            return self._unseen(picture, question.target)
        view = captioning.look(self.task, picture, question.target, question.only)
        assert view.picture is not None
        return {
            "run": self.name,
            "target": view.text,
            "log_prob": view.answer["captions"][0]["log_prob"],
            "words": [{"text": word.text, "probability": word.probability} for word in view.words],
            "picture": shown_picture(view.picture),
            "maps": self.shown(view.maps),
        }

    def _unseen(self, picture: Image.Image, target: str | None) -> dict[str, Any]:
        """The caption of a model whose words look nowhere."""
        answer = self.task.predict([picture])[0] if target is None else self.task.given(picture, target)
        hypothesis = answer.hypotheses[0]
        return {
            "run": self.name,
            "target": answer.text,
            "log_prob": hypothesis.log_prob,
            "words": word_probabilities(self.task.vocabulary, hypothesis),
            "picture": shown_picture(self.task.picture(picture).transpose(1, 2, 0)),
            "maps": [],
        }

    def figure(self, question: FigureQuestion) -> bytes:
        view = captioning.look(self.task, self.picture(str(question.image)), question.target, question.only)
        if question.head is not None:
            view = replace(view, maps=tuple(attention.head(question.head) for attention in view.maps))
        return view.png() if question.format == "png" else view.svg()
