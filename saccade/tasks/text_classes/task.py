"""Classification of texts: a text in, the probability of every class out.

    loss = -Σ_c target_c log p(c | text)        target = (1 - s) [c is the class] + s / classes

with s the label smoothing, summed over the texts of a batch (windows of texts, where long ones are read in several); the models' own
penalties are added. The answer to a text that is read in windows is the mean of their probabilities.

Axis legend: B batch, N tokens.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from saccade.config.options import Options
from saccade.config.recipe import Config as BaseConfig
from saccade.config.recipe import Recipe
from saccade.data.splits import SplitName
from saccade.data.text.batching import TokenBatches
from saccade.data.text.labelled import dataset
from saccade.data.text.labelled.dataset import Texts, TextsConfig
from saccade.data.text.labelled.files import one_line
from saccade.data.text.lines import MAX_CHARACTERS
from saccade.metrics.classes import score_classes
from saccade.models.bert import Bert
from saccade.models.lstm_attention import LstmAttention
from saccade.models.shapes import Shapes
from saccade.tasks.classified import Classified
from saccade.tasks.held_out import HeldOut
from saccade.tasks.inputs import Text
from saccade.tasks.task import (
    Example,
    Export,
    Loss,
    Say,
    Step,
    Trained,
    Typed,
    Validation,
    build_model,
    device,
    trainable,
)
from saccade.tasks.text_classes import evaluating
from saccade.tasks.text_classes.evaluating import TextScores
from saccade.tasks.text_classes.options import TextOptions
from saccade.tasks.tuning import TuningConfig, freeze, rates
from saccade.views.view import View

AT_A_TIME = 8192  # tokens judged in one go, padding included
_SHOWN = 60  # letters of a text


class ObjectiveConfig(BaseConfig):
    label_smoothing: float = Field(0.0, ge=0, lt=1)


class Config(BaseConfig):
    model_kind: ClassVar[str] = "text-classes"

    data: TextsConfig
    objective: ObjectiveConfig
    tuning: TuningConfig


@dataclass(frozen=True)
class TextBatch:
    """Padded at the end."""

    tokens: Tensor  # (B, N)
    lengths: Tensor  # (B,)
    labels: Tensor  # (B,)


class TextClassTask(Trained[str, TextOptions]):
    unit = "texts"

    def __init__(self, recipe: Recipe, texts: Texts, classes: Sequence[str]):
        self.recipe = recipe
        self.texts = texts
        self.classes = tuple(classes)
        self.tokenizer = texts.tokenizer
        self.takes_special: bool = recipe.model.takes_special
        self.device = device()
        shapes = Shapes(classes=len(self.classes), source_words=len(self.tokenizer))
        self.model: LstmAttention | Bert = build_model(recipe, shapes, self.device)  # type: ignore[assignment]
        freeze(self.model, recipe.tuning.freeze)

    @classmethod
    def prepare(cls, recipe: Recipe, directory: Path, say: Say) -> "TextClassTask":
        texts = dataset.prepare(recipe.data, directory, say, recipe.start, most_tokens(recipe))
        return cls(recipe, texts, texts.classes)

    @classmethod
    def reopen(cls, recipe: Recipe, directory: Path) -> "TextClassTask":
        texts = dataset.reopen(recipe.data, directory, most_tokens(recipe))
        return cls(recipe, texts, texts.classes)

    @classmethod
    def adopt(cls, directory: Path) -> "TextClassTask | None":
        """A text classifier in the format of Hugging Face."""
        from saccade.tasks.text_classes.pretrained import open_pretrained

        return open_pretrained(directory)

    @classmethod
    def options(cls, recipe: Recipe) -> type[Options]:
        return TextOptions

    @property
    def input(self) -> Text:
        return ReadText(problems=_problems, unknown_words=self._unknown_words, remarks=self._cut)

    @property
    def attends(self) -> bool:
        return not isinstance(self.model, LstmAttention) or self.recipe.model.attention != "none"

    # Training

    def steps(self) -> list[Step]:
        tuned = rates(self.model.stack(), self.recipe.tuning)
        return [Step("loss", trainable([self.model]), self._loss, ("accuracy",), rates=tuned)]

    def epoch(self, number: int, rank: int, world: int) -> Sequence[Any]:
        lengths, _ = self.texts.train.lengths
        seed = self.recipe.train.seed
        batches = TokenBatches(lengths, lengths, self.recipe.data.batch_tokens, seed=seed, shard=(rank, world))
        return batches.epoch(number)

    def batch(self, work: Any) -> TextBatch | None:
        if not len(work):
            return None
        pairs = [self.texts.train[int(index)] for index in work]
        tokens, lengths = self.padded([ids.tolist() for ids, _ in pairs])
        labels = torch.tensor([int(label[0]) for _, label in pairs], device=self.device)
        return TextBatch(tokens, lengths, labels)

    def describe(self, work: Any) -> str:
        first = self.tokenizer.decode(self.texts.train[int(work[0])][0].tolist()) if len(work) else "none"
        return f"{len(work)} texts, the first: {first[:_SHOWN]}"

    def padded(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Rows of tokens, with special ones around them where the model takes some: tokens (B, N) and lengths (B,)."""
        if self.takes_special:
            rows = [self.tokenizer.around(ids).ids for ids in rows]
        lengths = torch.tensor([max(len(ids), 1) for ids in rows])
        tokens = torch.full((len(rows), int(lengths.max())), self.tokenizer.special.pad)
        for place, ids in zip(tokens, rows, strict=True):
            place[: len(ids)] = torch.tensor(ids, dtype=torch.long)
        return tokens.to(self.device), lengths.to(self.device)

    def _loss(self, batch: TextBatch) -> Loss:
        if isinstance(self.model, LstmAttention):
            logits, penalty = self.model.read(batch.tokens, batch.lengths)
        else:
            logits, penalty = self.model(batch.tokens, batch.lengths), None
        smoothing = self.recipe.objective.label_smoothing
        loss = F.cross_entropy(logits.float(), batch.labels, reduction="sum", label_smoothing=smoothing)
        if penalty is not None:
            loss = loss + penalty.sum()
        right = 100 * (logits.argmax(1) == batch.labels).sum()  # percent, once divided by the count
        return Loss(loss, len(batch.labels), {"accuracy": float(right)})

    # Judging

    def validate(self) -> Validation:
        valid = self.texts.valid
        log_probabilities = self.judge([example.text for example in valid])
        scores = score_classes(log_probabilities, self.texts.numbers(valid), self.classes, unit=self.unit)
        metrics = {"accuracy": scores.accuracy, "cross-entropy": scores.cross_entropy}
        # Of equal accuracy, the lower cross-entropy is the better one.
        score = scores.accuracy - 1e-9 * min(scores.cross_entropy, 1e6)
        return Validation(metrics, score, self._samples(log_probabilities))

    def evaluate(self, split: SplitName, options: TextOptions) -> TextScores:
        return evaluating.evaluate(self, split, options)

    def held_out(self, split: SplitName) -> Sequence[Example[str]]:
        texts = self.texts.held_out(split)
        return HeldOut(len(texts), lambda number: Example(texts[number].text, f"{split}:{number}", texts[number].label))

    def judge(self, texts: Sequence[str]) -> "np.ndarray[Any, np.dtype[np.float32]]":
        """Log-probabilities (texts, classes)."""
        ids = self.tokenizer.encode_batch([one_line(text) for text in texts])
        parts = [(place, [row[token] for token in part]) for place, row in enumerate(ids) for part in self._parts(row)]
        probabilities = self._probabilities([part for _, part in parts])
        of_text = torch.tensor([place for place, _ in parts])
        summed = torch.zeros(len(texts), len(self.classes)).index_add_(0, of_text, probabilities)
        return (summed / torch.bincount(of_text, minlength=len(texts))[:, None]).clamp(min=1e-30).log().numpy()

    def _parts(self, ids: Sequence[int]) -> list[list[int]]:
        return self.texts.reading.parts(len(ids))

    @torch.no_grad()
    def _probabilities(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """(rows, classes); rows of like length are judged together."""
        self.model.eval()
        found = torch.zeros(len(rows), len(self.classes))
        for group in of_like_length([len(row) for row in rows], AT_A_TIME):
            logits = self.model(*self.padded([rows[place] for place in group]))
            found[group] = logits.float().softmax(-1).cpu()
        return found

    def _samples(self, log_probabilities: "np.ndarray[Any, np.dtype[np.float32]]") -> list[str]:
        samples = []
        for place in np.linspace(0, len(self.texts.valid) - 1, min(3, len(self.texts.valid))).astype(int):
            best, example = int(log_probabilities[place].argmax()), self.texts.valid[place]
            share = np.exp(log_probabilities[place, best])
            samples.append(f"{example.text[:_SHOWN]} → {self.classes[best]} ({share:.2f}), truth {example.label}")
        return samples

    # Predicting

    def answers(self, examples: Sequence[Example[str]], options: TextOptions) -> Iterator[Classified]:
        for start in range(0, len(examples), 256):
            part = examples[start : start + 256]
            log_probabilities = torch.from_numpy(self.judge([example.content for example in part]))
            shares, order = log_probabilities.exp().sort(stable=True, dim=1, descending=True)
            rows = zip(part, shares[:, : options.best].tolist(), order[:, : options.best].tolist(), strict=True)
            for example, probabilities, numbers in rows:
                names = tuple(self.classes[number] for number in numbers)
                yield Classified(example.content, names, tuple(probabilities))

    def _cut(self, texts: Sequence[str]) -> list[str]:
        """Which texts are longer than what is read of them."""
        remarks = []
        for row, ids in enumerate(self.tokenizer.encode_batch([one_line(text) for text in texts]), 1):
            read = sum(map(len, self._parts(ids)))
            if read < len(ids):
                remarks.append(
                    f"text {row} has {len(ids):,} tokens, and {read:,} of them are read: {self.texts.reading.sentence()}"
                )
        return remarks

    def _unknown_words(self, texts: Sequence[str]) -> list[str]:
        unknown, found = self.tokenizer.special.unknown, dict[str, None]()
        for text in texts if self.tokenizer.kind in ("words", "characters") else ():
            covered = self.tokenizer.encode_with_offsets(one_line(text))
            for token, (start, end) in zip(covered.ids, covered.offsets, strict=True):
                if token == unknown:
                    found[one_line(text)[start:end]] = None
        return list(found)

    # Looking, exporting

    def look(self, example: Example[str], options: TextOptions) -> View:
        from saccade.tasks.text_classes.look import look

        return look(self, example, options)

    def exports(self) -> Mapping[str, Export]:
        from saccade.tasks.text_classes.exporting import exports

        return exports(self)


@dataclass(frozen=True)
class ReadText(Text):
    """A text that may be longer than what is read of it, which is said."""

    remarks: Callable[[Sequence[str]], Sequence[str]] = lambda texts: ()

    def from_command_line(self, typed: Typed) -> list[Example[str]]:
        examples = super().from_command_line(typed)
        for remark in self.remarks([example.content for example in examples]):
            typed.say(remark)
        return examples


def most_tokens(recipe: Recipe) -> int | None:
    """How many tokens of a text the model can read, without the special ones around it."""
    longest: int | None = recipe.model.max_length
    return None if longest is None else longest - 2


def of_like_length(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Places of rows that are judged together: at most `most` tokens with padding, or one row alone."""
    group, longest = list[int](), 0
    for place in sorted(range(len(lengths)), key=lengths.__getitem__):
        longest = max(lengths[place], 1)
        if group and (len(group) + 1) * longest > most:
            yield group
            group = []
        group.append(place)
    if group:
        yield group


def _problems(texts: Iterable[str]) -> dict[int, str]:
    return {
        row: f"text {row + 1} has {len(text):,} characters, and at most {MAX_CHARACTERS:,} are read"
        for row, text in enumerate(texts)
        if len(text) > MAX_CHARACTERS
    }


TASK = TextClassTask
