"""How good a run's classes are: on its own held-out images, or on other files, which are decoded as they are judged."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from saccade.data.images.decoding import BadImage, Pixels, decode
from saccade.data.images.files import list_images
from saccade.data.images.scatter import scattered
from saccade.data.images.splits import check_classes
from saccade.data.splits import SplitName
from saccade.errors import UserError
from saccade.files import write_text
from saccade.metrics.classes import ClassScores, score_classes
from saccade.models.glimpse import GlimpseNetwork

if TYPE_CHECKING:
    from saccade.tasks.image_classes.options import ImageOptions
    from saccade.tasks.image_classes.task import ImageClassTask

LogProbabilities = np.ndarray[Any, np.dtype[np.float32]]  # (images, classes)


def evaluate(task: "ImageClassTask", split: SplitName, options: "ImageOptions") -> ClassScores:
    """Where the run scatters its images, those of `options.data` are scattered too."""
    from saccade.views import confusion
    from saccade.views.document import PICTURES, require_ending

    if options.confusion is not None:
        require_ending(options.confusion, PICTURES)
    with _sampling(task.glimpses, options.samples):
        if options.data is None:
            own = task.images.split(split)
            scores = score_classes(log_probabilities(task, split), own.labels, task.classes, own.names)
        else:
            scores = _evaluate_files(task, options.data, options.skip_bad)
        paths = 1 if task.glimpses is None else task.glimpses.samples
    if options.confusion is not None:
        confusion.save(scores.confusion, scores.classes, options.confusion)
    if options.mistakes is not None:
        write_text(options.mistakes, "\n".join([*scores.mistake_lines(), ""]))
    return replace(scores, paths=paths)


@contextmanager
def _sampling(model: GlimpseNetwork | None, samples: int | None) -> Iterator[None]:
    """So many drawn paths of glimpses for each image; as the recipe says unless given."""
    if model is None or samples is None:
        yield
        return
    before = model.samples
    try:
        model.samples = samples
        yield
    finally:
        model.samples = before


def log_probabilities(task: "ImageClassTask", split: SplitName) -> LogProbabilities:
    """Of a whole split."""
    from saccade.tasks.image_classes.task import AT_A_TIME

    count = len(task.images.split(split))
    parts = (task.frames(split, start) for start in range(0, count, AT_A_TIME))
    return np.concatenate([part.cpu().numpy() for part in task.judge(parts)])


def _evaluate_files(task: "ImageClassTask", path: Path, skip_bad: bool) -> ClassScores:
    from saccade.tasks.image_classes.task import stacked

    listing = list_images(path, task.classes)
    check_classes(listing, task.classes)
    labels: list[int] = []
    names: list[str] = []

    def pictures() -> Iterator[Pixels]:
        for index, label in enumerate(listing.labels):
            try:
                yield decode(listing.open(index), task.images.shape, listing.names[index])[0]
            except BadImage as error:
                if not skip_bad:
                    raise UserError(f"{path}: {error}; --skip-bad leaves such images out") from None
                continue
            labels.append(task.classes.index(label))
            names.append(listing.names[index])

    frames = (
        scattered(part, task.recipe.data.scatter, torch.Generator().manual_seed(number))
        for number, part in enumerate(stacked(pictures()))
    )
    judged = [part.cpu().numpy() for part in task.judge(frames)]
    if not judged:
        raise UserError(f"none of the {len(listing):,} images of {path} can be read: give others")
    scores = score_classes(np.concatenate(judged), np.array(labels), task.classes, names)
    return replace(scores, left_out=len(listing) - len(labels))
