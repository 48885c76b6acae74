"""How good a run's captions are: by the words, by its perplexity, and by where each word looked."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from saccade.attention import record_attention
from saccade.data.captions.dataset import equal_length_batches
from saccade.data.captions.files import read_captions
from saccade.data.images.store import AnyImage, open_store
from saccade.data.splits import SplitName
from saccade.data.text.tokenizer import BOS, PAD
from saccade.errors import UserError
from saccade.layers.cross_entropy import linear_cross_entropy
from saccade.metrics.captions import CaptionScores, score_captions
from saccade.metrics.pointing import Pointed, Pointing, pointed, together
from saccade.tasks.held_out import HeldOut
from saccade.tasks.task import Example
from saccade.tasks.writing import looks_at

if TYPE_CHECKING:
    from saccade.tasks.captions.options import CaptionOptions
    from saccade.tasks.captions.task import CaptionTask

_REPLAYED = 500  # validation images by which the layer that points best is chosen


def evaluate(task: "CaptionTask", split: SplitName, options: "CaptionOptions") -> CaptionScores:
    if options.data is not None and options.reference is not None:
        return evaluate_files(task, options.data, options.reference, options)
    chosen = task.captions.split(split)
    written = task.written(split, len(chosen), options)
    scores = score_captions([caption.text for caption in written], chosen.captions)
    scores = replace(scores, perplexity=perplexity(task, split, len(chosen)))
    looked = pointing(task, split)
    return scores if looked is None else replace(scores, **looked._asdict())


def evaluate_files(task: "CaptionTask", images: Path, captions: Path, options: "CaptionOptions") -> CaptionScores:
    """Of other images, which are decoded as they are described."""
    store, table = open_store(images), read_captions(captions)
    references: dict[str, tuple[str, ...]] = {}
    for name, own in table.captions.items():
        path = store.find(name)
        if path is None:
            raise UserError(f"{images} does not contain {name}, which {captions} names: add it, or remove its lines")
        references[path] = references.get(path, ()) + own
    paths = list(references)
    # Opened when they are asked for: a folder may be larger than memory.
    examples = HeldOut[AnyImage](len(paths), lambda number: Example(store.open(paths[number]), paths[number]))
    written = [caption.text for caption in task.answers(examples, options)]
    return score_captions(written, list(references.values()))


@torch.no_grad()
def perplexity(task: "CaptionTask", split: SplitName, count: int) -> float:
    """exp of the mean cross-entropy per word, the end included, of all references of the first images."""
    task.model.eval()
    pairs, total, words = task.captions.split(split).pairs, 0.0, 0
    lengths = pairs.lengths[pairs.images < count]  # images stand in order, so these are the first pairs
    for work in equal_length_batches(lengths, 256, seed=0, number=0):
        batch = task.pairs_batch(pairs, task.visual(split), work)
        reading = task.stepper.read(task.encoded(batch.visual), batch.target_in)
        targets = batch.target_out.flatten()
        total += float(linear_cross_entropy(reading.readouts.flatten(0, 1), task.stepper.output, targets)[0])
        words += len(targets)
    return float(np.exp(min(total / max(words, 1), 100.0)))


def pointing(task: "CaptionTask", split: SplitName) -> Pointing | None:
    """How often a word looks at what it names, by the layer that does so best on the validation images."""
    if task.captions.split(split).regions is None:
        return None
    by_layer = _pointed(task, "valid", _REPLAYED)
    if not by_layer:
        return None
    best = max(by_layer, key=lambda name: together(by_layer[name]).pointing)
    return together(_pointed(task, split, len(task.captions.split(split)))[best])


@torch.no_grad()
def _pointed(task: "CaptionTask", split: SplitName, most: int) -> dict[str, list[Pointed]]:
    """By attention module, heads averaged: where each object word of the first reference looked while that was written."""
    task.model.eval()
    images, by_layer = task.captions.split(split), dict[str, list[Pointed]]()
    names = looks_at(task.model, "target", "cells")
    assert images.regions is not None
    for start in range(0, min(most, len(images)) if names else 0, 64):
        rows = range(start, min(start + 64, most, len(images)))
        words = task.vocabulary.encode_batch([images.captions[row][0] for row in rows])
        longest = max(map(len, words))
        target = torch.tensor([[BOS, *own, *[PAD] * (longest - len(own))] for own in words], device=task.device)
        with record_attention(task.model, names) as recorded:
            task.stepper.read(task.encoded(task.rows(task.visual(split), rows)), target)
        for name in recorded:
            weights = recorded.joined(name)  # (B, T, K) or (B, H, T, K)
            mean = (weights if weights.dim() == 3 else weights.mean(1)).cpu().numpy()
            for place, row in enumerate(rows):
                own = pointed(mean[place], images.regions[row], *task.stepper.encoder.grid)
                by_layer.setdefault(name, []).extend(own)
    return by_layer
