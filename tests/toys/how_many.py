"""A whole task in one file: how many times does the letter a occur in a text? Text in, a number out, one attention.

Nothing in saccade/ knows it, and it trains, predicts, evaluates, looks, serves and compares as every other task does.
"""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from saccade.attention import record_attention
from saccade.config.options import Options, option
from saccade.config.recipe import Config as BaseConfig
from saccade.config.recipe import Recipe
from saccade.files import write_text
from saccade.models.shapes import Shapes
from saccade.tasks.inputs import Text
from saccade.tasks.task import Example, Loss, Question, Say, SplitName, Step, Trained, Validation, build_model, device
from saccade.tasks.task import trainable as all_parameters
from saccade.views.axes import Tokens
from saccade.views.maps import AttentionMap
from saccade.views.view import View

LETTERS = "abcd "


class DataConfig(BaseConfig):
    texts: int = Field(200, ge=1, description="texts to train on")
    batch_size: int = Field(16, ge=1)


class Config(BaseConfig):
    model_kind: ClassVar[str] = "counting"

    data: DataConfig


class CountOptions(Options):
    rounded: bool = option(False, "predict look", "answer with a whole number")


@dataclass(frozen=True)
class Count:
    text: str
    number: float

    def lines(self) -> list[str]:
        return [f"{self.number:g}"]

    def to_dict(self) -> dict[str, Any]:
        return {"text": self.text, "number": self.number}


@dataclass(frozen=True)
class CountScores:
    error: float

    def rows(self) -> list[tuple[str, str]]:
        return [("mean absolute error", f"{self.error:.3f}")]

    def columns(self) -> list[tuple[str, list[str]]]:
        return []

    def compared(self) -> dict[str, float]:
        return {"negative error": -self.error}

    def to_dict(self) -> dict[str, Any]:
        return {"error": self.error}


class HowMany(Trained[str, CountOptions]):
    unit = "texts"

    def __init__(self, recipe: Recipe, texts: dict[str, list[str]]):
        self.recipe = recipe
        self.texts = texts
        self.model = build_model(recipe, Shapes(source_words=len(LETTERS)), device())

    @classmethod
    def prepare(cls, recipe: Recipe, directory: Path, say: Say) -> "HowMany":
        draw = random.Random(1)
        sizes = {"train": recipe.data.texts, "valid": 20, "test": 20}
        texts = {
            split: ["".join(draw.choices(LETTERS[:4], k=draw.randint(2, 9))) for _ in range(size)]
            for split, size in sizes.items()
        }
        write_text(directory / "texts.json", json.dumps(texts))
        say(f"{sizes['train']} texts to train on")
        return cls(recipe, texts)

    @classmethod
    def reopen(cls, recipe: Recipe, directory: Path) -> "HowMany":
        return cls(recipe, json.loads((directory / "texts.json").read_text()))

    @classmethod
    def options(cls, recipe: Recipe) -> type[CountOptions]:
        return CountOptions

    @property
    def input(self) -> Text:
        return Text()

    @property
    def attends(self) -> bool:
        return True

    def steps(self) -> list[Step]:
        return [Step("loss", all_parameters([self.model]), self._loss)]

    def epoch(self, number: int, rank: int, world: int) -> Sequence[list[str]]:
        texts, size = self.texts["train"], self.recipe.data.batch_size
        return [texts[start : start + size][rank::world] for start in range(0, len(texts), size)]

    def batch(self, work: list[str]) -> list[str] | None:
        return work or None

    def _loss(self, batch: list[str]) -> Loss:
        truth = torch.tensor([float(text.count("a")) for text in batch])
        return Loss((self._numbers(batch) - truth).square().sum(), len(batch))

    def validate(self) -> Validation:
        error = self.evaluate("valid", CountOptions()).error
        return Validation({"error": error}, -error)

    def describe(self, work: list[str]) -> str:
        return f"{len(work)} texts"

    @torch.no_grad()
    def answers(self, examples: Sequence[Example[str]], options: CountOptions) -> Iterator[Count]:
        for example in examples:
            number = float(self._numbers([example.content]))
            yield Count(example.content, round(number) if options.rounded else round(number, 3))

    @torch.no_grad()
    def evaluate(self, split: SplitName, options: CountOptions) -> CountScores:
        texts = self.texts[split]
        truth = torch.tensor([float(text.count("a")) for text in texts])
        return CountScores(float((self._numbers(texts) - truth).abs().mean()))

    def held_out(self, split: SplitName) -> Sequence[Example[str]]:
        return [
            Example(text, f"{split}:{number}", str(text.count("a"))) for number, text in enumerate(self.texts[split])
        ]

    @torch.no_grad()
    def look(self, example: Example[str], options: CountOptions) -> View:
        (answer,) = self.answers([example], options)
        axes = {"answer": Tokens(("how many a",)), "letters": Tokens(tuple(example.content))}
        with record_attention(self.model) as recorded:
            self._numbers([example.content])
        maps = [
            AttentionMap(name, recorded.joined(name)[0], *self.model.attention_axes(name, axes), "answer", "letters")
            for name in recorded
        ]
        return View(example.content, tuple(maps), answer.lines()[0], answer.to_dict(), truth=example.truth)

    def questions(self) -> Sequence[Question[str]]:
        class Fields(BaseConfig):
            letter: str = Field("a", description="which letter")

        def share(example: Example[str], fields: Fields) -> dict[str, Any]:
            return {"share": example.content.count(fields.letter) / max(len(example.content), 1)}

        return [Question("share", "Which share of the letters it is", Fields, share)]

    def _numbers(self, texts: Sequence[str]) -> Tensor:
        self.model.train(self.model.training)
        longest = max(1, *map(len, texts))
        rows = [[LETTERS.find(letter) % len(LETTERS) for letter in text.ljust(longest)] for text in texts]
        numbers: Tensor = self.model(torch.tensor(rows), torch.tensor([max(len(text), 1) for text in texts]))
        return numbers


TASK = HowMany
