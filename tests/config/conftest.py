"""A package laid out as saccade itself is, with one task and two models, and a recipe for it."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from saccade.config.recipe import Recipe, load
from saccade.errors import ConfigError

from .recipes import RECIPE

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
    """The message about a wrong recipe or override."""

    def message(
        *overrides: str, text: str | bytes | None = None, recipe: str | Path = "toy.yaml", package: str = package
    ) -> str:
        if text is not None:
            (folder / "toy.yaml").write_bytes(text.encode() if isinstance(text, str) else text)
        with pytest.raises(ConfigError) as caught:
            load(recipe, overrides, package=package)
        assert caught.value.exit_code == 2
        return str(caught.value)

    return message
