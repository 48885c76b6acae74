"""Classification of series: what was measured on many dates in, the probability of every class out.

The objective is the cross-entropy between the target distribution and the model's, summed over the series of the batch:

    loss = -Σ_c target_c log p(c | series)        target = (1 - s) [c is the class] + s / classes

with s the label smoothing. In training dates may be left out, values made noisy and seasons moved by some days; what is held out never is.

Axis legend: B batch, N dates, V bands.
"""

from collections.abc import Iterator, Sequence
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
from saccade.data.images.splits import batches
from saccade.data.series import dataset as series_data
from saccade.data.series.batch import SeriesBatch, augmented
from saccade.data.series.dataset import SeriesConfig
from saccade.data.series.store import SeriesSet
from saccade.data.series.table import SeriesTable, as_text
from saccade.data.splits import SplitName
from saccade.metrics.classes import score_classes
from saccade.models.shapes import Shapes
from saccade.tasks.held_out import HeldOut
from saccade.tasks.inputs import Series
from saccade.tasks.series_classes.options import SeriesOptions
from saccade.tasks.task import (
    Example,
    Loss,
    Question,
    Say,
    Scores,
    Step,
    Trained,
    Trainer,
    Validation,
    Weights,
    build_model,
    device,
    trainable,
)
from saccade.views.view import View

AT_A_TIME = 512  # series judged in one go


class AugmentConfig(BaseConfig):
    drop_dates: float = Field(
        0.0, ge=0, lt=1, description="up to so many of the dates of a series are left out in training"
    )
    noise: float = Field(0.0, ge=0, description="standard deviations of noise on every value in training")
    shift_days: float = Field(0.0, ge=0, description="a season is early or late by so many days in training")


class ObjectiveConfig(BaseConfig):
    label_smoothing: float = Field(0.0, ge=0, lt=1)


class Config(BaseConfig):
    model_kind: ClassVar[str] = "series-classes"

    data: SeriesConfig
    augment: AugmentConfig
    objective: ObjectiveConfig


@dataclass(frozen=True)
class ClassifiedSeries:
    """The likeliest classes of one series and their probabilities, best first."""

    source: str
    classes: tuple[str, ...]
    probabilities: tuple[float, ...]

    @property
    def text(self) -> str:
        return self.classes[0]

    @property
    def probability(self) -> float:
        return self.probabilities[0]

    def lines(self) -> list[str]:
        return [f"{name}\t{share:.4f}" for name, share in zip(self.classes, self.probabilities, strict=True)]

    def to_dict(self) -> dict[str, Any]:
        answers = zip(self.classes, self.probabilities, strict=True)
        return {"source": self.source, "classes": [{"class": name, "probability": share} for name, share in answers]}


@dataclass(frozen=True)
class LabelledBatch:
    inputs: SeriesBatch
    targets: Tensor  # (B, classes) probabilities


