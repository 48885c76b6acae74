"""The contract of a task: all that the command line, the page, the API, comparisons, exports and the training loop know of one.

A task is a folder of saccade/tasks. Its `task.py` has a `Config` (the sections of its recipes) and one class derived from `Task`, or from
`Trained` if the loop trains it, under the name `TASK`. Nothing outside the folder knows its name.

    file -> example -> batch -> model -> answer -> View
            Input      batch()  steps()   answers() look()

Type variables: `Content` is what the task reads (a sentence, an image), `Chosen` its options.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Generic, Literal, Protocol, TypeVar

import torch
from torch import Tensor, nn

from saccade.config.options import Options
from saccade.config.recipe import Config, Recipe
from saccade.data.splits import SplitName as SplitName
from saccade.errors import Say as Say
from saccade.errors import UserError
from saccade.layers.sketch import check_sketch
from saccade.views.view import View

Content = TypeVar("Content")
Chosen = TypeVar("Chosen", bound=Options)
Json = dict[str, Any]
Work = Any  # what `epoch` lists and `batch` turns into a batch: only the task looks inside


# What goes in


@dataclass(frozen=True)
class Example(Generic[Content]):
    """One thing to ask about."""

    content: Content
    name: str = ""  # a path, or test:0; empty where the content says it all
    truth: str | None = None  # the reference, where it is known


@dataclass(frozen=True)
class Typed:
    """What was given on a command line."""

    words: Sequence[str]
    stdin: BinaryIO | None = None  # read where no words were given
    skip_bad: bool = False
    say: Say = print
    command: str = "saccade predict RUN"  # for messages
    options: Options | None = None  # that were chosen; some of them may be input


class Limits(Protocol):
    """How large an input that comes over the network may be."""

    @property
    def characters(self) -> int: ...
    @property
    def pixels(self) -> int: ...


class Input(Protocol[Content]):
    """What a task reads, and how it comes in from anywhere: Text, Image (see inputs.py)."""

    @property
    def kind(self) -> str:
        """What the page offers: "text" to type, "image" to drop; anything else is the task's own panel to ask for."""
        ...

    @property
    def fields(self) -> type[Config]:
        """The fields of a request that hold it, each with an example that every run can read."""
        ...

    def from_command_line(self, typed: Typed) -> list[Example[Content]]: ...

    def from_python(self, value: object) -> Example[Content]: ...

    def from_json(self, body: Config, limits: Limits) -> Example[Content]:
        """Size and form are checked here; a text is never taken for a path."""
        ...

    def unknown(self, examples: Sequence[Example[Content]]) -> Sequence[str]:
        """What in these examples was not seen in training and is read as if it were all the same: unknown words."""
        ...

    def suggestions(self, held_out: Sequence[Example[Content]]) -> list[str]:
        """Some held-out examples as a request would hold them, for people to click."""
        ...


# What comes out


class Answer(Protocol):
    def lines(self) -> list[str]:
        """For people and pipes, best first."""
        ...

    def to_dict(self) -> Json: ...


class Scores(Protocol):
    def rows(self) -> list[tuple[str, str]]:
        """Names and values for people."""
        ...

    def columns(self) -> list[tuple[str, list[str]]]:
        """A second table, as headings with their cells; may be empty."""
        ...

    def compared(self) -> dict[str, float]:
        """The figures that runs are compared by; the first one says which run is best."""
        ...

    def to_dict(self) -> Json: ...


@dataclass(frozen=True)
class Question(Generic[Content]):
    """A further question that a task answers over the API: alternatives of a word, the calculation of a weight, ..."""

    name: str  # /api/NAME
    summary: str
    takes: type[Config]  # its fields beside `run` and those of the input
    answer: Callable[[Example[Content], Any], Json]
    example: Mapping[str, Any] = field(default_factory=dict)  # the fields of `takes` in a request that works, for /docs


@dataclass(frozen=True)
class Stream(Generic[Content]):
    """The answer told while it is being made, a message at a time. `tell` raises to stop it when nobody listens."""

    summary: str
    takes: type[Config]
    answer: Callable[[Example[Content], Any, Callable[[Json], None]], None]


@dataclass(frozen=True)
class Export:
    """How a run is written for another engine."""

    summary: str
    takes: type[Config]
    write: Callable[[Path, Any], str]  # into a new directory; returns what to say about it


@dataclass(frozen=True)
class Probable:
    """How probable a given output is."""

    texts: Mapping[str, str]  # what was given, by its role: source, target
    log_prob: float
    tokens: int  # with the end

    def to_dict(self) -> Json:
        return {**self.texts, "log_prob": self.log_prob, "tokens": self.tokens}


@dataclass(frozen=True)
class Scorer:
    """How `saccade score` reads files and scores what is in them."""

    files: str  # what the files must be, for messages
    read: Callable[[Sequence[Path]], Sequence[Any]]
    score: Callable[[Sequence[Any]], Sequence[Probable]]


@dataclass(frozen=True)
class Costs:
    """What a prediction and an update cost beyond parameters and minutes, by the name of the cost."""

    prediction: Mapping[str, float] = field(default_factory=dict)
    update: Mapping[str, float] = field(default_factory=dict)


# Training


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
    rates: Mapping[nn.Parameter, float] = field(
        default_factory=dict
    )  # of parameters that learn at another rate: times the rate


