"""From a directory to the task of the run in it."""

import sys
from importlib import import_module
from pathlib import Path

from saccade.config import recipe as configs
from saccade.config.recipe import Recipe
from saccade.errors import UserError
from saccade.tasks.task import AnyTask
from saccade.training.checkpoint import RunDirectory, SavedWeights


def open_task(path: Path) -> AnyTask:
    """The task of a run of ours, or of a model in another library's format that a task of ours can adopt."""
    if RunDirectory(path).config.exists():
        recipe = stored_recipe(path)
        task = task_class(recipe).reopen(recipe, path)
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
    print(sentence, file=sys.stderr)


def _no_run(path: Path) -> UserError:
    what = "does not exist" if not path.exists() else "is not a run: it has no config.yaml"
    if path.is_file():
        what = "is a file"
    return UserError(
        f"{path} {what}; give the directory that `saccade train ... --out DIRECTORY` wrote, "
        "or that of a ViT or Swin in Hugging Face's format"
    )
