"""A recipe becomes typed, frozen configs, and is written out so that it reads back equal."""

import importlib
from pathlib import Path
from typing import Any

import pydantic
import pytest
import yaml

from saccade.config import files as recipe_files
from saccade.config.recipe import Config, load, recipes

from .recipes import RECIPE


def test_a_recipe_becomes_typed_sections(loaded: Any, package: str, folder: Path) -> None:
    recipe = loaded()
    assert (recipe.task, recipe.description) == ("translation", "Reads one language and writes another.")
    assert recipe.model == importlib.import_module(f"{package}.models.seq2seq").Config(hidden=32)
    assert recipe.train.rate == 1e-4
    assert recipe.data.train == folder / "train.txt"
    assert recipe.data.lengths == (10, 20)
    assert recipe.decode.beam == 4
    assert isinstance(recipe, importlib.import_module(f"{package}.tasks.translation.task").Config)
    assert recipe.model_module.__name__ == f"{package}.models.seq2seq"
    assert recipe.task_module.__name__ == f"{package}.tasks.translation.task"


def test_a_recipe_cannot_be_changed_after_loading(loaded: Any) -> None:
    recipe = loaded()
    with pytest.raises(pydantic.ValidationError):
        recipe.task = "other"
    with pytest.raises(pydantic.ValidationError):
        recipe.model.hidden = 8
    assert hash(recipe) == hash(loaded())


def test_a_default_outside_its_own_range_is_refused() -> None:
    class Wrong(Config):
        steps: int = pydantic.Field(default=0, ge=1)

    with pytest.raises(pydantic.ValidationError):
        Wrong()


def test_what_is_written_reads_back_equal(loaded: Any, package: str, folder: Path) -> None:
    recipe = loaded("data.lengths=[1, 2]", "data.note='1e3'", "data.crop=[0.5, 1]")
    (folder / "written.yaml").write_text(recipe.to_yaml())
    again = load("written.yaml", package=package)
    assert again == recipe
    assert again.to_yaml() == recipe.to_yaml()
    assert list(recipe.to_dict()) == ["description", "task", "data", "model", "start", "train", "decode"]
    assert list(recipe.to_dict()["model"]) == ["name", "hidden", "heads", "dropout", "score", "tied"]


def test_a_stored_recipe_loads_where_its_data_is_gone(loaded: Any, folder: Path) -> None:
    (folder / "train.txt").unlink()
    assert loaded(check_files=False).data.train == folder / "train.txt"


def test_an_override_is_read_as_yaml_and_the_last_one_wins(loaded: Any) -> None:
    recipe = loaded("model.hidden=8", "model.hidden=16", "train.rate=2e-5", "data.lengths=[5, 6, 7]", "model.tied=true")
    assert (recipe.model.hidden, recipe.train.rate, recipe.data.lengths) == (16, 2e-5, (5, 6, 7))
    assert recipe.model.tied is True


@pytest.mark.parametrize("text", ["a: b", "- a", "no", "12:30", "007", "2024-01-01", "x=y=z", "é"])
def test_an_override_that_is_plain_text_stays_text(loaded: Any, text: str) -> None:
    assert loaded(f"data.note={text}").data.note == text


@pytest.mark.parametrize(("text", "rate"), [("1e-3", 1e-3), ("1E-3", 1e-3), ("1.e-3", 1e-3), (".5", 0.5), ("3", 3.0)])
def test_numbers_are_numbers_however_people_write_them(loaded: Any, text: str, rate: float) -> None:
    assert loaded(f"train.rate={text}").train.rate == rate


def test_thousands_may_be_separated(loaded: Any) -> None:
    assert loaded("train.steps=100_000").train.steps == 100_000


def test_a_section_without_settings_has_its_defaults(loaded: Any, folder: Path) -> None:
    (folder / "toy.yaml").write_text("task: translation\ndata: {train: train.txt}\nmodel: {name: seq2seq}\ntrain:\n")
    assert loaded().train.steps == 1000


def test_environment_variables_are_expanded_in_paths_and_nowhere_else(
    loaded: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_DATA", str(folder))
    assert loaded("data.train=${TOY_DATA}/train.txt").data.train == folder / "train.txt"
    assert loaded("data.note=${TOY_DATA}", "description=${TOY_DATA}").data.note == "${TOY_DATA}"
    (folder / "${TOY_DATA}").touch()
    literal = loaded("data.train=$${TOY_DATA}")
    assert literal.data.train == folder / "${TOY_DATA}"
    (folder / "toy.yaml").write_text(literal.to_yaml())
    assert loaded() == literal


def test_a_stored_config_never_reads_the_environment(
    loaded: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_SECRET", "secret")
    (folder / "toy.yaml").write_text(
        RECIPE.replace("train.txt", "${TOY_SECRET}/a").replace("Reads", "${TOY_SECRET} reads")
    )
    stored = loaded("data.images=${TOY_SECRET}", check_files=False)
    assert stored.data.train == folder / "${TOY_SECRET}" / "a"
    assert stored.description.startswith("${TOY_SECRET}")
    assert stored.data.images == folder / "secret"  # the command line is the person's own


def test_the_home_folder_is_expanded(loaded: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder))
    assert loaded("data.train=~/train.txt").data.train == folder / "train.txt"


def test_recipes_are_listed_with_their_descriptions(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "bare.yaml").write_text("task: translation\n")
    (folder / "folded.yaml").write_text("description: >\n  Two\n  lines.\n")
    monkeypatch.setattr(recipe_files, "FOLDER", folder)
    assert recipes() == [
        ("bare", ""),
        ("folded", "Two lines."),
        ("toy", "Reads one language and writes another."),
    ]


def test_every_recipe_in_the_package_has_a_one_line_description_a_task_and_a_model() -> None:
    saccade = recipe_files.FOLDER.parent
    for path in recipe_files.FOLDER.glob("*.yaml"):
        values = yaml.safe_load(path.read_text())
        assert len(values["description"].strip().splitlines()) == 1, path
        assert (saccade / "tasks" / values["task"] / "task.py").is_file(), path
        assert (saccade / "models" / f"{values['model']['name']}.py").is_file(), path