@dataclass(frozen=True)
class Validation:
    """`score` decides which checkpoint is best: higher is better. `files` are written to RUN/samples/STEP-NAME: bytes, or a function that
    writes to the path it gets, whose ending is that of the name."""

    metrics: Mapping[str, float]
    score: float
    samples: Sequence[str] = ()
    files: Mapping[str, bytes | Callable[[Path], None]] = field(default_factory=dict)


class Trainer(Protocol):
    """What `fit` may use."""

    @property
    def directory(self) -> Path: ...
    @property
    def leads(self) -> bool:
        """Whether this process writes files: of several, one does."""
        ...

    def say(self, sentence: str) -> None: ...
    def loop(self, task: "Trained[Any, Any]") -> None: ...
    def keep(self, model: nn.Module) -> None:
        """Writes the weights of a model that was fitted without the loop."""
        ...


class Weights(Protocol):
    """The weights that were saved in a run directory."""

    @property
    def directory(self) -> Path: ...
    def load_into(self, model: nn.Module) -> None: ...


# The task


class Task(Protocol[Content, Chosen]):
    costs_named: ClassVar[Sequence[str]] = ()  # the names in Costs
    recipe: Recipe  # with whatever the task chose from the data in place of "auto"
    unit: str  # what is counted: "tokens", "images"

    @classmethod
    def prepare(cls, recipe: Recipe, directory: Path, say: Say) -> "Task[Content, Chosen]":
        """A new run: reads the data and leaves in the directory what the task learned from them."""
        ...

    @classmethod
    def reopen(cls, recipe: Recipe, directory: Path) -> "Task[Content, Chosen]":
        """The task of a run that exists, its weights not read yet."""
        ...

    @classmethod
    def adopt(cls, directory: Path) -> "Task[Content, Chosen] | None":
        """The task of a model in another library's format, ready to use; None where it is none that this task knows."""
        return None

    @classmethod
    def options(cls, recipe: Recipe) -> type[Options]:
        """What may be asked of a run of this recipe; command line, API and docs are derived from it."""
        ...

    @property
    def input(self) -> Input[Content]: ...

    @property
    def attends(self) -> bool:
        """Whether there is attention to look at."""
        ...

    def fit(self, trainer: Trainer) -> None:
        """Learns from the data that `prepare` left; whatever was learned must be in `trainer.directory` afterwards."""
        ...

    def restore(self, weights: Weights) -> None:
        """Takes what `fit` left in `weights.directory`."""
        ...

    def answers(self, examples: Sequence[Example[Content]], options: Chosen) -> Iterator[Answer]:
        """In the order of the examples, as they are found."""
        ...

    def evaluate(self, split: SplitName, options: Chosen) -> Scores: ...

    def look(self, example: Example[Content], options: Chosen) -> View: ...

    def held_out(self, split: SplitName) -> Sequence[Example[Content]]: ...

    # What not every task has

    def network(self) -> nn.Module:
        raise UserError(f"a run of the task {self.recipe.task} with this model has no network")

    def costs(self) -> Costs:
        return Costs()

    def questions(self) -> Sequence[Question[Content]]:
        return ()

    def stream(self) -> Stream[Content] | None:
        return None

    def parts(self, example: Example[Content], options: Chosen) -> Iterator[str] | None:
        """The answer in parts, as they are made, for whoever wants to see it grow; None where it comes whole."""
        return None

    def notes(self, examples: Sequence[Example[Content]], options: Chosen) -> Sequence[str]:
        """What people should know before they get the answers, a sentence each."""
        return ()

    def scorer(self) -> Scorer | None:
        return None

    def exports(self) -> Mapping[str, Export]:
        """By the name of the engine."""
        return {}


class Trained(Task[Content, Chosen], Protocol[Content, Chosen]):
    """What the loop needs beyond that."""

    model: nn.Module

    def fit(self, trainer: Trainer) -> None:
        trainer.loop(self)

    def restore(self, weights: Weights) -> None:
        weights.load_into(self.model)

    def network(self) -> nn.Module:
        return self.model

    def steps(self) -> Sequence[Step]: ...

    def epoch(self, number: int, rank: int, world: int) -> Sequence[Work]:
        """The work of an epoch in order, the same for the same seed; each process gets its share of every batch."""
        ...

    def batch(self, work: Work) -> Any | None:
        """The batch itself; None where this process has no share of it."""
        ...

    def validate(self) -> Validation: ...

    def describe(self, work: Work) -> str:
        """A batch in words, for an error message."""
        ...


# A task whose content and options only it knows: whoever holds one passes back to it what came from it.
AnyTask = Task[Any, Any]
AnyTrained = Trained[Any, Any]


def device() -> torch.device:
    """The GPU of this process if there is one (torchrun gives each process its own), else the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


def trainable(modules: Iterable[nn.Module]) -> list[nn.Parameter]:
    return [parameter for module in modules for parameter in module.parameters() if parameter.requires_grad]


def build_model(recipe: Recipe, shapes: Any, where: torch.device) -> nn.Module:
    """The recipe's model with weights that depend on train.seed alone; one that cannot be held is refused before it takes memory."""

    def build() -> nn.Module:
        model: nn.Module = recipe.model_module.build(recipe.model, shapes)
        return model

    check_sketch(build)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.train.seed)
        model = build()
    return model.to(where)
