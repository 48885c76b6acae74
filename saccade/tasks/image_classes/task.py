"""Classification: an image in, the probability of every class out.

The objective is the cross-entropy between the target distribution and the model's, summed over the images of the batch:

    loss = -Σ_c target_c log p(c | image)        target = (1 - s) [c is the class] + s / classes

with s the label smoothing; mixup mixes targets as it mixes images. A model that minimises more than that has `terms(images, targets)`, a
dict of named sums, and each of them is reported. What is reported of held-out images is always the plain cross-entropy.

Images may be scattered in larger frames (data.scatter): anew each time in training, always to the same places when held out. A picture to
predict is taken for a whole frame.

Axis legend: B batch, C channels, H rows, W columns.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.config.recipe import Config as BaseConfig
from saccade.config.recipe import Recipe
from saccade.data.images import dataset as image_data
from saccade.data.images.augment import Augment, AugmentConfig, Standardise
from saccade.data.images.dataset import Images, ImagesConfig, Say
from saccade.data.images.decoding import BadImage, Pixels, decode
from saccade.data.images.files import list_images
from saccade.data.images.scatter import scattered, shape_after
from saccade.data.images.splits import SPLITS, SplitName, batches, check_classes
from saccade.data.images.store import AnyImage, name_of, pixels_of
from saccade.errors import UserError
from saccade.metrics.classes import ClassScores, score_classes
from saccade.models.shapes import Shapes
from saccade.tasks.task import Example, Loss, Step, Trainer, Validation, Weights, device, trainable

_AT_A_TIME = 256  # images judged or predicted in one go


class ObjectiveConfig(BaseConfig):
    label_smoothing: float = Field(0.0, ge=0, lt=1)


class Config(BaseConfig):
    model_kind: ClassVar[str] = "image-classes"

    data: ImagesConfig
    augment: AugmentConfig
    objective: ObjectiveConfig


@dataclass(frozen=True)
class Classified:
    """The likeliest classes of one image and their probabilities, best first."""

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
        """A class and its probability on each line, best first."""
        return [f"{name}\t{share:.4f}" for name, share in zip(self.classes, self.probabilities, strict=True)]

    def to_dict(self) -> dict[str, Any]:
        answers = zip(self.classes, self.probabilities, strict=True)
        return {"source": self.source, "classes": [{"class": name, "probability": share} for name, share in answers]}


@dataclass(frozen=True)
class ClassBatch:
    inputs: Tensor  # (B, C, H, W) standardised
    targets: Tensor  # (B, classes) probabilities


class ClassifyTask:
    unit = "images"

    def __init__(self, recipe: Recipe, images: Images):
        self.recipe = recipe
        self.images = images
        self.classes = images.classes
        self.device = device()
        self.shape = shape_after(recipe.data.scatter, images.shape)  # of what the model gets
        scattered(
            torch.zeros(1, *images.shape.sizes), recipe.data.scatter, torch.Generator()
        )  # refuses what does not fit
        recipe.augment.check_fits(self.shape)
        self.standardise = Standardise(images.mean, images.deviation, self.device)
        self.augment = Augment(recipe.augment, self.standardise)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.train.seed)
            built = recipe.model_module.build(recipe.model, Shapes(self.shape, len(images.classes)))
        self.model: nn.Module = built.to(self.device)

    @classmethod
    def prepare(cls, recipe: Recipe, directory: Path, say: Say) -> "ClassifyTask":
        """A new run: the images are decoded into the directory."""
        return cls(recipe, image_data.prepare(recipe.data, directory, say))

    @classmethod
    def reopen(cls, recipe: Recipe, directory: Path) -> "ClassifyTask":
        return cls(recipe, image_data.reopen(directory))

    # Training

    def fit(self, trainer: Trainer) -> None:
        trainer.loop(self)

    def restore(self, weights: Weights) -> None:
        weights.load_into(self.model)

    def steps(self) -> list[Step]:
        shown = self._term_names() if hasattr(self.model, "terms") else ("accuracy",)
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
        if hasattr(self.model, "terms"):
            terms: dict[str, Tensor] = self.model.terms(batch.inputs, batch.targets)  # type: ignore[operator]
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

    @torch.no_grad()
    def _term_names(self) -> tuple[str, ...]:
        """What the model's losses are called: asked once, of two blank images and in a way that leaves no trace in the model."""
        was_training, blank = self.model.training, self.blank().repeat(2, 1, 1, 1)
        targets = torch.full((2, len(self.classes)), 1 / len(self.classes), device=self.device)
        with torch.random.fork_rng(devices=[]):
            names = tuple(self.model.eval().terms(blank, targets))  # type: ignore[operator]
        self.model.train(was_training)
        return names

    def blank(self) -> Tensor:
        """One blank image as the model gets it: (1, C, H, W)."""
        return torch.zeros(1, *self.shape.sizes, device=self.device)

    # Judging

    def validate(self) -> Validation:
        log_probabilities = self._judge("valid")
        split = self.images.valid
        scores = score_classes(log_probabilities, split.labels, self.classes, split.names)
        metrics = {"accuracy": scores.accuracy, "cross-entropy": scores.cross_entropy}
        # Of equal accuracy, the lower cross-entropy is the better one.
        score = scores.accuracy - 1e-9 * min(scores.cross_entropy, 1e6)
        return Validation(metrics, score, self._samples(log_probabilities))

    def evaluate(
        self,
        split: SplitName = "test",
        samples: int | None = None,
        data: str | Path | None = None,
        skip_bad: bool = False,
    ) -> ClassScores:
        """On the run's own held-out images, or on those at `data`: a folder of classes, a zip, a CSV or idx files. Where the run scatters
        its images, these are scattered too. With `skip_bad` those of `data` that cannot be read are left out and counted."""
        with self._sampling(samples):
            if data is None:
                own = self.images.split(split)
                scores = score_classes(self._judge(split), own.labels, self.classes, own.names)
            else:
                scores = self._judge_files(Path(data), skip_bad)
            return replace(scores, paths=getattr(self.model, "samples", 1))

    @contextmanager
    def _sampling(self, samples: int | None) -> Iterator[None]:
        """So many drawn paths of glimpses for each image; as the recipe says unless given."""
        if samples is None:
            yield
            return
        if samples < 2 or not hasattr(self.model, "samples"):
            raise UserError(
                f"{samples} samples were asked for: only the model glimpse draws paths, 2 or more for each image; leave samples out"
            )
        before = self.model.samples
        try:
            setattr(self.model, "samples", samples)  # noqa: B010 (a number, whatever a module's type says)
            yield
        finally:
            setattr(self.model, "samples", before)  # noqa: B010

    def _judge(self, split: SplitName) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Log-probabilities (images, classes) of a whole split."""
        count = len(self.images.split(split))
        parts = (self._frames(split, start) for start in range(0, count, _AT_A_TIME))
        return np.concatenate([part.cpu().numpy() for part in self._log_probabilities(parts)])

    def _judge_files(self, path: Path, skip_bad: bool) -> ClassScores:
        """Of other images, which are decoded as they are judged."""
        listing = list_images(path, self.classes)
        check_classes(listing, self.classes)
        labels: list[int] = []
        names: list[str] = []

        def pictures() -> Iterator[Pixels]:
            for index, label in enumerate(listing.labels):
                try:
                    yield decode(listing.open(index), self.images.shape, listing.names[index])[0]
                except BadImage as error:
                    if not skip_bad:
                        raise UserError(f"{path}: {error}; --skip-bad leaves such images out") from None
                    continue
                labels.append(self.classes.index(label))
                names.append(listing.names[index])

        frames = (
            scattered(part, self.recipe.data.scatter, torch.Generator().manual_seed(number))
            for number, part in enumerate(_stacked(pictures()))
        )
        judged = [part.cpu().numpy() for part in self._log_probabilities(frames)]
        if not judged:
            raise UserError(f"none of the {len(listing):,} images of {path} can be read: give others")
        scores = score_classes(np.concatenate(judged), np.array(labels), self.classes, names)
        return replace(scores, left_out=len(listing) - len(labels))

    def example_count(self, split: SplitName) -> int:
        return len(self.images.split(split))

    def example(self, split: SplitName, number: int) -> Example:
        """As it is judged."""
        start = number - number % _AT_A_TIME
        frame = self._frames(split, start)[number - start]
        return Example(
            frame.permute(1, 2, 0).numpy(), self.classes[self.images.split(split).labels[number]]
        )  # (H, W, C)

    def _frames(self, split: SplitName, start: int) -> Tensor:
        """Some held-out images from number `start` on, scattered where images are: always to the same places."""
        pixels = torch.tensor(self.images.split(split).pixels[start : start + _AT_A_TIME])
        places = torch.Generator().manual_seed((SPLITS.index(split) << 32) + start)
        return scattered(pixels, self.recipe.data.scatter, places)

    @torch.no_grad()
    def _log_probabilities(self, parts: Iterator[Tensor]) -> Iterator[Tensor]:
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

    def predict(self, inputs: Sequence[AnyImage], best: int | None = None) -> list[Classified]:
        """The `best` likeliest classes (all unless given) of each image: a path, a PIL image, or an array of bytes (H, W) or (H, W, C)."""
        return list(self.answers(inputs, best))

    def answers(self, inputs: Sequence[AnyImage], best: int | None = None) -> Iterator[Classified]:
        """The same, as they are found."""
        if best is not None and best < 1:
            raise UserError(f"{best} best classes were asked for: ask for 1 or more")
        return self._classified(inputs, best)

    def _classified(self, inputs: Sequence[AnyImage], best: int | None) -> Iterator[Classified]:
        given = iter(inputs)
        for part in self._log_probabilities(_stacked(self.picture(each) for each in inputs)):
            shares, order = part.exp().sort(stable=True, dim=1, descending=True)
            for row_shares, row in zip(shares[:, :best].tolist(), order[:, :best].tolist(), strict=True):
                yield Classified(name_of(next(given)), tuple(self.classes[number] for number in row), tuple(row_shares))

    def picture(self, source: AnyImage) -> Pixels:
        """The image as the model gets it, before it is standardised: bytes (C, H, W)."""
        return pixels_of(source, self.shape)


def _stacked(pictures: Iterator[Pixels]) -> Iterator[Tensor]:
    """Some at a time, so that a list of thousands of files never stands in memory decoded."""
    part: list[Pixels] = []
    for picture in pictures:
        part.append(picture)
        if len(part) == _AT_A_TIME:
            yield torch.from_numpy(np.stack(part))
            part = []
    if part:
        yield torch.from_numpy(np.stack(part))


def _numbers(tensors: dict[str, Tensor]) -> dict[str, float]:
    return {name: float(tensor.detach()) for name, tensor in tensors.items()}
