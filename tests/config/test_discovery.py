"""A task or model outside the package is named by its dotted path; nothing in saccade/ changes for it."""

import sys
from pathlib import Path
from typing import Any

import pytest

from saccade.config.recipe import load

from .recipes import RECIPE

TASK = """
from typing import ClassVar
from saccade.config.recipe import Config as Base

class Config(Base):
    model_kind: ClassVar[str] = "counting"
"""
MODEL = """
from typing import ClassVar
from saccade.config.recipe import Config as Base

class Config(Base):
    serves: ClassVar[tuple[str, ...]] = ("counting",)
    width: int = 8
"""


@pytest.fixture
def elsewhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of somebody else's code on the search path."""
    (folder / "how_many").mkdir()
    (folder / "how_many" / "task.py").write_text(TASK)
    (folder / "how_many" / "tiny.py").write_text(MODEL)
    monkeypatch.syspath_prepend(str(folder))
    (folder / "count.yaml").write_text("task: how_many.task\nmodel: {name: how_many.tiny, width: 4}\n")
    yield folder
    for module in [module for module in sys.modules if module.split(".")[0] == "how_many"]:
        del sys.modules[module]


def test_a_dotted_name_is_imported_as_it_stands(elsewhere: Path) -> None:
    recipe = load("count.yaml")
    assert (recipe.task_module.__name__, recipe.model_module.__name__) == ("how_many.task", "how_many.tiny")
    (elsewhere / "again.yaml").write_text(recipe.to_yaml())
    assert load("again.yaml") == recipe
    assert recipe.to_dict()["model"] == {"name": "how_many.tiny", "width": 4}


WRONG = {
    "task=how_many.tsak": "cannot be imported (No module named 'how_many.tsak'): check the name",
    "task=nowhere.at.all": "cannot be imported (No module named 'nowhere')",
    "task=how_many.tiny": 'task = "how_many.tiny" (--set) is not a task: choose',
    "model.name=how_many.task": "is not a model for the task how_many.task",
    "model.name=transformer": "is not a model for the task how_many.task",
}


@pytest.mark.parametrize("override", WRONG)
def test_a_dotted_name_of_something_else_is_refused(elsewhere: Path, told: Any, override: str) -> None:
    assert WRONG[override] in told(override, recipe="count.yaml", package="saccade")


def test_a_run_directory_cannot_bring_its_own_code(elsewhere: Path, told: Any) -> None:
    run = elsewhere / "runs" / "strangers"
    run.mkdir(parents=True)
    (run / "task.py").write_text("raise SystemExit('executed')")
    (run / "config.yaml").write_text(RECIPE.replace("task: translation", "task: runs.strangers.task"))
    assert "is code inside the run directory, which is never executed" in told(recipe=run / "config.yaml")
