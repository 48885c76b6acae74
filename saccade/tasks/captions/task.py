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
from torch import Tensor, nn

from saccade.attention import record_attention
from saccade.config.recipe import Config as BaseConfig
from saccade.config.recipe import Recipe
from saccade.data.captions import dataset as caption_data
from saccade.data.captions.dataset import Array, CaptionPairs, Captions, CaptionsConfig, Say, equal_length_batches
from saccade.data.captions.files import plain
from saccade.data.images.decoding import Pixels
from saccade.data.images.features import cache_directory, features
from saccade.data.images.splits import SplitName
from saccade.data.images.store import AnyImage, name_of, pixels_of
from saccade.data.text.tokenizer import BOS, EOS, PAD, UNK
from saccade.decoding import score_targets
from saccade.errors import UserError
from saccade.layers import efficientnet
from saccade.layers.cross_entropy import linear_cross_entropy
from saccade.metrics.captions import CaptionScores, score_captions
from saccade.metrics.pointing import Pointed, Pointing, pointed, together
from saccade.models.shapes import Shapes
from saccade.tasks.task import Example, Loss, Step, Trainer, Validation, Weights, device, trainable
from saccade.tasks.writing import DecodeConfig, Written, as_prefix, generate

_LONGEST = 60  # words of a caption; the longest that people wrote for Flickr8k has 38
_KEPT = 0.9  # of REINFORCE's baseline from batch to batch
_REPLAYED = 500  # validation images by which the layer that points best is chosen


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
    seen: Tensor  # (B, K, D) features of a frozen encoder, or (B, 3, rows, columns) bytes
    target_in: Tensor  # (B, T) <bos>, words
    target_out: Tensor  # (B, T) words, <eos>


