"""Tasks small enough to know the answer."""

import math
from pathlib import Path

import numpy as np
import torch
from torch import nn

from saccade.tasks.task import Loss, Step, Validation
from saccade.training.checkpoint import RunDirectory
from saccade.training.config import TrainConfig
from saccade.training.loop import Training
from saccade.training.reporter import Reporter
from saccade.training.weights import own_tensors
from saccade.training.world import World


class Line:
    """Fits y = 3x - 1 with dropout noise; batches of unequal size."""

    unit = "points"

    def __init__(self, cut=((0, 7), (7, 10), (10, 24), (24, 32))):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 1))
        self.x = torch.linspace(-1, 1, 32)[:, None]
        self.y = 3 * self.x - 1
        self.cut = cut
        self.poison = None
        self.validations = 0

    def steps(self):
        return [Step("loss", list(self.model.parameters()), self.loss)]

    def epoch(self, number, rank, world):
        order = np.random.default_rng(number).permutation(len(self.cut))
        return [self.cut[index] for index in order]

    def batch(self, work):
        return work

    def loss(self, work):
        start, stop = work
        error = (self.model(self.x[start:stop]) - self.y[start:stop]).square().sum()
        return Loss(error * (math.nan if work == self.poison else 1), stop - start)

    def validate(self):
        self.validations += 1
        with torch.no_grad():
            error = float((self.model(self.x) - self.y).square().mean())
        return Validation({"error": error}, -error)

    def describe(self, work):
        return f"points {work[0]} to {work[1]}"


class Saddle:
    """min over x, max over y of (x - 1)² / 2 + (x - 1)(y + 2) - (y + 2)² / 2: its only saddle point is x = 1, y = -2.

    `taken` has the name of each step that was taken, and its batch.
    """

    unit = "points"

    def __init__(self, repeats=2, batches=5):
        self.model = nn.ParameterDict({"x": torch.tensor([4.0]), "y": torch.tensor([3.0])})
        self.repeats, self.batches = repeats, batches
        self.taken = []

    def steps(self):
        return [
            Step("maximise", [self.model["y"]], self.minus, repeats=self.repeats, learning_rate=0.2, optimizer="adam"),
            Step("minimise", [self.model["x"]], self.plus, betas=(0.5, 0.9)),
        ]

    def value(self):
        x, y = self.model["x"] - 1, self.model["y"] + 2
        return (x.square() / 2 + x * y - y.square() / 2).sum()

    def plus(self, work):
        self.taken.append(("minimise", work))
        return Loss(self.value() * 4, 4)

    def minus(self, work):
        self.taken.append(("maximise", work))
        return Loss(-self.value(), 1)

    def epoch(self, number, rank, world):
        return range(self.batches)

    def batch(self, work):
        return work

    def validate(self):
        x, y = (float(self.model[name].detach()) for name in "xy")
        return Validation({"x": x, "y": y}, -abs(x - 1) - abs(y + 2))

    def describe(self, work):
        return f"batch {work}"


def training(path: Path, task=None, reporter: Reporter | None = None, **config) -> Training:
    values = {
        "steps": 30,
        "learning_rate": 0.05,
        "validate_every": 10,
        "checkpoint_every": 7,
        "precision": "fp32",
        "log_every": 5,
    } | config
    reporter = reporter or Reporter(quiet=True)
    return Training(task or Line(), TrainConfig(**values), RunDirectory(path), reporter, World())


def weights(run: Training):
    return {name: tensor.detach().clone() for name, tensor in own_tensors(run.task.model).items()}


def assert_same(first, second):
    assert first.keys() == second.keys()
    for name in first:
        assert torch.equal(first[name], second[name]), name


def killed_at(path: Path, task, step: int, **config) -> None:
    """Trains until the process would have been killed in the middle of an update: nothing is saved at the end."""
    run = training(path, task, **config)
    batch = task.batch

    def killed(work):
        if run.progress.step == step:
            raise KeyboardInterrupt
        return batch(work)

    task.batch = killed
    try:
        run.run()
    except KeyboardInterrupt:
        return
    raise AssertionError("it ended before it was killed")
