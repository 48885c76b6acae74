"""Models that are fitted in one go, without the loop: a forest."""

from typing import TYPE_CHECKING

import numpy as np

from saccade.models.random_forest import RandomForest
from saccade.tasks.task import Trainer, Weights

if TYPE_CHECKING:
    from saccade.tasks.series_classes.task import SeriesClassTask

FILE = "forest.safetensors"
_AT_A_TIME = 4096


def fit(task: "SeriesClassTask", trainer: Trainer) -> bool:
    """Whether the model was fitted here."""
    model = task.model
    if not isinstance(model, RandomForest):
        return False
    numbers = task.series.splits["train"]
    parts = range(0, len(numbers), _AT_A_TIME)
    features = [model.features(task.series.batch(numbers[start : start + _AT_A_TIME])).numpy() for start in parts]
    model.fit(np.concatenate(features), task.series.truths[numbers], task.recipe.train.seed)
    trainer.say(f"{model.trees:,} trees of {model.nodes:,} nodes in all")
    metrics = task.validate().metrics
    trainer.say("validated: " + ", ".join(f"{name} {value:.3f}" for name, value in metrics.items()))
    if trainer.leads:
        model.save(trainer.directory / FILE)
    return True


def restore(task: "SeriesClassTask", weights: Weights) -> bool:
    if not isinstance(task.model, RandomForest):
        return False
    task.model.load(weights.directory / FILE)
    return True
