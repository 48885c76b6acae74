"""A recipe is checked whole, and every mistake is told in one sentence: the place, the value, what is allowed, what was meant."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pydantic
import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from saccade.config import files as recipe_files
from saccade.config.recipe import Config, Recipe, find_recipe, load, recipes
from saccade.errors import ConfigError

TASK = """
from typing import ClassVar, Literal
from pydantic import Field
from saccade.config.recipe import Config as Base, ExistingFile, ExistingFolder

class DataConfig(Base):
    train: ExistingFile
    images: ExistingFolder | None = None
    lengths: tuple[int, ...] = (10, 20)
    crop: tuple[float, float] | None = None
    note: str = ""

class DecodeConfig(Base):
    beam: int = Field(4, ge=1, le=100)
    search: Literal["beam", "greedy"] = "beam"
    max_length: int = 200

class Config(Base):
    model_kind: ClassVar[str] = "text to text"
    data: DataConfig
    decode: DecodeConfig = DecodeConfig()
"""
MODEL = """
from typing import ClassVar, Literal
from pydantic import Field, model_validator
from saccade.config.recipe import Config as Base

class Config(Base):
    serves: ClassVar[tuple[str, ...]] = ("text to text",)
    hidden: int = Field(64, ge=1)
    heads: int = Field(4, ge=1)
    dropout: float = Field(0.1, ge=0, lt=1)
    score: Literal["additive", "dot"] = "additive"
    tied: bool = False

    @model_validator(mode="after")
    def _heads_divide(self):
        if self.hidden % self.heads:
            raise ValueError(f"{self.heads} heads do not divide {self.hidden}")
        return self
"""
OTHER_MODEL = """
from typing import ClassVar
from saccade.config.recipe import Config as Base

class Config(Base):
    serves: ClassVar[tuple[str, ...]] = ("image to class",)
    patch: int = 4
"""
TRAIN = """
from pydantic import Field
from saccade.config.recipe import Config

class TrainConfig(Config):
    steps: int = Field(1000, ge=1)
    rate: float = Field(1e-3, gt=0)
"""
RECIPE = """\
description: Reads one language and writes another.
task: translation
data:
  train: train.txt
model:
  name: seq2seq
  hidden: 32
