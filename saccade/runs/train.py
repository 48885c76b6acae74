"""From a recipe to a trained run directory: new, or gone on with."""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch

from saccade.attention.routes import has_compiled_kernels
from saccade.config import recipe as configs
from saccade.config.files import find_recipe
from saccade.config.recipe import Recipe
from saccade.errors import ConfigError, UserError
from saccade.files import write_text
from saccade.tasks.task import Task
from saccade.training.checkpoint import Progress, RunDirectory
from saccade.training.config import TrainConfig
from saccade.training.loop import Interrupted, Training
from saccade.training.reporter import Reporter
from saccade.training.world import World

_IN_USE = "{} is being trained by another process: wait until it ends or stop it, or choose another place with --out"
_HOLDS_A_RUN = "{} holds a run already: go on with it by --resume, or choose another place with --out"


def train(
    recipe: str | Path,
    changes: Sequence[str] = (),
    out: Path | None = None,
    resume: bool = False,
    how_to_go_on: str | None = None,
) -> Path:
    """Trains `recipe` into the directory `out` (runs/RECIPE unless given). An existing run is only ever gone on with, by `resume`.

    `how_to_go_on` is said to somebody who stops it; by default the command with --resume.
    """
    world = World.join()
    if resume and out is None and RunDirectory(Path(recipe)).config.exists():
        out = Path(recipe)  # a run may be named by itself
    directory = RunDirectory(out or Path("runs") / Path(recipe).stem)
    reporter = Reporter(quiet=not world.leads)
    if world.from_leader(float(world.leads and directory.is_in_use())):
        raise ConfigError(_IN_USE.format(directory.path))
    exists = bool(world.from_leader(float(directory.config.exists())))
    if exists and not resume:
        raise ConfigError(_HOLDS_A_RUN.format(directory.path))
    if resume and not exists:
        place = recipe if out is None and Path(recipe).name != str(recipe) else directory.path
        raise ConfigError(f"{place} holds no run to go on with: check the name, or start it without --resume")
    if directory.path.is_file():
        raise ConfigError(f"{directory.path} is a file: choose a new directory with --out")
    if exists:
        _require_its_recipe(recipe, directory)
    if not exists and world.from_leader(float(directory.is_foreign())):
        raise ConfigError(
            f"{directory.path} holds files that no training wrote: choose an empty or a new directory with --out"
        )
    loaded = _agreed(changes, directory) if exists else configs.load(recipe, changes)
    how = how_to_go_on or f"saccade train {shlex.quote(str(directory.path))} --resume"
    with _alone(directory, world, new=not exists):
        if exists and changes and world.leads:
            write_text(directory.config, loaded.to_yaml())
        if loaded.train.threads is not None:
            torch.set_num_threads(loaded.train.threads)
        try:
            task = open_task(loaded, directory, reporter, world, new=not exists)
            training = Training(task, loaded.train, directory, reporter, world)
            if exists and training.resume():
                reporter.say(f"going on from step {training.progress.step} of {directory.path}")
            _announce(task, training, reporter, may_go_on=how_to_go_on is None)
            training.run()
        except Interrupted:
            reporter.say(f"stopped at step {training.progress.step} and saved; go on with: {how}")
            raise KeyboardInterrupt from None
        except KeyboardInterrupt:
            if directory.config.exists():
                reporter.say(f"stopped before training began; go on with: {how}")
            raise
    _say_what_was_short(training.progress, loaded.train, reporter)
    reporter.say(
        f"done: step {training.progress.step}, best at step {training.progress.best_step}; the run is {directory.path}"
    )
    return directory.path


@contextmanager
def _alone(directory: RunDirectory, world: World, new: bool) -> Iterator[None]:
    """One training at a time writes into a run directory; the leader holds it for all processes of its own."""
    with ExitStack() as stack:
        free = True
        with world.leader_first():
            if world.leads:
                free = stack.enter_context(directory.made_and_held())
        if not world.from_leader(float(free)):
            raise ConfigError(_IN_USE.format(directory.path))
        if new and world.from_leader(float(directory.config.exists())):
            raise ConfigError(_HOLDS_A_RUN.format(directory.path))  # that other one has just ended
        yield


def _say_what_was_short(progress: Progress, config: TrainConfig, reporter: Reporter) -> None:
    """What the training had too few steps for."""
    if 0 < progress.step < 2 * config.warmup_steps:
        rose = (
            "was still rising at the end" if progress.step <= config.warmup_steps else "rose for most of the training"
        )
        reporter.say(
            f"the rate {rose}: train.warmup_steps is {config.warmup_steps:,} of {progress.step:,} steps; lower it, or train for longer"
        )
    if progress.epoch < config.dropout_epochs:
        reporter.say(
            f"dropout was still rising at the end: {progress.epoch:,} of the {config.dropout_epochs:,} epochs of "
            "train.dropout_epochs are over, so few repetitions need little of it"
        )


