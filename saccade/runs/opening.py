"""From a directory to the task of the run in it."""

import shlex
import sys
from importlib import import_module
from pathlib import Path

from saccade import checksums
from saccade.config import recipe as configs
from saccade.config.recipe import Recipe
from saccade.errors import UserError
from saccade.layers.sketch import saved_shapes
from saccade.printable import visible
from saccade.tasks.task import AnyTask
from saccade.training.checkpoint import RunDirectory, SavedWeights, read_weights, shapes_of


def open_task(path: Path) -> AnyTask:
    """The task of a run of ours, or of a model in another library's format that a task of ours can adopt."""
    if RunDirectory(path).config.exists():
        _require_unchanged_config(path)
        recipe = stored_recipe(path)
        with saved_shapes(_shapes(path), str(path)):
            task = task_class(recipe).reopen(recipe, path)
        require_unchanged_files(path)
        task.restore(SavedWeights(path, _note))
        return task
    adopted = _adopted(path) if path.is_dir() else None
    if adopted is None:
        raise _no_run(path)
    return adopted


def stored_recipe(path: Path) -> Recipe:
    """The recipe of the run in a directory."""
    config = RunDirectory(path).config
    if not config.exists():
        raise _no_run(path)
    return configs.load(config, check_files=False)


def _shapes(path: Path) -> dict[str, tuple[int, ...]] | None:
    """Of the weights; None where the task was fitted without the loop. Weights that cannot be read are an error before a model is built."""
    shapes = shapes_of(path)
    if shapes is None and not RunDirectory(path).is_fitted():
        return {name: tuple(tensor.shape) for name, tensor in read_weights(path, _note).items()}
    return shapes


def require_unchanged_files(path: Path) -> None:
    """What the training was begun with must be what it left there: a flipped bit would give wrong answers without a word."""
    try:
        checksums.check(path)
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is damaged ({error}): copy the run again, whole") from None


def edits(path: Path) -> list[checksums.Edit]:
    """The settings of a run that somebody has changed in its config.yaml."""
    try:
        return checksums.edits(path)
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is damaged ({error}): copy the run again, whole") from None


def _require_unchanged_config(path: Path) -> None:
    changed = edits(path)
    if changed:
        raise UserError(
            f"{path / 'config.yaml'} was changed since the training wrote it ({', '.join(map(str, changed[:5]))}): put it back, or take "
            f"settings of train and decode over with `saccade train {shlex.quote(str(path))} --resume`"
        )


def task_class(recipe: Recipe) -> type[AnyTask]:
    task: type[AnyTask] = recipe.task_module.TASK
    return task


def _adopted(path: Path) -> AnyTask | None:
    for name in configs.task_names():
        kind: type[AnyTask] = import_module(f"saccade.tasks.{name}.task").TASK
        task = kind.adopt(path)
        if task is not None:
            return task
    return None


def _note(sentence: str) -> None:
    print(visible(sentence), file=sys.stderr)


def _no_run(path: Path) -> UserError:
    what = "does not exist" if not path.exists() else "is not a run: it has no config.yaml"
    if path.is_file():
        what = "is a file"
    return UserError(
        f"{path} {what}; give the directory that `saccade train ... --out DIRECTORY` wrote, "
        "or that of a ViT or Swin in Hugging Face's format"
    )
