"""Classification: an image in, the probability of every class out.

The objective is the cross-entropy between the target distribution and the model's, summed over the images of the batch:

    loss = -Σ_c target_c log p(c | image)        target = (1 - s) [c is the class] + s / classes

with s the label smoothing; mixup mixes targets as it mixes images. The glimpse network minimises more than that (its `terms`), and each
part is reported. What is reported of held-out images is always the plain cross-entropy.

Images may be scattered in larger frames (data.scatter): anew each time in training, always to the same places when held out. A picture to
predict is taken for a whole frame.

Axis legend: B batch, C channels, H rows, W columns.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
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
from saccade.data.images import dataset as image_data
from saccade.data.images.augment import Augment, AugmentConfig, Standardise
from saccade.data.images.dataset import Images, ImagesConfig
from saccade.data.images.decoding import Pixels
from saccade.data.images.scatter import scattered, shape_after
from saccade.data.images.splits import batches
from saccade.data.images.store import AnyImage, name_of, pixels_of
from saccade.data.splits import SPLITS, SplitName
from saccade.errors import UserError
from saccade.layers.operations import operations
from saccade.metrics.classes import ClassScores, score_classes
from saccade.models.glimpse import TERMS, GlimpseNetwork
from saccade.models.glimpse import Config as GlimpseConfig
from saccade.models.shapes import Shapes
from saccade.tasks.classified import Classified
from saccade.tasks.held_out import HeldOut
from saccade.tasks.image_classes import evaluating
from saccade.tasks.image_classes.options import AttentionOptions, GlimpseOptions, ImageOptions
from saccade.tasks.inputs import Image
from saccade.tasks.task import (
    Costs,
    Example,
    Export,
    Loss,
    Say,
    Step,
    Trained,
    Validation,
    build_model,
    device,
    trainable,
)
from saccade.views.view import View

AT_A_TIME = 256  # images judged or predicted in one go


class ObjectiveConfig(BaseConfig):
    label_smoothing: float = Field(0.0, ge=0, lt=1)


class Config(BaseConfig):
    model_kind: ClassVar[str] = "image-classes"

    data: ImagesConfig
    augment: AugmentConfig
    objective: ObjectiveConfig


@dataclass(frozen=True)
class ClassBatch:
    inputs: Tensor  # (B, C, H, W) standardised
    targets: Tensor  # (B, classes) probabilities


class ImageClassTask(Trained[AnyImage, ImageOptions]):
    unit = "images"
    costs_named: ClassVar[Sequence[str]] = ("MFLOP", "training TFLOP")

    def __init__(self, recipe: Recipe, images: Images):
        self.recipe = recipe
        self.images = images
        self.classes = images.classes
        self.device = device()
        self.shape = shape_after(recipe.data.scatter, images.shape)  # of what the model gets
        # Refuses a scatter that does not fit.
        scattered(torch.zeros(1, *images.shape.sizes), recipe.data.scatter, torch.Generator())
        recipe.augment.check_fits(self.shape)
        self.standardise = Standardise(images.mean, images.deviation, self.device)
        self.augment = Augment(recipe.augment, self.standardise)
        self.model = build_model(recipe, Shapes(self.shape, len(images.classes)), self.device)

    @classmethod
    def prepare(cls, recipe: Recipe, directory: Path, say: Say) -> "ImageClassTask":
        """A new run: the images are decoded into the directory."""
        return cls(recipe, image_data.prepare(recipe.data, directory, say))

    @classmethod
    def reopen(cls, recipe: Recipe, directory: Path) -> "ImageClassTask":
        return cls(recipe, image_data.reopen(directory))

    @classmethod
    def adopt(cls, directory: Path) -> "ImageClassTask | None":
        """A ViT or Swin in the format of Hugging Face."""
        from saccade.tasks.image_classes.pretrained import open_pretrained

        return open_pretrained(directory)

    @classmethod
    def options(cls, recipe: Recipe) -> type[Options]:
        return GlimpseOptions if isinstance(recipe.model, GlimpseConfig) else AttentionOptions

    @property
    def input(self) -> Image:
        return Image(self.shape)

    @property
    def glimpses(self) -> GlimpseNetwork | None:
        """The model, where it looks in glimpses."""
        return self.model if isinstance(self.model, GlimpseNetwork) else None

    @property
    def attends(self) -> bool:
        from saccade.tasks.image_classes.look import attentions

        return self.glimpses is not None or bool(attentions(self.model))

    # Training

    def steps(self) -> list[Step]:
        shown = ("accuracy",) if self.glimpses is None else TERMS
        return [Step("loss", trainable([self.model]), self._loss, shown)]

    def epoch(self, number: int, rank: int, world: int) -> Sequence[np.ndarray[Any, Any]]:
        count, batch = len(self.images.train), self.recipe.data.batch_size
        return batches(count, batch, self.recipe.train.seed, number, (rank, world))

    def batch(self, work: np.ndarray[Any, Any]) -> ClassBatch | None:
        if not len(work):
            return None
        pixels = torch.from_numpy(self.images.train.pixels[work]).to(self.device)
        labels = torch.from_numpy(self.images.train.labels[work]).to(self.device)
        smoothing = self.recipe.objective.label_smoothing
        targets = F.one_hot(labels, len(self.classes)) * (1 - smoothing) + smoothing / len(self.classes)
        return ClassBatch(*self.augment(scattered(pixels, self.recipe.data.scatter), targets))

    def describe(self, work: np.ndarray[Any, Any]) -> str:
        first = self.images.train.names[int(work[0])] if len(work) else "none"
        return f"{len(work)} images, the first: {first}"

    def _loss(self, batch: ClassBatch) -> Loss:
        count = len(batch.inputs)
        if self.glimpses is not None:
            terms = self.glimpses.terms(batch.inputs, batch.targets)
            return Loss(sum(terms.values(), start=torch.zeros((), device=self.device)), count, _numbers(terms))
        try:
            logits = self.model(batch.inputs).float()
        except ValueError as error:
            if "more than 1 value per channel" not in str(error):  # a batch norm's words
                raise
            raise UserError(
                "a batch of one image that the model shrinks to one cell has no spread to normalise by: raise data.batch_size"
            ) from None
        right = 100 * (logits.argmax(1) == batch.targets.argmax(1)).sum()  # percent, once divided by the count
        return Loss(F.cross_entropy(logits, batch.targets, reduction="sum"), count, _numbers({"accuracy": right}))

    # Judging

    def validate(self) -> Validation:
        log_probabilities = evaluating.log_probabilities(self, "valid")
        split = self.images.valid
        scores = score_classes(log_probabilities, split.labels, self.classes, split.names)
        metrics = {"accuracy": scores.accuracy, "cross-entropy": scores.cross_entropy}
        # Of equal accuracy, the lower cross-entropy is the better one.
        score = scores.accuracy - 1e-9 * min(scores.cross_entropy, 1e6)
        return Validation(metrics, score, self._samples(log_probabilities))

    def evaluate(self, split: SplitName, options: ImageOptions) -> ClassScores:
        return evaluating.evaluate(self, split, options)

    def held_out(self, split: SplitName) -> Sequence[Example[AnyImage]]:
        """As they are judged."""
        images = self.images.split(split)

        def example(number: int) -> Example[AnyImage]:
            start = number - number % AT_A_TIME
            frame = self.frames(split, start)[number - start].permute(1, 2, 0).numpy()  # (H, W, C)
            return Example(frame, f"{split}:{number}", self.classes[images.labels[number]])

        return HeldOut(len(images), example)

    def frames(self, split: SplitName, start: int) -> Tensor:
        """Some held-out images from number `start` on, scattered where images are: always to the same places."""
        pixels = torch.tensor(self.images.split(split).pixels[start : start + AT_A_TIME])
        places = torch.Generator().manual_seed((SPLITS.index(split) << 32) + start)
        return scattered(pixels, self.recipe.data.scatter, places)

    @torch.no_grad()
    def judge(self, parts: Iterator[Tensor]) -> Iterator[Tensor]:
        """From bytes to log-probabilities (B, classes). Nothing is ever augmented here."""
        self.model.eval()
        for pixels in parts:
            yield self.model(self.standardise(pixels.to(self.device))).float().log_softmax(1)

    def _samples(self, log_probabilities: np.ndarray[Any, np.dtype[np.float32]]) -> list[str]:
        split = self.images.valid
        samples = []
        for place in np.linspace(0, len(split) - 1, min(3, len(split))).astype(int):
            best = int(log_probabilities[place].argmax())
            share, truth = np.exp(log_probabilities[place, best]), self.classes[split.labels[place]]
            samples.append(f"{split.names[place]} → {self.classes[best]} ({share:.2f}), truth {truth}")
        return samples

    # Predicting

    def answers(self, examples: Sequence[Example[AnyImage]], options: ImageOptions) -> Iterator[Classified]:
        names = (example.name or name_of(example.content) for example in examples)
        for part in self.judge(stacked(self.picture(example.content) for example in examples)):
            shares, order = part.exp().sort(stable=True, dim=1, descending=True)
            rows = zip(shares[:, : options.best].tolist(), order[:, : options.best].tolist(), strict=True)
            for probabilities, numbers in rows:
                yield Classified(next(names), tuple(self.classes[number] for number in numbers), tuple(probabilities))

    def picture(self, source: AnyImage) -> Pixels:
        """The image as the model gets it, before it is standardised: bytes (C, H, W)."""
        return pixels_of(source, self.shape)

    # Looking, comparing, exporting

    def look(self, example: Example[AnyImage], options: ImageOptions) -> View:
        from saccade.tasks.image_classes.look import look

        return look(self, example, options.pixel, options.only)

    def exports(self) -> Mapping[str, Export]:
        from saccade.tasks.image_classes.onnx import export_onnx

        def to_onnx(directory: Path, fields: BaseConfig) -> str:
            return export_onnx(self, directory)

        return {"onnx": Export("a graph for onnxruntime and others", BaseConfig, to_onnx)}

    def costs(self) -> Costs:
        """Operations of a prediction, and of an update: forward over every image of a batch, thrice, as backward takes two."""
        forward = operations(self.model, torch.zeros(1, *self.shape.sizes, device=self.device)) / 1e6
        count = len(self.images.train)
        batch = count / math.ceil(count / self.recipe.data.batch_size)  # epochs are cut into batches of the same size
        paths = 1 if self.glimpses is None else self.glimpses.samples  # drawn for a prediction; an update follows one
        update = 3 * forward / paths * batch * self.recipe.train.gradient_accumulation / 1e6
        return Costs({"MFLOP": forward}, {"training TFLOP": update})


def stacked(pictures: Iterator[Pixels]) -> Iterator[Tensor]:
    """Some at a time, so that a list of thousands of files never stands in memory decoded."""
    part: list[Pixels] = []
    for picture in pictures:
        part.append(picture)
        if len(part) == AT_A_TIME:
            yield torch.from_numpy(np.stack(part))
            part = []
    if part:
        yield torch.from_numpy(np.stack(part))


def _numbers(tensors: dict[str, Tensor]) -> dict[str, float]:
    return {name: float(tensor.detach()) for name, tensor in tensors.items()}


TASK = ImageClassTask