def open_task(recipe: Recipe, directory: RunDirectory, reporter: Reporter, world: World, new: bool) -> Task:
    """The leader prepares a new run; config.yaml comes last, so that a directory with one is complete.

    It holds what the task chose from the data too, so everybody else reads it from there.
    """
    if not new:
        return _reopened(recipe, directory)
    with world.leader_first():
        if world.leads:
            directory.begin()
            try:
                prepared: Task = task_class(recipe).prepare(recipe, directory.path, reporter.say)
                directory.require_it_is_whole()
            except (UserError, KeyboardInterrupt) as error:
                directory.undo_begin()
                if isinstance(error, KeyboardInterrupt):
                    reporter.say("stopped before the first step: nothing is kept, start it again by the same command")
                raise
            write_text(directory.config, prepared.recipe.to_yaml())
            directory.is_ready()
    return prepared if world.leads else _reopened(recipe, directory)


def _reopened(recipe: Recipe, directory: RunDirectory) -> Task:
    return task_class(recipe).reopen(configs.load(directory.config, check_files=False), directory.path)


def task_class(recipe: Recipe) -> type[Task]:
    """The one class of the task's module that is a task."""
    module = recipe.task_module
    return next(
        value
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__ and hasattr(value, "objectives")
    )


def _require_its_recipe(recipe: str | Path, directory: RunDirectory) -> None:
    """Whoever names another shipped recipe than the run's has the wrong run, or the wrong recipe."""
    if Path(recipe) != directory.path:
        find_recipe(recipe)  # a name that stands for nothing is a slip
    descriptions = {description: name for name, description in configs.recipes()}
    own = configs.load(directory.config, check_files=False).description
    given = next((description for description, name in descriptions.items() if name == str(recipe)), own)
    if own in descriptions and given != own:
        raise ConfigError(
            f"{directory.path} is a run of {descriptions[own]} and {recipe} was given: go on with it by "
            f"`saccade train {descriptions[own]} --out {directory.path} --resume`, or start {recipe} in another place"
        )


def _agreed(changes: Sequence[str], directory: RunDirectory) -> Recipe:
    """The run's own recipe. What decides the weights' shapes and the order of the data stays; other settings may change."""
    free, fixed = ("train.", "decode."), ("train.seed", "train.optimizer")
    before = configs.load(directory.config, check_files=False)
    for change in changes:
        if not change.startswith(free) or change.startswith(fixed):
            changed = configs.load(directory.config, [change], check_files=False)
            if changed.to_dict() != before.to_dict():  # what the run was started with may be said again
                raise ConfigError(
                    f"--set {change} would change a run that has begun: only train.* (but neither seed nor optimizer) and "
                    "decode.* can be, or start a new one"
                )
    return configs.load(directory.config, changes, check_files=False)


def _announce(task: Task, training: Training, reporter: Reporter, may_go_on: bool) -> None:
    if training.progress.finished:
        further = f"; to train further: {_further(training)}" if may_go_on else ""
        reporter.say(f"this run is finished{further}")
        return
    count = sum(parameter.numel() for parameter in task.model.parameters())
    dtype = str(training.dtype).removeprefix("torch.")
    threads = torch.get_num_threads()
    where = f"{threads} thread{'s' if threads > 1 else ''} on {training.device}"
    if training.device.type == "cpu":
        where += f" with{'' if has_compiled_kernels() else 'out'} compiled kernels"
    reporter.say(f"{count:,} parameters, {dtype}, {where}")


def _further(training: Training) -> str:
    """The command that takes what ended the training away."""
    config, progress = training.config, training.progress
    changes = []
    if progress.step >= config.steps:
        changes.append(f"steps={2 * config.steps}")
    if config.minutes is not None and progress.seconds >= 60 * config.minutes:
        changes.append(f"minutes={2 * config.minutes:g}")
    if config.patience is not None and progress.validations_since_best >= config.patience:
        changes.append("patience=null")
    path = shlex.quote(str(training.directory.path))
    return " ".join([f"saccade train {path} --resume", *(f"--set train.{change}" for change in changes)])


def check_is_run(path: Path) -> RunDirectory:
    directory = RunDirectory(path)
    if not directory.config.exists():
        what = "is not there" if not path.exists() else "is not a run: it has no config.yaml"
        if path.is_file():
            what = "is a file"
        raise UserError(
            f"{path} {what}; give the directory that `saccade train ... --out DIRECTORY` wrote, "
            "or that of a ViT or Swin in Hugging Face's format"
        )
    return directory