class CaptionTask:
    unit = "words"

    def __init__(self, recipe: Recipe, captions: Captions, say: Say = lambda text: None):
        self.recipe = recipe
        self.captions = captions
        self.vocabulary = captions.vocabulary
        self.device = device()
        self.shape = captions.shape
        self.say = say
        self._seen: dict[tuple[str, bool], Any] = {}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.train.seed)
            built = recipe.model_module.build(recipe.model, Shapes(self.shape, target_words=len(self.vocabulary)))
        self.model: nn.Module = built.to(self.device)

    @classmethod
    def prepare(cls, recipe: Recipe, directory: Path, say: Say) -> "CaptionTask":
        """A new run: images are decoded into the directory, and a frozen encoder looks at all of them."""
        if recipe.model.encoder.name == "efficientnet-lite0":
            efficientnet.published_weights()  # says what to install, before the images are read
        task = cls(recipe, caption_data.prepare(recipe.data, directory, say, recipe.start), say)
        for split in ("train", "valid"):
            task.seen(split)
        if recipe.data.mirrored:
            task.seen("train", mirrored=True)
        return task

    @classmethod
    def reopen(cls, recipe: Recipe, directory: Path) -> "CaptionTask":
        return cls(recipe, caption_data.reopen(directory))

    def seen(self, name: SplitName, mirrored: bool = False) -> Any:
        """What the decoder or its encoder gets of each image of a split: features, or pixels."""
        if (name, mirrored) not in self._seen:
            pixels = self.captions.split(name).pixels[..., :: -1 if mirrored else 1]  # (N, 3, H, W)
            if self.recipe.model.encoder.is_frozen:
                pixels = features(self.stepper.encoder, pixels, cache_directory(), self.say)
            self._seen[name, mirrored] = pixels
        return self._seen[name, mirrored]

    # Training

    def fit(self, trainer: Trainer) -> None:
        trainer.loop(self)

    def restore(self, weights: Weights) -> None:
        weights.load_into(self.model)

    def steps(self) -> list[Step]:
        return [Step("loss", trainable([self.model]), self._loss, ("cross-entropy",))]

    def epoch(self, number: int, rank: int, world: int) -> Sequence[Array]:
        size, seed = self.recipe.data.batch_size, self.recipe.train.seed
        return equal_length_batches(self.captions.train.pairs.lengths, size, seed, number, (rank, world))

    def batch(self, work: Array) -> CaptionBatch | None:
        if not len(work):
            return None
        pairs = self.captions.train.pairs
        batch = self._batch(pairs, self.seen("train"), work)
        if not self.recipe.data.mirrored:
            return batch
        turned = self._rows(self.seen("train", mirrored=True), pairs.images[work])
        is_turned = torch.rand(len(work), *[1] * (turned.dim() - 1), device=self.device) < 0.5
        return replace(batch, seen=torch.where(is_turned, turned, batch.seen))

    def _batch(self, pairs: CaptionPairs, seen: Any, work: Array) -> CaptionBatch:
        words = torch.tensor([pairs.tokens[int(index)] for index in work], device=self.device)
        edge = words.new_ones(len(words), 1)
        return CaptionBatch(
            self._rows(seen, pairs.images[work]),
            torch.cat((BOS * edge, words), 1),
            torch.cat((words, EOS * edge), 1),
        )

    def _rows(self, seen: Any, rows: Any) -> Tensor:
        """Some images out of a memory-mapped file, which is fastest in the order of the file."""
        different, back = np.unique(rows, return_inverse=True)
        return torch.from_numpy(np.ascontiguousarray(seen[different][back])).to(self.device)

    def describe(self, work: Array) -> str:
        first = self.vocabulary.decode(self.captions.train.pairs.tokens[int(work[0])]) if len(work) else "none"
        return f"{len(work)} captions, the first: {first!r}"

    def _loss(self, batch: CaptionBatch) -> Loss:
        reading = self.stepper.read(self.encoded(batch.seen), batch.target_in)
        smoothing, words = self.recipe.objective.label_smoothing, batch.target_out.flatten()
        total, nll = linear_cross_entropy(reading.readouts.flatten(0, 1), self.stepper.output, words, smoothing)
        total = total + reading.penalty
        if reading.log_prob.dim():
            baseline: Tensor = self.stepper.baseline
            advantage = baseline - nll
            total = total - self.recipe.objective.reinforce * (advantage * reading.log_prob.flatten()).sum()
            baseline.lerp_(nll.mean().to(baseline.dtype), 1 - _KEPT)
        return Loss(total, len(words), {"cross-entropy": float(nll.sum())})

    def encoded(self, seen: Tensor) -> Any:
        """Features, or bytes that the encoder turns into them, ready to be looked at."""
        return self.stepper.encode(self.stepper.features(seen) if seen.dtype == torch.uint8 else seen)

    @property
    def stepper(self) -> Any:
        return self.model

    # Judging

    def validate(self) -> Validation:
        count = min(self.recipe.decode.valid_sentences, len(self.captions.valid))
        written = self._written("valid", count, search="greedy")
        scores = score_captions([each.text for each in written], self.captions.valid.captions[:count])
        metrics = {
            "perplexity": self.perplexity("valid", count),
            "bleu-4": scores.bleu[3],
            "cider-d": scores.cider,
            "exact": scores.exact,
        }
        samples = [f"{each.source} → {each.text}" for each in written[:3]]
        return Validation(metrics, scores.bleu[3], samples)

    def example_count(self, split: SplitName) -> int:
        return len(self.captions.split(split))

    def example(self, split: SplitName, number: int) -> Example:
        photos = self.captions.split(split)
        return Example(photos.pixels[number].transpose(1, 2, 0), " / ".join(photos.captions[number]))  # (H, W, C)

    def evaluate(self, split: SplitName = "test", **settings: Any) -> CaptionScores:
        chosen = self.captions.split(split)
        written = self._written(split, len(chosen), **settings)
        scores = score_captions([each.text for each in written], chosen.captions)
        scores = replace(scores, perplexity=self.perplexity(split, len(chosen)))
        found = self.pointing(split)
        return scores if found is None else replace(scores, **found._asdict())

    @torch.no_grad()
    def perplexity(self, split: SplitName, count: int) -> float:
        """exp of the mean cross-entropy per word, the end included, of all references of the first images."""
        self.model.eval()
        pairs, total, words = self.captions.split(split).pairs, 0.0, 0
        lengths = pairs.lengths[pairs.images < count]  # images stand in order, so these are the first pairs
        for work in equal_length_batches(lengths, 256, seed=0, number=0):
            batch = self._batch(pairs, self.seen(split), work)
            reading = self.stepper.read(self.encoded(batch.seen), batch.target_in)
            targets = batch.target_out.flatten()
            total += float(linear_cross_entropy(reading.readouts.flatten(0, 1), self.stepper.output, targets)[0])
            words += len(targets)
        return float(np.exp(min(total / max(words, 1), 100.0)))

    def pointing(self, split: SplitName) -> Pointing | None:
        """How often a word looks at what it names, by the layer that does so best on the validation images."""
        if self.captions.split(split).regions is None:
            return None
        chosen = self._pointed("valid", _REPLAYED)
        if not chosen:
            return None
        best = max(chosen, key=lambda name: together(chosen[name]).pointing)
        return together(self._pointed(split, len(self.captions.split(split)))[best])

    @torch.no_grad()
    def _pointed(self, split: SplitName, most: int) -> dict[str, list[Pointed]]:
        """By attention module, heads averaged: where each object word of the first reference looked while that was written."""
        self.model.eval()
        images, found = self.captions.split(split), dict[str, list[Pointed]]()
        assert images.regions is not None
        for start in range(0, min(most, len(images)), 64):
            rows = range(start, min(start + 64, most, len(images)))
            words = self.vocabulary.encode_batch([images.captions[row][0] for row in rows])
            longest = max(map(len, words))
            given = torch.tensor([[BOS, *each, *[PAD] * (longest - len(each))] for each in words], device=self.device)
            with record_attention(self.model, "decoder.*") as recorded:
                self.stepper.read(self.encoded(self._rows(self.seen(split), rows)), given)
            for name in (name for name in recorded if "self" not in name):
                weights = recorded.joined(name)  # (B, T, K) or (B, H, T, K)
                mean = (weights if weights.dim() == 3 else weights.mean(1)).cpu().numpy()
                for place, row in enumerate(rows):
                    own = pointed(mean[place], images.regions[row], *self.stepper.encoder.grid)
                    found.setdefault(name, []).extend(own)
        return found

    def _written(self, split: SplitName, count: int, **settings: Any) -> list[Caption]:
        """Captions of the first images of a split."""
        size, names = self.recipe.decode.with_changes(settings).batch_size, self.captions.split(split).names
        parts = (range(start, min(start + size, count)) for start in range(0, count, size))
        rows = (self._rows(self.seen(split), part) for part in parts)
        return list(self._write(rows, names[:count], settings))

    # Predicting

    def predict(
        self, inputs: Sequence[AnyImage], prefixes: Sequence[str] | None = None, **settings: Any
    ) -> list[Caption]:
        """A caption of each image: a path, a PIL image, or an array of bytes (H, W) or (H, W, 3). Keywords replace `decode` settings.

        `prefixes` are words that each caption must begin with.
        """
        return list(self.answers(inputs, prefixes, **settings))

    def answers(
        self, inputs: Sequence[AnyImage], prefixes: Sequence[str] | None = None, **settings: Any
    ) -> Iterator[Caption]:
        """The same, as they are found."""
        size = self.recipe.decode.with_changes(settings).batch_size
        parts = (inputs[start : start + size] for start in range(0, len(inputs), size))
        pictures = (torch.from_numpy(np.stack([self.picture(each) for each in part])) for part in parts)
        forced = None if prefixes is None else [self.known(prefix) for prefix in prefixes]
        return self._write(pictures, [name_of(each) for each in inputs], settings, forced)

    @torch.no_grad()
    def _write(
        self,
        parts: Iterator[Tensor],
        names: Sequence[str],
        settings: dict[str, Any],
        forced: list[list[int]] | None = None,
    ) -> Iterator[Caption]:
        self.model.eval()
        config, done = self.recipe.decode.with_changes(settings), 0
        for seen in parts:
            longest = torch.full((len(seen),), _LONGEST, device=self.device)
            numbers = list(range(done, done + len(seen)))
            begin = None if forced is None else [forced[number] for number in numbers]
            found = generate(self.model, self.encoded(seen.to(self.device)), longest, config, begin, numbers)
            for number, hypotheses in zip(numbers, found, strict=True):
                texts = [self.vocabulary.decode(hypothesis.tokens).strip() for hypothesis in hypotheses]
                yield Caption(names[number], texts[0], hypotheses, texts[1:])
            done += len(seen)

    @torch.no_grad()
    def given(self, source: AnyImage, text: str) -> Caption:
        """A caption that somebody else wrote, as the model reads it, and how probable it is."""
        self.model.eval()
        tokens = self.known(text)
        seen = torch.from_numpy(self.picture(source)).to(self.device)[None]
        begin = torch.tensor([BOS], device=self.device)
        scored = score_targets(self.stepper, self.encoded(seen), begin, *as_prefix([tokens]), eos=EOS)
        return Caption(name_of(source), self.vocabulary.decode(tokens), scored, [])

    def known(self, text: str) -> list[int]:
        """The tokens of words that somebody gives; a word that training never showed is no word to this model."""
        words = plain(text).split()
        for word in words:
            if UNK in self.vocabulary.encode(word):
                raise UserError(
                    f"{text!r} has the word {word!r}, which this model never saw: use words of its training captions"
                )
        return self.vocabulary.encode(" ".join(words))

    def picture(self, source: AnyImage) -> Pixels:
        """The image as the model gets it: bytes (3, rows, columns)."""
        return pixels_of(source, self.shape)
