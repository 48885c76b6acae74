"""Captions: an image in, a sentence about it out.

The objective is the cross-entropy of the next word, summed over words, and what the model minimises beside it (its `penalty`). A batch
holds captions of one length (Xu 2015), so that nothing is padded. Where attention samples, REINFORCE is part of the same objective:

    - reinforce · Σ_t (b + log p(word_t)) · log α_t          with the moving mean b ← 0.9 b + 0.1 · mean(-log p(word)) of sampled batches

The features of a frozen encoder are computed once and kept; one that learns sees the pixels of every batch. Which checkpoint is best is
decided by captions that the model wrote alone, never by words that were given to it.

Axis legend: B batch, T words, K cells, D features.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from saccade.config.recipe import Config as BaseConfig
from saccade.config.recipe import Recipe
from saccade.data.captions import dataset as caption_data
from saccade.data.captions.dataset import Array, CaptionPairs, Captions, CaptionsConfig, equal_length_batches
from saccade.data.captions.files import plain
from saccade.data.images.decoding import Pixels
from saccade.data.images.features import cache_directory, features
from saccade.data.images.store import AnyImage, name_of, pixels_of
from saccade.data.splits import SplitName
from saccade.data.text.tokenizer import BOS, EOS, UNK
from saccade.decoding import Hypothesis, score_targets
from saccade.errors import UserError
from saccade.layers import efficientnet
from saccade.layers.cross_entropy import linear_cross_entropy
from saccade.metrics.captions import CaptionScores, score_captions
from saccade.models.shapes import Shapes
from saccade.tasks.captions import evaluating
from saccade.tasks.captions.options import CaptionOptions
from saccade.tasks.held_out import HeldOut
from saccade.tasks.inputs import Image
from saccade.tasks.task import (
    Example,
    Loss,
    Say,
    Step,
    Trained,
    Validation,
    build_model,
    device,
    trainable,
)
from saccade.tasks.words import words_of
from saccade.tasks.writing import (
    DecodeConfig,
    Written,
    as_prefix,
    generate,
    looks_at,
)
from saccade.views.view import View

_LONGEST = 60  # words of a caption; the longest that people wrote for Flickr8k has 38
_KEPT = 0.9  # of REINFORCE's baseline from batch to batch


class ObjectiveConfig(BaseConfig):
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    reinforce: float = Field(1.0, ge=0, description="hard attention: weight of the REINFORCE term")


class Config(BaseConfig):
    model_kind: ClassVar[str] = "captioner"

    data: CaptionsConfig
    objective: ObjectiveConfig
    decode: DecodeConfig


class Caption(Written):
    """What a model says about one image, best first."""

    called = "captions"


@dataclass(frozen=True)
class CaptionBatch:
    visual: Tensor  # (B, K, D) features of a frozen encoder, or (B, 3, rows, columns) bytes
    target_in: Tensor  # (B, T) <bos>, words
    target_out: Tensor  # (B, T) words, <eos>


class CaptionTask(Trained[AnyImage, CaptionOptions]):
    unit = "words"

    def __init__(self, recipe: Recipe, captions: Captions, say: Say = lambda text: None):
        self.recipe = recipe
        self.captions = captions
        self.vocabulary = captions.vocabulary
        self.device = device()
        self.shape = captions.shape
        self.say = say
        self._visual: dict[tuple[str, bool], Any] = {}
        self.model = build_model(recipe, Shapes(self.shape, target_words=len(self.vocabulary)), self.device)

    @classmethod
    def prepare(cls, recipe: Recipe, directory: Path, say: Say) -> "CaptionTask":
        """A new run: images are decoded into the directory, and a frozen encoder looks at all of them."""
        if recipe.model.encoder.name == "efficientnet-lite0":
            efficientnet.published_weights()  # says what to install, before the images are read
        task = cls(recipe, caption_data.prepare(recipe.data, directory, say, recipe.start), say)
        for split in ("train", "valid"):
            task.visual(split)
        if recipe.data.mirrored:
            task.visual("train", mirrored=True)
        return task

    @classmethod
    def reopen(cls, recipe: Recipe, directory: Path) -> "CaptionTask":
        return cls(recipe, caption_data.reopen(directory))

    @classmethod
    def options(cls, recipe: Recipe) -> type[CaptionOptions]:
        return CaptionOptions

    @property
    def input(self) -> Image:
        return Image(self.shape)

    @property
    def attends(self) -> bool:
        """Whether words look at the picture; an encoder's own attention does not count."""
        return bool(looks_at(self.model, "target", "cells"))

    def visual(self, name: SplitName, mirrored: bool = False) -> Any:
        """What the decoder or its encoder gets of each image of a split: features, or pixels."""
        if (name, mirrored) not in self._visual:
            pixels = self.captions.split(name).pixels[..., :: -1 if mirrored else 1]  # (N, 3, H, W)
            if self.recipe.model.encoder.is_frozen:
                pixels = features(self.stepper.encoder, pixels, cache_directory(), self.say)
            self._visual[name, mirrored] = pixels
        return self._visual[name, mirrored]

    # Training

    def steps(self) -> list[Step]:
        return [Step("loss", trainable([self.model]), self._loss, ("cross-entropy",))]

    def epoch(self, number: int, rank: int, world: int) -> Sequence[Array]:
        size, seed = self.recipe.data.batch_size, self.recipe.train.seed
        return equal_length_batches(self.captions.train.pairs.lengths, size, seed, number, (rank, world))

    def batch(self, work: Array) -> CaptionBatch | None:
        if not len(work):
            return None
        pairs = self.captions.train.pairs
        batch = self.pairs_batch(pairs, self.visual("train"), work)
        if not self.recipe.data.mirrored:
            return batch
        turned = self.rows(self.visual("train", mirrored=True), pairs.images[work])
        is_turned = torch.rand(len(work), *[1] * (turned.dim() - 1), device=self.device) < 0.5
        return replace(batch, visual=torch.where(is_turned, turned, batch.visual))

    def pairs_batch(self, pairs: CaptionPairs, visual: Any, work: Array) -> CaptionBatch:
        words = torch.tensor([pairs.tokens[int(index)] for index in work], device=self.device)
        edge = words.new_ones(len(words), 1)
        return CaptionBatch(
            self.rows(visual, pairs.images[work]),
            torch.cat((BOS * edge, words), 1),
            torch.cat((words, EOS * edge), 1),
        )

    def rows(self, visual: Any, rows: Any) -> Tensor:
        """Some images out of a memory-mapped file, which is fastest in the order of the file."""
        different, back = np.unique(rows, return_inverse=True)
        return torch.from_numpy(np.ascontiguousarray(visual[different][back])).to(self.device)

    def describe(self, work: Array) -> str:
        first = self.vocabulary.decode(self.captions.train.pairs.tokens[int(work[0])]) if len(work) else "none"
        return f"{len(work)} captions, the first: {first!r}"

    def _loss(self, batch: CaptionBatch) -> Loss:
        reading = self.stepper.read(self.encoded(batch.visual), batch.target_in)
        smoothing, words = self.recipe.objective.label_smoothing, batch.target_out.flatten()
        total, nll = linear_cross_entropy(reading.readouts.flatten(0, 1), self.stepper.output, words, smoothing)
        total = total + reading.penalty
        if reading.log_prob.dim():
            baseline: Tensor = self.stepper.baseline
            advantage = baseline - nll
            total = total - self.recipe.objective.reinforce * (advantage * reading.log_prob.flatten()).sum()
            baseline.lerp_(nll.mean().to(baseline.dtype), 1 - _KEPT)
        return Loss(total, len(words), {"cross-entropy": float(nll.sum())})

    def encoded(self, visual: Tensor) -> Any:
        """Features, or bytes that the encoder turns into them, ready to be looked at."""
        return self.stepper.encode(self.stepper.features(visual) if visual.dtype == torch.uint8 else visual)

    @property
    def stepper(self) -> Any:
        return self.model

    # Judging

    def validate(self) -> Validation:
        count = min(self.recipe.decode.valid_sentences, len(self.captions.valid))
        written = self.written("valid", count, CaptionOptions(search="greedy"))
        scores = score_captions([caption.text for caption in written], self.captions.valid.captions[:count])
        metrics = {
            "perplexity": evaluating.perplexity(self, "valid", count),
            "bleu-4": scores.bleu[3],
            "cider-d": scores.cider,
            "exact": scores.exact,
        }
        samples = [f"{caption.source} → {caption.text}" for caption in written[:3]]
        return Validation(metrics, scores.bleu[3], samples)

    def held_out(self, split: SplitName) -> Sequence[Example[AnyImage]]:
        images = self.captions.split(split)

        def example(number: int) -> Example[AnyImage]:
            pixels = images.pixels[number].transpose(1, 2, 0)  # (H, W, C)
            return Example(pixels, f"{split}:{number}", " / ".join(images.captions[number]))

        return HeldOut(len(images), example)

    def evaluate(self, split: SplitName, options: CaptionOptions) -> CaptionScores:
        return evaluating.evaluate(self, split, options)

    def written(self, split: SplitName, count: int, options: CaptionOptions) -> list[Caption]:
        """Captions of the first images of a split."""
        size, names = options.decode(self.recipe.decode).batch_size, self.captions.split(split).names
        parts = (range(start, min(start + size, count)) for start in range(0, count, size))
        rows = (self.rows(self.visual(split), part) for part in parts)
        return list(self._write(rows, names[:count], options))

    # Predicting

    def answers(self, examples: Sequence[Example[AnyImage]], options: CaptionOptions) -> Iterator[Caption]:
        size = options.decode(self.recipe.decode).batch_size
        parts = (examples[start : start + size] for start in range(0, len(examples), size))
        pictures = (torch.from_numpy(np.stack([self.picture(example.content) for example in part])) for part in parts)
        return self._write(pictures, [example.name or name_of(example.content) for example in examples], options)

    @torch.no_grad()
    def _write(self, parts: Iterator[Tensor], names: Sequence[str], options: CaptionOptions) -> Iterator[Caption]:
        self.model.eval()
        config, done = options.decode(self.recipe.decode), 0
        forced = self.known(options.prefix)
        for visual in parts:
            longest = torch.full((len(visual),), _LONGEST, device=self.device)
            numbers = list(range(done, done + len(visual)))
            begin = [forced] * len(visual) if forced else None
            outputs = generate(self.model, self.encoded(visual.to(self.device)), longest, config, begin, numbers)
            for number, hypotheses in zip(numbers, outputs, strict=True):
                yield self.in_words(names[number], hypotheses, config.best)
            done += len(visual)

    def in_words(self, source: str, hypotheses: list[Hypothesis], wanted: int = 1) -> Caption:
        texts = [self.vocabulary.decode(hypothesis.tokens).strip() for hypothesis in hypotheses]
        words = [words_of(self.vocabulary, hypothesis) for hypothesis in hypotheses]
        return Caption(source, texts[0], hypotheses, texts[1:], words, wanted)

    @torch.no_grad()
    def score_caption(self, source: AnyImage, text: str) -> Caption:
        """A caption that somebody else wrote, as the model reads it, and how probable it is."""
        self.model.eval()
        tokens = self.known(text)
        if len(tokens) > _LONGEST:
            raise UserError(
                f"a caption of {len(tokens)} words was given, and at most {_LONGEST} are allowed: shorten it"
            )
        visual = torch.from_numpy(self.picture(source)).to(self.device)[None]
        begin = torch.tensor([BOS], device=self.device)
        scored = score_targets(self.stepper, self.encoded(visual), begin, *as_prefix([tokens]), eos=EOS)
        return self.in_words(name_of(source), scored)

    def known(self, text: str) -> list[int]:
        """The tokens of given words, all of which must occur in the vocabulary."""
        words = plain(text).split()
        for word in words:
            if UNK in self.vocabulary.encode(word):
                raise UserError(
                    f"{text!r} has the word {word!r}, which is not in this model's vocabulary: use words of its training captions"
                )
        return self.vocabulary.encode(" ".join(words))

    def picture(self, source: AnyImage) -> Pixels:
        """The image as the model gets it: bytes (3, rows, columns)."""
        return pixels_of(source, self.shape)

    # Looking

    def look(self, example: Example[AnyImage], options: CaptionOptions) -> View:
        from saccade.tasks.captions.look import look

        return look(self, example, options.target, options.only)


TASK = CaptionTask