class SeriesClassTask(Trained[SeriesTable, SeriesOptions]):
    """What it reads is a table of one series."""

    unit = "series"

    def __init__(self, recipe: Recipe, series: SeriesSet):
        self.recipe = recipe
        self.series = series
        self.classes = series.classes
        self.device = device()
        self.model = build_model(recipe, Shapes(classes=len(series.classes), series=series.shape), self.device)

    @classmethod
    def prepare(cls, recipe: Recipe, directory: Path, say: Say) -> "SeriesClassTask":
        return cls(recipe, series_data.prepare(recipe.data, directory, say))

    @classmethod
    def reopen(cls, recipe: Recipe, directory: Path) -> "SeriesClassTask":
        return cls(recipe, SeriesSet.open(directory))

    @classmethod
    def options(cls, recipe: Recipe) -> type[Options]:
        return SeriesOptions

    @property
    def input(self) -> Series:
        table, data = self.series.table, self.recipe.data
        numbers = self.series.splits["valid"][:1]
        return Series(table.bands, table.has_dates, data.named, data.longest, as_text(table.chosen(numbers)))

    @property
    def attends(self) -> bool:
        from saccade.tasks.series_classes.look import attentions

        return bool(attentions(self.model))

    # Training

    def fit(self, trainer: Trainer) -> None:
        from saccade.tasks.series_classes.fitting import fit

        if not fit(self, trainer):
            trainer.loop(self)

    def restore(self, weights: Weights) -> None:
        from saccade.tasks.series_classes.fitting import restore

        if not restore(self, weights):
            weights.load_into(self.model)

    def steps(self) -> list[Step]:
        return [Step("loss", trainable([self.model]), self._loss, ("accuracy",))]

    def epoch(self, number: int, rank: int, world: int) -> Sequence[np.ndarray[Any, Any]]:
        count, batch = len(self.series.splits["train"]), self.recipe.data.batch_size
        return batches(count, batch, self.recipe.train.seed, number, (rank, world))

    def batch(self, work: np.ndarray[Any, Any]) -> LabelledBatch | None:
        if not len(work):
            return None
        numbers = self.series.splits["train"][work]
        augment = self.recipe.augment
        inputs = augmented(self.series.batch(numbers), augment.drop_dates, augment.noise, augment.shift_days)
        truths = torch.from_numpy(self.series.truths[numbers]).to(self.device)
        smoothing = self.recipe.objective.label_smoothing
        targets = F.one_hot(truths, len(self.classes)) * (1 - smoothing) + smoothing / len(self.classes)
        return LabelledBatch(inputs.to(self.device), targets)

    def describe(self, work: np.ndarray[Any, Any]) -> str:
        first = self.series.table.ids[self.series.splits["train"][work[0]]] if len(work) else "none"
        return f"{len(work)} series, the first: {first}"

    def _loss(self, batch: LabelledBatch) -> Loss:
        logits = self.model(batch.inputs).float()
        right = 100 * float((logits.argmax(1) == batch.targets.argmax(1)).sum())
        return Loss(F.cross_entropy(logits, batch.targets, reduction="sum"), len(logits), {"accuracy": right})

    # Judging

    def validate(self) -> Validation:
        from saccade.tasks.series_classes.evaluating import SeriesScores

        numbers = self.series.splits["valid"]
        log_probabilities = self.judged(self.series.table, numbers)
        table = self.series.table
        scores = SeriesScores(score_classes(log_probabilities, self.series.truths[numbers], self.classes))
        metrics = {
            "kappa": scores.kappa,
            "accuracy": scores.classes.accuracy,
            "cross-entropy": scores.classes.cross_entropy,
        }
        score = scores.kappa - 1e-9 * min(scores.classes.cross_entropy, 1e6)
        samples = []
        for place in np.linspace(0, len(numbers) - 1, min(3, len(numbers))).astype(int):
            best = int(log_probabilities[place].argmax())
            share, truth = np.exp(log_probabilities[place, best]), self.classes[self.series.truths[numbers[place]]]
            samples.append(f"{table.ids[numbers[place]]} → {self.classes[best]} ({share:.2f}), reference {truth}")
        return Validation(metrics, score, samples)

    def evaluate(self, split: SplitName, options: SeriesOptions) -> Scores:
        from saccade.tasks.series_classes.evaluating import evaluate

        return evaluate(self, split, options)

    def held_out(self, split: SplitName) -> Sequence[Example[SeriesTable]]:
        numbers = self.series.splits[split]

        def example(place: int) -> Example[SeriesTable]:
            number = int(numbers[place])
            return Example(
                self.series.table.chosen([number]), f"{split}:{place}", self.classes[self.series.truths[number]]
            )

        return HeldOut(len(numbers), example)

    @torch.no_grad()
    def judged(self, table: SeriesTable, numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Log-probabilities (series, classes)."""
        self.model.eval()
        # Series of like length stand together, so that little is padded; the answers come in the order asked.
        order = np.argsort(table.lengths[numbers], kind="stable")
        judged = np.empty((len(numbers), len(self.classes)), np.float32)
        for start in range(0, len(numbers), AT_A_TIME):
            part = order[start : start + AT_A_TIME]
            batch = self.series.batch(np.asarray(numbers)[part], table).to(self.device)
            judged[part] = self.model(batch).float().log_softmax(1).cpu().numpy()
        return judged

    # Predicting

    def answers(self, examples: Sequence[Example[SeriesTable]], options: SeriesOptions) -> Iterator[ClassifiedSeries]:
        from saccade.tasks.series_classes.predictions import Predictions, require_ending
        from saccade.tasks.series_classes.removing import left_out

        if options.out is not None:
            require_ending(options.out)
        written = Predictions(self.classes)
        for start in range(0, len(examples), AT_A_TIME):
            part = examples[start : start + AT_A_TIME]
            table = self.preprocessed(
                series_data.joined([left_out(example.content, options.without) for example in part])
            )
            shares = torch.from_numpy(self.judged(table, np.arange(len(table)))).exp()
            if options.out is not None:
                written.add([example.name or example.content.ids[0] for example in part], shares.numpy())
            sure, order = shares.sort(stable=True, dim=1, descending=True)
            rows = zip(part, sure[:, : options.best].tolist(), order[:, : options.best].tolist(), strict=True)
            for example, probabilities, numbers in rows:
                names = tuple(self.classes[number] for number in numbers)
                yield ClassifiedSeries(example.name or example.content.ids[0], names, tuple(probabilities))
        if options.out is not None:
            written.write(options.out)

    def preprocessed(self, table: SeriesTable) -> SeriesTable:
        """As the run's own series were."""
        return series_data.preprocessed(table, self.recipe.data, training=False)

    # Looking

    def look(self, example: Example[SeriesTable], options: SeriesOptions) -> View:
        from saccade.tasks.series_classes.look import look

        return look(self, example, options)

    def questions(self) -> Sequence[Question[SeriesTable]]:
        from saccade.tasks.series_classes.removing import removal

        return [removal(self)]


TASK = SeriesClassTask
