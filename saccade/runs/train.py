"""From a recipe to a trained run directory: new, or resumed."""

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

import torch

from saccade import checksums
from saccade.config import recipe as configs
from saccade.config.files import find_recipe
from saccade.config.recipe import Recipe
from saccade.errors import ConfigError, UserError
from saccade.files import write_text
from saccade.layers.sketch import saved_shapes
from saccade.runs.opening import edits, require_unchanged_files, task_class
from saccade.runs.starting import StartingWeights, following, starting_weights
from saccade.tasks.task import AnyTask
from saccade.training.checkpoint import RunDirectory, shapes_of
from saccade.training.interrupts import Interrupted
from saccade.training.reporter import Reporter
from saccade.training.trainer import Trainer
from saccade.training.world import World

_RESTARTS = "TORCHELASTIC_RESTART_COUNT"
_IN_USE = "{} is being trained by another process: wait until it ends or stop it, or choose another place with --out"
_HOLDS_A_RUN = "{} holds a run already: resume it with --resume, or choose another place with --out"
_IS_A_RUN = "{0} is a run: resume it with `saccade train {1} --resume`, or start another like it with `saccade train {1}/config.yaml`"


def train(
    recipe: str | Path,
    changes: Sequence[str] = (),
    out: Path | None = None,
    resume: bool = False,
    how_to_resume: str | None = None,
) -> Path:
    """Trains `recipe` into the directory `out` (runs/RECIPE unless given). An existing run is only changed by `resume`.

    `how_to_resume` is shown where the training is interrupted; by default the command with --resume.
    """
    world = World.join()
    if out is None and RunDirectory(Path(recipe)).config.exists():
        if not resume:
            raise ConfigError(_IS_A_RUN.format(recipe, shlex.quote(str(recipe))))
        out = Path(recipe)  # a run may be named by itself
    directory = RunDirectory(out or Path("runs") / Path(recipe).stem)
    reporter = Reporter(quiet=not world.leads)
    exists = _checked(recipe, out, directory, resume, world)
    loaded = _agreed(changes, directory) if exists else following(configs.load(recipe, changes), reporter.say)
    how = how_to_resume or f"saccade train {shlex.quote(str(directory.path))} --resume"
    with _alone(directory, world, new=not exists):
        if exists and directory.is_fitted():
            reporter.say(f"this run is finished: {directory.path} was fitted without training steps")
            return directory.path
        if exists:
            changed = edits(directory.path)
            if changed:
                reporter.say(f"config.yaml was changed since this run was last trained: {', '.join(map(str, changed))}")
            if (changes or changed) and world.leads:
                _write_config(directory, loaded)
        if loaded.train.threads is not None:
            torch.set_num_threads(loaded.train.threads)
        trainer = Trainer(loaded.train, directory, reporter, world, exists, names_commands=how_to_resume is None)
        try:
            open_task(loaded, directory, reporter, world, new=not exists).fit(trainer)
        except Interrupted:
            reporter.say(f"stopped at step {trainer.progress.step} and saved; resume with: {how}")
            raise KeyboardInterrupt from None
        except KeyboardInterrupt:
            if directory.config.exists():
                reporter.say(f"stopped before training began; resume with: {how}")
            raise
        if not trainer.has_looped:
            if world.leads:
                checksums.write(directory.path, directory.config.read_text(encoding="utf-8"))
                directory.mark_fitted()
            reporter.say(f"done: the run is {directory.path}")
    return directory.path


def _checked(recipe: str | Path, out: Path | None, directory: RunDirectory, resume: bool, world: World) -> bool:
    """Whether the directory holds a run; a mistake in what was asked for is an error."""
    if world.from_leader(float(world.leads and directory.is_in_use())):
        raise ConfigError(_IN_USE.format(directory.path))
    exists = bool(world.from_leader(float(directory.config.exists())))
    restarted = (
        _RESTARTS in os.environ
    )  # torchrun gives the same command again: whatever is there is resumed, else begun
    if exists and not resume and not restarted:
        raise ConfigError(_HOLDS_A_RUN.format(directory.path))
    if resume and not exists and not restarted:
        place = recipe if out is None and Path(recipe).name != str(recipe) else directory.path
        raise ConfigError(f"{place} holds no run to resume: check the name, or start it without --resume")
    if directory.path.is_file():
        raise ConfigError(f"{directory.path} is a file: choose a new directory with --out")
    if exists:
        _require_its_recipe(recipe, directory)
    if not exists and world.from_leader(float(directory.is_foreign())):
        raise ConfigError(
            f"{directory.path} holds files that no training wrote: choose an empty or a new directory with --out"
        )
    return exists


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


