"""Language models: a text in, and how it goes on out, from any text.

The objective is the cross-entropy of the next token, at every position of windows of the model's context. Documents that stand in the
same window do not see each other. All of the held-out text is scored, in windows that do not overlap; bits per byte compare between
vocabularies.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import Field, model_validator
from torch import Tensor, nn

from saccade.config import recipe as configs
from saccade.config.options import Options
from saccade.config.recipe import Config as BaseConfig
from saccade.config.recipe import Recipe
from saccade.data.text import running
from saccade.data.text.existing import ExistingTokenizer
from saccade.data.text.running import RunningText, TextConfig
from saccade.errors import UserError
from saccade.layers.cross_entropy import linear_cross_entropy
from saccade.models import hugging_face
from saccade.models.gpt import GPT
from saccade.models.shapes import Shapes
from saccade.tasks.held_out import HeldOut
from saccade.tasks.inputs import Text
from saccade.tasks.language_model import evaluating, writing_on
from saccade.tasks.language_model.evaluating import LanguageScores
from saccade.tasks.language_model.options import DecodeConfig, LanguageOptions, MaskedOptions
from saccade.tasks.language_model.windows import WindowBatches, Windows, windows
from saccade.tasks.task import (
    Example,
    Export,
    Loss,
    Question,
    Say,
    Scorer,
    SplitName,
    Step,
    Stream,
    Trained,
    Validation,
    build_model,
    device,
    trainable,
)
from saccade.views.view import View

_SHOWN = 60  # characters of a held-out text that are given as a prompt


class ObjectiveConfig(BaseConfig):
    masked: float = Field(0.15, gt=0, lt=1, description="the share of tokens that are to be guessed")
    whole_words: bool = Field(False, description="the pieces of a word are masked together")


class Config(BaseConfig):
    model_kind: ClassVar[str] = "language"

    data: TextConfig
    objective: ObjectiveConfig
    decode: DecodeConfig

    @model_validator(mode="after")
    def _masks_are_for_masked_models(self) -> "Config":
        model = getattr(self, "model", None)
        if model is not None and "masked-language" not in model.serves:
            self.objective._refuse_unused(
                "a model that guesses masked words (model.name=bert)", *ObjectiveConfig.model_fields
            )
        return self


class LanguageModelTask(Trained[str, LanguageOptions]):
    unit = "tokens"

    def __init__(self, recipe: Recipe, corpus: RunningText):
        self.recipe = recipe
        self.corpus = corpus
        self.tokenizer = corpus.tokenizer
        self.begin: int = running.begin_of(self.tokenizer)  # begins a document, and ends the one before it
        self.device = device()
        words = len(self.tokenizer)
        self.model = build_model(recipe, Shapes(source_words=words, target_words=words), self.device)

    @classmethod
    def prepare(cls, recipe: Recipe, directory: Path, say: Say) -> "LanguageModelTask":
        """A new run: the text is read and tokenised into the directory."""
        task = _kind(recipe)(recipe, running.prepare(recipe.data, directory, say, recipe.start))
        tokens = len(task.corpus.train)
        if tokens <= task.context:
            raise UserError(
                f"there are {tokens:,} tokens to train on and the model reads {task.context:,} at once: "
                f"give more text, or set {task.context_setting} to less"
            )
        parameters = sum(parameter.numel() for parameter in task.model.parameters())
        size, context = recipe.data.batch_size, task.context
        say(
            f"{parameters:,} parameters; a batch is {size} windows of {context} tokens, an epoch {tokens // (size * context):,} batches"
        )
        return task

    @classmethod
    def reopen(cls, recipe: Recipe, directory: Path) -> "LanguageModelTask":
        return _kind(recipe)(recipe, running.reopen(directory))

    @classmethod
    def adopt(cls, directory: Path) -> "LanguageModelTask | None":
        """A GPT-2 or Llama in the format of Hugging Face, or a BERT with its head for masked words."""
        if not hugging_face.is_hugging_face(directory):
            return None
        theirs = hugging_face.read(directory)
        serves, shapes = getattr(theirs.config, "serves", ()), theirs.shapes
        if Config.model_kind not in serves or not shapes.target_words or shapes.classes or shapes.spans:
            return None
        recipe = configs.from_values(
            {
                "description": f"{directory.name}, in the format of Hugging Face",
                "task": "language_model",
                "model": {"name": theirs.name, **theirs.config.model_dump(mode="json")},
            },
            str(directory),
        )
        tokenizer = ExistingTokenizer.from_folder(directory)
        special = tokenizer.special
        documents = 1 if special.first in (None, special.last) else 2  # a Llama's texts begin with a token of their own
        task = _kind(recipe)(recipe, RunningText(directory, tokenizer, documents, {}))
        theirs.fill(task.model)
        return task

    @classmethod
    def options(cls, recipe: Recipe) -> type[Options]:
        return MaskedOptions if is_masked(recipe) else LanguageOptions

    @property
    def input(self) -> Text:
        return Text(unknown_words=self.unknown_characters)

    @property
    def attends(self) -> bool:
        return True

    @property
    def gpt(self) -> GPT:
        assert isinstance(self.model, GPT)
        return self.model

    context_setting = "model.context"

    @property
    def context(self) -> int:
        """How many tokens of the text stand in a window."""
        return self.gpt.config.context

    # Tokens

    @property
    def never_written(self) -> list[int]:
        special = self.tokenizer.special
        known = {special.pad, special.first, special.unknown, special.mask} - {self.begin, special.last}
        return sorted(token for token in known if token is not None)

    def prompt(self, text: str) -> list[int]:
        """The tokens of a text to go on from. It begins a document where the run was trained on several."""
        tokens = self.tokenizer.encode(text) if text else []
        return [self.begin, *tokens] if self.corpus.documents > 1 or not tokens else tokens

    def unknown_characters(self, texts: Sequence[str]) -> list[str]:
        if self.tokenizer.kind != "characters":
            return []
        letters = list(dict.fromkeys(letter for text in texts for letter in text))
        unknown = self.tokenizer.special.unknown
        return [
            letter
            for letter, tokens in zip(letters, self.tokenizer.encode_batch(letters), strict=True)
            if unknown in tokens
        ]

    # Training

    def steps(self) -> list[Step]:
        return [Step("loss", trainable([self.model]), self._loss)]

    def epoch(self, number: int, rank: int, world: int) -> Sequence[np.ndarray[Any, Any]]:
        size, seed = self.recipe.data.batch_size, self.recipe.train.seed
        return WindowBatches(len(self.corpus.train), self.context, size, seed, (rank, world)).epoch(number)

    def batch(self, work: np.ndarray[Any, Any]) -> Windows | None:
        if not len(work):
            return None
        return windows(self.corpus.train.tokens, work, self.context, self.begin).to(self.device)

    def describe(self, work: np.ndarray[Any, Any]) -> str:
        start = int(work[0]) if len(work) else 0
        text = self.tokenizer.decode(self.corpus.train.tokens[start : start + 10])
        return f"{len(work)} windows, the first: {text!r}…"

    def _loss(self, batch: Windows) -> Loss:
        readouts, words = self.readouts(batch)
        return Loss(linear_cross_entropy(readouts, self.output, words)[0], len(words))

    def readouts(self, batch: Windows) -> tuple[Tensor, Tensor]:
        """What is read off at every position (tokens, D), and the token that follows (tokens,)."""
        tokens = batch.tokens if batch.documents is None else batch.tokens.view(1, -1)
        return self.gpt.read(tokens, batch.documents).flatten(0, 1), batch.following.flatten()

    @property
    def output(self) -> nn.Linear:
        return self.gpt.output

    # Judging

    def validate(self) -> Validation:
        scores = self.evaluate("valid", LanguageOptions())
        metrics = {"loss": scores.loss, "perplexity": scores.perplexity, "bits/byte": scores.bits_per_byte}
        (sample,) = self.answers([self.held_out("valid")[0]], LanguageOptions(tokens=40))
        return Validation(metrics, -scores.loss, sample.lines())

    def evaluate(self, split: SplitName, options: LanguageOptions) -> LanguageScores:
        return evaluating.evaluate(self, split, options)

    def held_out(self, split: SplitName) -> Sequence[Example[str]]:
        """Windows of the held-out text: their beginnings as prompts, and what follows."""
        stream, _ = self.corpus.held_out(split)

        def example(number: int) -> Example[str]:
            tokens = stream.tokens[number * self.context : (number + 1) * self.context]
            text = max(self.tokenizer.decode([]), *_documents(tokens, self.begin, self.tokenizer.decode), key=len)
            if tokens[0] != self.begin and " " in text[:_SHOWN]:
                text = text[text.index(" ") + 1 :]  # it begins within a word
            prompt = text[:_SHOWN].rsplit(" ", 1)[0]
            return Example(prompt, f"{split}:{number}", text[len(prompt) :])

        return HeldOut(max(1, len(stream) // self.context), example)

    # Predicting

    def answers(self, examples: Sequence[Example[str]], options: LanguageOptions) -> Iterator[writing_on.Several]:
        return writing_on.answers(self, examples, options)

    def parts(self, example: Example[str], options: LanguageOptions) -> Iterator[str] | None:
        return writing_on.parts(self, example, options) if options.samples == 1 else None

    def notes(self, examples: Sequence[Example[str]], options: LanguageOptions) -> list[str]:
        """What does not fit into the context, before it is written."""
        longest = max((len(self.prompt(example.content)) for example in examples), default=0)
        wanted, context = options.decode(self.recipe.decode).tokens, self.context
        if longest > context:
            return [f"a prompt has {longest:,} tokens and this model reads {context:,}: only the last of them count"]
        if longest + wanted > context:
            return [
                f"this model was trained on {context:,} tokens at once: beyond them it goes on from the last "
                f"{context // 2:,} to {context:,}"
            ]
        return []

    # Looking inside, scoring

    def look(self, example: Example[str], options: LanguageOptions) -> View:
        from saccade.tasks.language_model.look import look

        return look(self, example, options)

    def questions(self) -> Sequence[Question[str]]:
        from saccade.tasks.language_model.look import questions

        return questions(self)

    def stream(self) -> Stream[str] | None:
        return writing_on.stream(self)

    def scorer(self) -> Scorer | None:
        return evaluating.scorer(self)

    def exports(self) -> Mapping[str, Export]:
        from saccade.tasks.language_model.export import exports

        return exports(self)


def _documents(tokens: np.ndarray[Any, Any], begin: int, decode: Callable[[Any], str]) -> list[str]:
    """The texts of the documents in a window."""
    parts = np.split(tokens, np.flatnonzero(tokens == begin))
    return [decode(part[part != begin]).strip() for part in parts]


def is_masked(recipe: Recipe) -> bool:
    """Whether the model sees both sides, and guesses what was masked, instead of what comes next."""
    return "masked-language" in recipe.model.serves


def _kind(recipe: Recipe) -> "type[LanguageModelTask]":
    if not is_masked(recipe):
        return LanguageModelTask
    from saccade.tasks.language_model.masked import MaskedModelTask

    return MaskedModelTask


TASK = LanguageModelTask
