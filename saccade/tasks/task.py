"""What a task is to the rest: batches, steps that minimise a loss, a validation, predictions. The loop knows nothing else.

A `Step` owns some parameters and gives the loss of a batch as a total and a count. The loop adds up totals, divides by the counts
once, and so accumulation over unequal batches and several processes give exactly the gradient of the one big batch.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from saccade.config.recipe import Recipe
from saccade.data.text.corpus import SplitName


@dataclass(frozen=True)
class Loss:
    total: Tensor  # summed over what is counted; this is minimised
    count: int  # tokens, images, ...
    shown: Mapping[str, float] = field(default_factory=dict)  # further totals to report, divided by the same count


@dataclass(frozen=True)
class Step:
    """One loss and the parameters that minimise it. An update of the loop takes every step of the task in order; most tasks have one.

    A GAN has two, over different parameters; with `repeats` its discriminator may take several for each of the generator's, the r-th
    on the r-th group of batches of the update. Optimiser settings that are None are those of the train section; all follow its schedule.
    """

    name: str
    parameters: Sequence[nn.Parameter]
    loss: Callable[[Any], Loss]
    shown: Sequence[str] = ()  # the names in Loss.shown
    repeats: int = 1
    optimizer: Literal["adam", "adamw", "muon"] | None = None
    learning_rate: float | None = None
    betas: tuple[float, float] | None = None
    epsilon: float | None = None
    weight_decay: float | None = None
    max_grad_norm: float | None = None


@dataclass(frozen=True)
class Validation:
    """`score` decides which checkpoint is best: higher is better. `files` are written to RUN/samples/STEP-NAME: bytes, or a function that
    writes to the path it gets, whose ending is that of the name."""

    metrics: Mapping[str, float]
    score: float
    samples: Sequence[str] = ()
    files: Mapping[str, bytes | Callable[[Path], None]] = field(default_factory=dict)


class Example(NamedTuple):
    """One held-out example: what the task's `predict` takes, and what people say of it."""

    given: Any
    truth: str


class Trainer(Protocol):
    """What `fit` may use."""

    @property
    def directory(self) -> Path: ...
    def say(self, sentence: str) -> None: ...
    def loop(self, task: "Trained") -> None: ...


class Weights(Protocol):
    """Weights that were saved in a run directory."""

    @property
    def directory(self) -> Path: ...
    def load_into(self, model: nn.Module) -> None: ...


class Task(Protocol):
    recipe: Recipe  # with whatever the task chose from the data in place of "auto"
    unit: str  # what is counted: "tokens", "images"

    @classmethod
    def prepare(cls, recipe: Recipe, directory: Path, say: Callable[[str], None]) -> "Task":
        """A new run: reads the data and leaves in the directory what the task learned from them."""
        ...

    @classmethod
    def reopen(cls, recipe: Recipe, directory: Path) -> "Task":
        """The task of a run that exists."""
        ...

    def fit(self, trainer: Trainer) -> None:
        """`trainer.loop(self)` for most; a random forest needs no loop."""
        ...

    def restore(self, weights: Weights) -> None:
        """`weights.load_into(self.model)` for most."""
        ...

    def example_count(self, split: SplitName) -> int: ...

    def example(self, split: SplitName, number: int) -> Example: ...


class Trained(Task, Protocol):
    """What the loop needs beyond that."""

    model: nn.Module

    def steps(self) -> Sequence[Step]: ...

    def epoch(self, number: int, rank: int, world: int) -> Sequence[Any]:
        """The work of an epoch in order, the same for the same seed; each process gets its share of every batch."""
        ...

    def batch(self, work: Any) -> Any | None:
        """The batch itself; None where this process has no share of it."""
        ...

    def validate(self) -> Validation: ...

    def describe(self, work: Any) -> str:
        """A batch in words, for an error message."""
        ...


def device() -> torch.device:
    """The GPU of this process if there is one (torchrun gives each process its own), else the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


def trainable(modules: Iterable[nn.Module]) -> list[nn.Parameter]:
    return [parameter for module in modules for parameter in module.parameters() if parameter.requires_grad]
