"""Every mistake in a recipe is reported in one sentence: the place, the value, what is allowed, what was meant."""

from pathlib import Path
from typing import Any

import pytest

from saccade.config import files as recipe_files
from saccade.config.recipe import find_recipe

from .recipes import RECIPE

WRONG = {
    "an unknown setting": ("model.hiden=3", "model.hiden = 3 (--set) is not a setting: did you mean model.hidden?"),
    "an unknown section": ("modle.hidden=3", "modle.hidden = 3 (--set) is not a setting: did you mean model.hidden?"),
    "a forgotten section": ("steps=3", "steps = 3 (--set) is not a setting: did you mean train.steps?"),
    "a wrong section": ("train.beam=3", "did you mean decode.beam? (train has steps and rate)"),
    "two misspelt words": ("modle.hiden=3", "modle.hiden = 3 (--set) is not a setting: did you mean model.hidden?"),
    "no likeness": ("train.zzz=3", "train.zzz = 3 (--set) is not a setting: train has steps and rate"),
    "a name of an earlier version": ("decode.longest=9", "decode.longest (--set) is now called decode.max_length"),
    "an earlier name that fits nothing here": ("data.batch=9", "data.batch = 9 (--set) is not a setting"),
    "text for a number": ("model.hidden=many", 'model.hidden = "many" (--set) must be a whole number, at least 1'),
    "a fraction for a whole number": (
        "train.steps=3.7",
        "train.steps = 3.7 (--set) must be a whole number, at least 1",
    ),
    "a float for a whole number": ("train.steps=1e3", "must be a whole number, at least 1: did you mean 1000?"),
    "yes for true": ("model.tied=yes", 'model.tied = "yes" (--set) must be true or false'),
    "a number for true": ("model.tied=1", "model.tied = 1 (--set) must be true or false"),
    "true for a number": ("train.rate=true", "train.rate = true (--set) must be a number, above 0"),
    "a number for text": ("data.note=3", "data.note = 3 (--set) must be text"),
    "nothing": ("model.hidden=", "model.hidden = null (--set) must be a whole number, at least 1"),
    "not a number": ("train.rate=.nan", "train.rate = NaN (--set) must be a number, above 0"),
    "too small": ("model.hidden=0", "model.hidden = 0 (--set) must be a whole number, at least 1"),
    "out of range": ("model.dropout=1", "model.dropout = 1 (--set) must be a number, at least 0 and below 1"),
    "an unknown choice": ("decode.search=greddy", "must be one of beam, greedy: did you mean greedy?"),
    "a wrong item": ("data.lengths=[1, x]", 'data.lengths.1 = "x" (--set) must be a whole number'),
    "not a list": ("data.lengths=3", "data.lengths = 3 (--set) must be a list, each a whole number"),
    "a short list": ("data.crop=[1]", "(--set) is missing: it must be a number"),
    "not a group": ("decode=[1, 2]", "decode = [1, 2] (--set) must be a group of settings (beam, search, max_length)"),
    "a setting of a value": ("model.hidden.x=3", 'model.hidden = {"x": 3} (--set) must be a whole number, at least 1'),
    "settings that clash": ("model.heads=3", "model (toy.yaml, line 5): 3 heads do not divide 32"),
    "a missing file": ("data.train=trian.txt", "train.txt?"),
    "a folder for a file": ("data.train=.", 'data.train = "." (--set): this is a folder: name a file in it'),
    "a file for a folder": ("data.images=train.txt", "this is a file: name the folder that it is in"),
    "a missing folder": ("data.images=none", "there is no folder"),
    "a name too long for a file": ("data.train=" + "x" * 300, "there is no file"),
    "an unset variable": ("data.train=${TOY_UNSET}/a", "needs the environment variable TOY_UNSET, which is not set"),
    "an unknown task": ("task=translatoin", 'task = "translatoin" (--set) is not a task: did you mean translation?'),
    "a task that is no name": ("task=[1]", "task = [1] (--set) is not a task: choose translation"),
    "a module that is no task": ("task=parts", 'task = "parts" (--set) is not a task: choose translation'),
    "a module that is no model": ("model.name=parts", "is not a model for the task translation: choose seq2seq"),
    "a task that is a path": ("task=..models.seq2seq", "is not a task"),
    "no task": ("task=", "task (--set) is missing: choose translation"),
    "an unknown model": ("model.name=seq2sec", "is not a model for the task translation: did you mean seq2seq?"),
    "a model for another task": ("model.name=patches", "is not a model for the task translation: choose seq2seq"),
    "no model": ("model=", "model.name (--set) is missing: choose seq2seq"),
    "a model that is no group": ("model=seq2seq", 'model = "seq2seq" (--set) must be a group of settings'),
    "an override without =": ("train.steps", '--set "train.steps" must be PLACE=VALUE'),
    "an override without a place": ("=3", '--set "=3" must be PLACE=VALUE'),
    "an override with a hole": ("train..steps=3", "must be PLACE=VALUE"),
    "an override that is not YAML": ("train.steps=[3", "--set train.steps=[3 is not valid YAML"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_reported_in_one_sentence(told: Any, name: str) -> None:
    override, expected = WRONG[name]
    message = told(override)
    assert expected in message
    assert "\n" not in message


BROKEN = {
    "empty": (b"", "toy.yaml is empty"),
    "only a comment": (b"# later\n", "toy.yaml is empty"),
    "a list": (b"- task\n", 'toy.yaml holds ["task"] but must hold `name: value` lines'),
    "bad UTF-8": (b"task: \xff\n", "toy.yaml is not UTF-8 text (byte 7)"),
    "a tab": (b"task: x\n\tdata: y\n", "toy.yaml is not valid YAML at line 2, column 1"),
    "two colons": (b"task: x: y\n", "toy.yaml is not valid YAML at line 1, column 8: mapping values are not allowed"),
    "given twice": (b"train:\n  steps: 1\n  rate: 2\n  steps: 3\n", "line 4, column 3: train.steps is given twice"),
    "a control character": (b"task: x\ndata: \x07\n", "toy.yaml is not valid YAML at line 2"),
    "a reference": (b"task: &a x\nnote: *a\n", "line 2, column 7: *a would be a reference"),
    "a tag": (b"task: !!python/object:os.system x\n", "line 1, column 7: the tag"),
    "a group as a name": (b"? [a]\n: b\n", "must be a plain word"),
    "a number that is none": (b"task: !!int x\n", '"x" is not a value of the type'),
    "far too many digits": (b"task: " + b"9" * 5000, "is not a value of the type"),
    "far too deep": (b"[" * 5000, "is nested more than 30 deep"),
    "half a character": (b'task: translation\ndata: "\\ud800"\nmodel: {name: seq2seq}\n', "not valid Unicode"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_reported_in_one_sentence(told: Any, name: str) -> None:
    text, expected = BROKEN[name]
    message = told(text=text)
    assert expected in message
    assert "\n" not in message


def test_a_mistake_in_a_file_has_its_line(told: Any) -> None:
    message = told(text=RECIPE.replace("hidden", "hiden"))
    assert message.startswith("model.hiden = 32 (toy.yaml, line 7) is not a setting: did you mean model.hidden?")
    assert told(text=RECIPE.replace("1e-4", "fast")).startswith('train.rate = "fast" (toy.yaml, line 9) must be')
    assert told(text=RECIPE.replace("  train: train.txt\n", "")) == (
        "data.train (toy.yaml, line 3) is missing: it must be the path of a file"
    )
    assert "data.train (toy.yaml) is missing" in told(text=RECIPE.replace("data:\n  train: train.txt\n", ""))


def test_several_mistakes_are_reported_together_one_per_line(told: Any) -> None:
    first, *rest = told("train.steps=0", "model.hiden=3", "decode.beam=no").split("\n")
    assert first == "toy.yaml has 3 mistakes:"
    assert [line.split(" =")[0] for line in rest] == ["  model.hiden", "  train.steps", "  decode.beam"]


def test_a_missing_recipe_is_reported_with_the_nearest_name(
    told: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = folder / "shipped"
    shipped.mkdir()
    (shipped / "captioning.yaml").write_text(RECIPE)
    monkeypatch.setattr(recipe_files, "FOLDER", shipped)
    assert told(recipe="captoining") == 'there is no recipe "captoining": did you mean captioning?'
    assert "`saccade recipes` lists" in told(recipe="zzz")
    assert told(recipe="captioning.yaml") == 'there is no recipe file "captioning.yaml": did you mean captioning?'
    assert told(recipe="tyo.yaml") == 'there is no recipe file "tyo.yaml": did you mean toy.yaml?'
    assert told(recipe="none/at/all.yaml") == 'there is no recipe file "none/at/all.yaml"'
    assert "is a folder, not a recipe: name a YAML file in it" in told(recipe="shipped")
    (shipped / "config.yaml").touch()
    assert "did you mean shipped/config.yaml?" in told(recipe="shipped")
    assert "there is no recipe" in told(recipe="a\0b")
    assert find_recipe("captioning") == shipped / "captioning.yaml"
    (shipped / "captioning.yaml").write_text(RECIPE.replace("1e-4", "0"))
    assert "(recipe captioning, line 9)" in told(recipe="captioning")


def test_files_are_proposed_for_files_and_folders_for_folders(told: Any, folder: Path) -> None:
    (folder / "notes.en").mkdir()
    assert "did you mean" not in told(f"data.train={folder}/note.en")
    assert told(f"data.images={folder}/note.en").endswith(f"did you mean {folder}/notes.en?")
    (folder / "notes.en").rmdir()
    (folder / "notes.en").touch()
    assert told(f"data.train={folder}/note.en").endswith(f"did you mean {folder}/notes.en?")
    assert "did you mean" not in told(f"data.images={folder}/note.en")
