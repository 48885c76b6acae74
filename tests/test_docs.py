"""What README.md and docs/ name exists: settings, commands and their options, recipes, make targets, files and headings."""

import importlib
import itertools
import pkgutil
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from pydantic import BaseModel

from saccade.cli import app, runs
from saccade.config import recipe as config
from saccade.config.files import recipes
from saccade.config.options import Options, options_for
from saccade.training.config import TrainConfig

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)|<img src=\"([^\"]+)\"")
SETTING = re.compile(
    r"--(?:set|vary)\s+[\"']?([\w.]+)=|`((?:data|model|train|decode|objective|augment|tuning)\.(?!zip)\w+)(?:=[^`]*)?`"
)
RECIPE = re.compile(
    r"(?<![\w./-])((?:cifar10|digits|flickr8k|mnist|imdb|multi30k|phrasebook|reviews|shapes|sst2|trec)-[a-z0-9-]*[a-z0-9])\b(?![\w./…-])"
)
PATH = re.compile(r"`((?:saccade|benchmarks|tests|docs)/[a-z0-9_/.-]+)`")  # whose own words are in lower case
CODE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
PLACEHOLDER = re.compile(r"[A-Z]+")  # RECIPE, RUN, FILE: whatever the reader puts there


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


every_page = pytest.mark.parametrize("page", PAGES, ids=named)


@every_page
def test_every_link_leads_to_a_file_and_a_heading(page):
    for link in (first or second for first, second in LINK.findall(_without_code(page))):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link} of {named(page)} leads nowhere"
        if anchor:
            assert anchor in _anchors(target), f"{link} of {named(page)}: no such heading"


@every_page
def test_every_file_that_is_named_exists(page):
    paths = {*PATH.findall(page.read_text(encoding="utf-8"))}
    assert {path for path in paths if not (ROOT / path).exists()} == set()


@every_page
def test_every_setting_exists(page):
    settings = {first or second for first, second in SETTING.findall(page.read_text(encoding="utf-8"))}
    assert settings - _settings() == set()


@every_page
def test_every_command_has_its_options(page):
    commands = _program()
    for words in _commands(page):
        assert words[0] in commands, f"saccade {words[0]} of {named(page)}: no such command"
        options = {"--help"} | {name for parameter in commands[words[0]].params for name in parameter.opts}
        options |= _options_of_runs(words[0])
        unknown = {word.partition("=")[0] for word in words if word.startswith("--")} - options
        assert not unknown, f"{unknown} of saccade {' '.join(words)} in {named(page)}"


@every_page
def test_every_recipe_exists_and_takes_its_settings(page, monkeypatch):
    monkeypatch.setenv("SACCADE_DATA", "data")
    names = {name for name, _ in recipes()}
    assert {*RECIPE.findall(page.read_text(encoding="utf-8"))} - names == set()
    for words in _commands(page):
        if words[0] not in ("train", "check", "compare") or len(words) < 2 or "--resume" in words:
            continue
        if not PLACEHOLDER.fullmatch(words[1]):
            assert words[1] in names, f"saccade {' '.join(words)} of {named(page)}"
            changes = [after for word, after in itertools.pairwise(words) if word == "--set"]
            config.load(
                words[1], [change for change in changes if change != "a.b=c"], check_files=False, complete=False
            )


@every_page
def test_every_make_target_exists(page):
    targets = {*re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)}
    assert {*re.findall(r"(?:`|^)make ([a-z]+)", page.read_text(encoding="utf-8"), re.MULTILINE)} - targets == set()


def test_the_layers_of_the_guide_run_as_they_stand():
    guide = (ROOT / "docs" / "guides" / "library.md").read_text(encoding="utf-8")
    program = next(code for language, code in CODE.findall(guide) if language == "python" and "import torch" in code)
    names: dict[str, Any] = {}
    exec(program, names)
    assert names["maps"][""][0].shape == (2, 8, 30, 30)
    assert names["context"].shape == (2, 30, 512)


def test_the_readme_stays_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 90


@cache
def _program() -> dict[str, Any]:
    runs.register([])
    return typer.main.get_command(app).commands


@cache
def _options_of_runs(command: str) -> set[str]:
    """What the runs of any task take."""
    kinds = {
        kind
        for task in _modules("saccade.tasks", ".task")
        for options in _modules(task.__package__)
        for kind in vars(options).values()
        if isinstance(kind, type) and issubclass(kind, Options)
    }
    names = {name for kind in kinds for name in options_for(kind, command)}
    return {f"--{name.replace('_', '-')}" for name in names}


def _commands(page: Path) -> Iterator[list[str]]:
    """The words after `saccade` of every command, in blocks of code and within lines."""
    text = page.read_text(encoding="utf-8")
    blocks = [code.replace("\\\n", " ") for language, code in CODE.findall(text) if language in ("", "sh")]
    lines = [line for block in blocks for line in block.splitlines()]
    for line in [*lines, *re.findall(r"`(saccade [^`]+)`", _without_code(page))]:
        if line.startswith("saccade "):
            words = shlex.split(line.replace("\\|", "|"), comments=True)[1:]
            if re.fullmatch(r"[a-z]+", words[0]):
                yield words


@cache
def _settings() -> set[str]:
    """Every setting of every task and model: `--set` takes no other."""
    found = {"a.b", "model.name", "start.from", "start.weights", *_fields(TrainConfig, "train.")}
    for task in _modules("saccade.tasks", ".task"):
        found |= {*_fields(task.Config)} if hasattr(task, "Config") else set()
    for model in _modules("saccade.models"):
        found |= {*_fields(model.Config, "model.")} if hasattr(model, "Config") else set()
    return found


def _modules(package: str, inside: str = "") -> Iterator[ModuleType]:
    """Every module of a package, or, of every folder in it, the module `inside`."""
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        if module.ispkg == bool(inside):
            yield importlib.import_module(f"{package}.{module.name}{inside}")


def _fields(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield f"{prefix}{name}"
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _fields(field.annotation, f"{prefix}{name}.")


@cache
def _anchors(page: Path) -> set[str]:
    """What GitHub makes of the headings."""
    headings = re.findall(r"^#+ (.+)$", _without_code(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _without_code(page: Path) -> str:
    return CODE.sub("", page.read_text(encoding="utf-8"))
