"""Small image classifiers, untrained, and pictures for them."""

from pathlib import Path

import numpy as np

from saccade.config import recipe as configs
from saccade.data.image_shape import ImageShape
from saccade.data.images.dataset import Images
from saccade.tasks.image_classes.task import ImageClassTask

CLASSES = ("cat", "dog", "bird", "frog")
MODELS = {
    "vit": "{name: vit, patch: 4, layers: 3, width: 16, heads: 2, feed_forward: 16}",
    "pooled": "{name: vit, patch: 4, layers: 2, width: 16, heads: 2, feed_forward: 16, pooling: attention}",
    "cnn": "{name: cnn, widths: [4, 4, 8], heads: 2, hidden: 8}",
    "plain": "{name: cnn, widths: [4, 4, 8], attention: none, hidden: 8}",
    "resnet": "{name: resnet, blocks: 1, widths: [8, 8, 8], attention: after-stem, heads: 2, neighbourhood: 3}",
    "swin": "{name: swin, patch: 2, width: 8, layers: [2, 1], heads: [2, 2], window: 4}",
}


def a_task(
    directory: Path, model: str, rows: int = 16, columns: int = 24, classes: tuple[str, ...] = CLASSES
) -> ImageClassTask:
    path = directory / f"{model}.yaml"
    path.write_text(f"task: image_classes\ndata: {{corpus: digits}}\nmodel: {MODELS[model]}\n")
    images = Images(directory, classes, ImageShape(3, rows, columns), (0.5,) * 3, (0.25,) * 3)
    task = ImageClassTask(configs.load(path), images)
    task.model.eval()
    return task


def a_picture(rows: int = 16, columns: int = 24, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (rows, columns, 3), dtype=np.uint8)