def open_task(recipe: Recipe, directory: RunDirectory, reporter: Reporter, world: World, new: bool) -> AnyTask:
    """The leader prepares a new run; config.yaml comes last, so that a directory with one is complete.

    It holds what the task chose from the data too, so everybody else reads it from there.
    """
    if not new:
        shapes = shapes_of(directory.path, of_a_state=True)
        with saved_shapes(shapes, str(directory.path)) if shapes is not None else nullcontext():
            task = task_class(recipe).reopen(recipe, directory.path)
        require_unchanged_files(directory.path)
        if world.leads and not directory.saved_steps():
            _start(task, starting_weights(recipe.start, reporter.say))
        return task
    with world.leader_first():
        if world.leads:
            directory.begin()
            try:
                weights = starting_weights(recipe.start, reporter.say)
                prepared: AnyTask = task_class(recipe).prepare(recipe, directory.path, reporter.say)
                _start(prepared, weights)
                directory.require_it_is_whole()
            except (UserError, KeyboardInterrupt) as error:
                directory.undo_begin()
                if isinstance(error, KeyboardInterrupt):
                    reporter.say("stopped before the first step: nothing is kept, start it again with the same command")
                raise
            text = prepared.recipe.to_yaml()
            checksums.write(directory.path, text)
            write_text(directory.config, text)
            directory.is_ready()
    return prepared if world.leads else _reopened(recipe, directory)


def _start(task: AnyTask, weights: StartingWeights | None) -> None:
    if weights is not None:
        task.restore(weights)


def _reopened(recipe: Recipe, directory: RunDirectory) -> AnyTask:
    return task_class(recipe).reopen(configs.load(directory.config, check_files=False), directory.path)


def _require_its_recipe(recipe: str | Path, directory: RunDirectory) -> None:
    """Whoever names another shipped recipe than the run's has the wrong run, or the wrong recipe."""
    if Path(recipe) != directory.path:
        find_recipe(recipe)  # a name that stands for nothing is a slip
    descriptions = {description: name for name, description in configs.recipes()}
    own = configs.load(directory.config, check_files=False).description
    named = next((description for description, name in descriptions.items() if name == str(recipe)), own)
    if own in descriptions and named != own:
        raise ConfigError(
            f"{directory.path} is a run of {descriptions[own]} and {recipe} was given: resume it with "
            f"`saccade train {descriptions[own]} --out {directory.path} --resume`, or start {recipe} in another place"
        )


def _may_change(setting: str) -> bool:
    return setting.startswith(("train.", "decode.")) and not setting.startswith(("train.seed", "train.optimizer"))


def _write_config(directory: RunDirectory, recipe: Recipe) -> None:
    text = recipe.to_yaml()
    write_text(directory.config, text)
    checksums.accept(directory.path, text)


def _agreed(changes: Sequence[str], directory: RunDirectory) -> Recipe:
    """The run's own recipe. What decides the weights' shapes and the order of the data stays; other settings may change."""
    before = configs.load(directory.config, check_files=False)
    fixed = [edit for edit in edits(directory.path) if not _may_change(edit.place)]
    if fixed:
        raise ConfigError(
            f"{directory.config} was changed since the run began ({', '.join(map(str, fixed[:5]))}), and only train.* (but neither seed "
            "nor optimizer) and decode.* can be: put it back, or start a new run"
        )
    for change in changes:
        if not _may_change(change):
            changed = configs.load(directory.config, [change], check_files=False)
            if changed.to_dict() != before.to_dict():  # what the run was started with may be said again
                raise ConfigError(
                    f"--set {change} would change a run that has begun: only train.* (but neither seed nor optimizer) and "
                    "decode.* can be, or start a new one"
                )
    return configs.load(directory.config, changes, check_files=False)