train:
  rate: 1e-4
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A package with one task, a model that fits it and one that does not, as saccade itself is laid out."""
    name = "toy_attention_package"
    root = tmp_path_factory.mktemp("site")
    files = {
        "tasks/translation/task.py": TASK,
        "tasks/parts.py": "from saccade.config.recipe import Config",
        "models/parts.py": "",
        "models/seq2seq.py": MODEL,
        "models/patches.py": OTHER_MODEL,
        "training/config.py": TRAIN,
    }
    for path in ["", "tasks/", "tasks/translation/", "models/", "training/"]:
        (root / name / path).mkdir()
        (root / name / path / "__init__.py").touch()
    for path, text in files.items():
        (root / name / path).write_text(text)
    sys.path.insert(0, str(root))
    yield name
    sys.path.remove(str(root))
    for module in [module for module in sys.modules if module.split(".")[0] == name]:
        del sys.modules[module]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the command runs: a recipe and its data."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.txt").write_text("a\tb\n")
    (tmp_path / "toy.yaml").write_text(RECIPE)
    return tmp_path


@pytest.fixture
def loaded(package: str, folder: Path) -> Callable[..., Recipe]:
    return lambda *overrides, **options: load("toy.yaml", overrides, package=package, **options)


@pytest.fixture
def told(package: str, folder: Path) -> Callable[..., str]:
    """What a person is told about a wrong recipe or override."""

    def message(*overrides: str, text: str | bytes | None = None, recipe: str | Path = "toy.yaml") -> str:
        if text is not None:
            (folder / "toy.yaml").write_bytes(text.encode() if isinstance(text, str) else text)
        with pytest.raises(ConfigError) as caught:
            load(recipe, overrides, package=package)
        assert caught.value.exit_code == 2
        return str(caught.value)

    return message


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


def test_environment_variables_are_filled_in(loaded: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOY_DATA", str(folder))
    assert loaded("data.train=${TOY_DATA}/train.txt").data.train == folder / "train.txt"
    assert loaded("data.note=$${TOY_DATA} $HOME ${}").data.note == "${TOY_DATA} $HOME ${}"


def test_the_home_folder_is_filled_in(loaded: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder))
    assert loaded("data.train=~/train.txt").data.train == folder / "train.txt"


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
def test_a_mistake_is_told_in_one_sentence(told: Any, name: str) -> None:
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
def test_a_broken_file_is_told_in_one_sentence(told: Any, name: str) -> None:
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


def test_several_mistakes_are_told_together_one_per_line(told: Any) -> None:
    first, *rest = told("train.steps=0", "model.hiden=3", "decode.beam=no").split("\n")
    assert first == "toy.yaml has 3 mistakes:"
    assert [line.split(" =")[0] for line in rest] == ["  model.hiden", "  train.steps", "  decode.beam"]


def test_a_missing_recipe_is_told_with_the_nearest_name(
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


def test_recipes_are_listed_with_their_descriptions(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "bare.yaml").write_text("task: translation\n")
    (folder / "folded.yaml").write_text("description: >\n  Two\n  lines.\n")
    monkeypatch.setattr(recipe_files, "FOLDER", folder)
    assert recipes() == [
        ("bare", ""),
        ("folded", "Two lines."),
        ("toy", "Reads one language and writes another."),
    ]


@pytest.mark.parametrize("path", sorted(recipe_files.FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_recipe_in_the_package_says_what_it_is_and_names_a_task(path: Path) -> None:
    values = yaml.safe_load(path.read_text())
    assert values["description"].strip()
    assert "\n" not in values["description"].strip()
    assert (recipe_files.FOLDER.parent / "tasks" / values["task"] / "task.py").is_file()
    assert (recipe_files.FOLDER.parent / "models" / f"{values['model']['name']}.py").is_file()


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.sampled_from(["${X}", "yes", "1e3", "seq2seq"])
)
values = st.recursive(
    scalars | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(scalars, inner, max_size=3),
    max_leaves=6,
)
places = st.sampled_from(
    [
        *("task", "description", "new"),
        *("data", "data.train", "data.images", "data.lengths", "data.crop", "data.note", "data.new"),
        *("model", "model.name", "model.hidden", "model.hidden.new", "model.dropout", "model.score", "model.tied"),
        *("train", "train.rate", "decode.beam"),
    ]
)
fast = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def loads_or_tells(**arguments: Any) -> Recipe | None:
    try:
        return load(**arguments)
    except ConfigError as error:
        str(error).encode(errors="backslashreplace")
        return None


@fast
@given(place=places, value=values)
def test_any_value_at_any_place_loads_or_is_told(package: str, folder: Path, place: str, value: Any) -> None:
    whole = yaml.safe_load(RECIPE)
    section = whole
    *above, name = place.split(".")
    for part in above:
        section[part] = section = section[part] if isinstance(section.get(part), dict) else {}
    section[name] = value
    (folder / "any.yaml").write_text(yaml.safe_dump(whole, allow_unicode=True), encoding="utf-8", errors="replace")
    loads_or_tells(recipe="any.yaml", package=package)


@fast
@given(content=st.binary() | st.text().map(lambda text: text.encode(errors="replace")))
def test_any_file_at_all_loads_or_is_told(package: str, folder: Path, content: bytes) -> None:
    (folder / "any.yaml").write_bytes(content)
    loads_or_tells(recipe="any.yaml", package=package)


@fast
@example(name="~\0")
@given(name=st.text())
def test_any_name_of_a_recipe_loads_or_is_told(package: str, folder: Path, name: str) -> None:
    loads_or_tells(recipe=name, package=package)


@fast
@given(place=places | st.text(), text=st.text() | values.map(str))
def test_any_override_loads_or_is_told(package: str, folder: Path, place: str, text: str) -> None:
    loads_or_tells(recipe="toy.yaml", overrides=[f"{place}={text}", text], package=package)
    loads_or_tells(recipe="toy.yaml", overrides=[f"{place}={text}"], package=package)


@fast
@given(
    note=st.text()
    | st.text("a \n\r\x85\u2028:#'\"")
    | st.from_regex(r"[$]{0,3}\{[A-Z]+\}|[-+]?[0-9._e]+|yes|no|~|null|- a|a: b"),
    lengths=st.lists(st.integers(), max_size=4),
    rate=st.floats(min_value=0, exclude_min=True, allow_infinity=False),
    dropout=st.floats(0, 1, exclude_max=True),
)
def test_any_recipe_reads_back_equal(
    package: str, folder: Path, note: str, lengths: list[int], rate: float, dropout: float
) -> None:
    recipe = load("toy.yaml", package=package)
    changed = recipe.model_copy(
        update={
            "data": recipe.data.model_copy(update={"note": note, "lengths": tuple(lengths)}),
            "train": recipe.train.model_copy(update={"rate": rate}),
            "model": recipe.model.model_copy(update={"dropout": dropout}),
        }
    )
    (folder / "written.yaml").write_text(changed.to_yaml(), encoding="utf-8", newline="")
    assert load("written.yaml", package=package) == changed


def test_only_what_is_a_file_is_proposed_for_a_file_and_a_folder_for_a_folder(told: Any, folder: Path) -> None:
    (folder / "notes.en").mkdir()
    assert "did you mean" not in told(f"data.train={folder}/note.en")
    assert told(f"data.images={folder}/note.en").endswith(f"did you mean {folder}/notes.en?")
    (folder / "notes.en").rmdir()
    (folder / "notes.en").touch()
    assert told(f"data.train={folder}/note.en").endswith(f"did you mean {folder}/notes.en?")
    assert "did you mean" not in told(f"data.images={folder}/note.en")
