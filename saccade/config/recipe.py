"""From a recipe (YAML) to typed, frozen configs, all of it checked before anything starts.

A recipe names a task and a model (discovery.py says how they are found). The modules of both have a `Config` that says which settings
there are, next to the class that they configure; saccade/training/config.py has `train`'s.
"""

import importlib
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    create_model,
    model_validator,
)

from saccade.config.discovery import Discovery, task_names
from saccade.config.errors import OPTIONS, Sources, sentences, together
from saccade.config.files import (
    Place,
    dump,
    find_recipe,
    format_place,
    nearest_file,
    parse,
    parse_override,
    quoted,
    read,
    recipes,
)
from saccade.config.kinds import Means, is_path, meaning
from saccade.errors import ConfigError, UserError
from saccade.files import expanded
from saccade.packages import packaged_model

__all__ = [
    "Config",
    "ExistingFile",
    "ExistingFolder",
    "ExistingPath",
    "Recipe",
    "StartConfig",
    "find_recipe",
    "from_values",
    "load",
    "recipes",
    "task_names",
]

_VARIABLE = re.compile(r"\$(\$?)\{([A-Za-z_][A-Za-z0-9_]*)\}")


class Config(BaseModel):
    """The base of every config: frozen, no unknown settings, and no value turned into another type behind one's back."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_default=True, protected_namespaces=()
    )

    def _refuse_unused(self, is_for: str, *names: str) -> None:
        """For validators: whoever changes a setting that other settings make idle would wait in vain for its effect."""
        for name in names:
            value = getattr(self, name)
            if value != type(self).model_fields[name].default:
                raise ValueError(f"{name} = {quoted(value)} is for {is_for}: leave it out")


def _absolute(path: Path) -> Path:
    """Relative to where the command runs, as for any other tool; absolute, so that a stored config keeps its meaning."""
    return expanded(path).absolute()


def _existing_file(path: Path, info: ValidationInfo) -> Path:
    path = _absolute(path)
    if _files_are_checked(info) and not os.path.isfile(path):
        if os.path.isdir(path):
            raise ValueError("this is a folder: name a file in it")
        raise ValueError(f"there is no file {path}{_near(path, os.path.isfile)}")
    return path


def _existing_folder(path: Path, info: ValidationInfo) -> Path:
    path = _absolute(path)
    if _files_are_checked(info) and not os.path.isdir(path):
        if os.path.isfile(path):
            raise ValueError("this is a file: name the folder that it is in")
        raise ValueError(f"there is no folder {path}{_near(path, os.path.isdir)}")
    return path


def _existing_path(path: Path, info: ValidationInfo) -> Path:
    path = _absolute(path)
    if _files_are_checked(info) and not os.path.exists(path):
        raise ValueError(f"there is no file or folder {path}{_near(path, os.path.exists)}")
    return path


def _starting_folder(path: Path, info: ValidationInfo) -> Path:
    """A folder, or the short name of a model that is an installed package."""
    try:
        packaged = None if os.path.isdir(path) else packaged_model(str(path))
    except UserError as error:
        raise ValueError(str(error)) from None
    return _existing_folder(path if packaged is None else packaged, info)


def _files_are_checked(info: ValidationInfo) -> bool:
    return not info.context or info.context["check_files"]


def files_may_be_missing(info: ValidationInfo) -> bool:
    """For validators: whether somebody only wants to see the recipe, and names the files later."""
    return info.context is not None and not info.context["complete"]


def _near(path: Path, is_meant: Callable[[Path], bool]) -> str:
    near = nearest_file(path, is_meant)
    return f": did you mean {near}?" if near else ""


ExistingFile = Annotated[Path, Field(strict=False), Means("the path of a file"), AfterValidator(_existing_file)]
ExistingFolder = Annotated[Path, Field(strict=False), Means("the path of a folder"), AfterValidator(_existing_folder)]

ExistingPath = Annotated[
    Path, Field(strict=False), Means("the path of a file or a folder"), AfterValidator(_existing_path)
]
StartingFolder = Annotated[
    Path, Field(strict=False), Means("the path of a folder, or minilm"), AfterValidator(_starting_folder)
]


class StartConfig(Config):
    """The `start` section of every recipe: another run whose weights and vocabulary this one begins with."""

    if TYPE_CHECKING:
        weights: str

    @property
    def run(self) -> Path | None:
        """`from`, which is a word of Python."""
        path: Path | None = getattr(self, "from")
        return path

    @model_validator(mode="after")
    def _weights_are_from_somewhere(self) -> "StartConfig":
        if self.run is None and self.weights != "*":
            raise ValueError(f"weights = {quoted(self.weights)} needs start.from: name the run to take them from")
        return self


_START: type[StartConfig] = create_model(
    "StartConfig",
    __base__=StartConfig,
    **{  # type: ignore[call-overload]
        "from": (
            StartingFolder | None,
            Field(
                None,
                description="a run, or a folder in Hugging Face's format, to take weights and vocabulary from; minilm is one",
            ),
        ),
        "weights": (
            str,
            Field(
                "*",
                description="names of the tensors to take, such as encoder.*; several with commas; all but -output.*",
            ),
        ),
    },
)


class Recipe(Config):
    """A whole recipe: also an instance of its task's Config, so its other sections are `recipe.data` and so on."""

    task_config: ClassVar[type[Config]]
    model_name: ClassVar[str]  # as the recipe has it

    description: str = ""
    task: str
    model: Any
    start: StartConfig
    train: Any

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    @property
    def task_module(self) -> ModuleType:
        return sys.modules[self.task_config.__module__]

    @property
    def model_module(self) -> ModuleType:
        return sys.modules[type(self.model).__module__]

    def to_dict(self) -> dict[str, Any]:
        """Every value, defaults too, as plain text, numbers and lists, in the order of a recipe."""
        values = self.model_dump(mode="json")
        values["model"] = {"name": self.model_name, **values["model"]}
        first = [name for name in ("description", "task", "data", "model", "start", "train") if name in values]
        return {name: values[name] for name in dict.fromkeys([*first, *values])}

    def to_yaml(self) -> str:
        """The recipe written out in full; `load` reads it back to an equal one."""
        return dump(_escaped(self.to_dict(), (), type(self)))


def explained(recipe: Recipe) -> str:
    """The recipe written out in full, each setting with what it may be and what it is for; still YAML that `load` reads."""
    text = recipe.to_yaml()
    lines = text.splitlines()
    _, numbers = parse(text, "recipe")
    for place, number in numbers.items():
        words = meaning(type(recipe), place) if len(place) > 1 and place != ("model", "name") else ""
        if words:
            lines[number - 1] = f"{lines[number - 1]:<34}  # {words}"
    return "".join(f"{line}\n" for line in lines)


def load(
    recipe: str | Path,
    overrides: Sequence[str] = (),
    *,
    varied: Sequence[str] = (),
    check_files: bool = True,
    complete: bool = True,
    package: str = "saccade",
) -> Recipe:
    """Read a recipe by name or path, apply overrides such as "model.layers=4" (the last one wins), and check all of it.

    `varied` are the overrides of one run of a comparison: the message about a mistake in them says --vary, not --set.
    `check_files=False` reads the config that a run stored: its training data may be gone, and ${NAME} in it is plain text, because it may
    be a stranger's. `complete=False` reads a recipe whose files are still to be named.
    `package` holds the tasks, models and training modules.
    """
    path = find_recipe(recipe)
    label = f"recipe {recipe}" if str(recipe) == path.stem else str(recipe)
    values, lines = read(path, label)
    if values is None:
        raise ConfigError(f"{label} is empty: it needs at least `task` and `model`; `saccade recipes` lists examples")
    if not isinstance(values, dict):
        raise ConfigError(
            f"{label} holds {quoted(values)} but must hold `name: value` lines such as `task: translation`"
        )
    sources = Sources({place: f"{label}, line {line}" for place, line in lines.items()} | {(): label})
    before = _model_name(values)
    for option, changes in (("--set", overrides), ("--vary", varied)):
        for override in changes:
            _override(values, sources, override, option)
    if before != _model_name(values) and isinstance(values.get("model"), dict):
        # Another model: the recipe's own settings were for the one it named.
        own = values["model"].items()
        values["model"] = {name: value for name, value in own if sources.get(("model", name)) in OPTIONS}
    is_run = not check_files or path.name == "config.yaml"
    discovery = Discovery(package, path.parent if is_run else None)
    return _checked(values, label, sources, discovery, check_files, complete)


def from_values(values: dict[str, Any], label: str) -> Recipe:
    """The recipe of a model that was trained elsewhere, on unknown files. `label` says where the values are from."""
    return _checked(values, label, Sources({(): label}), Discovery("saccade"), check_files=False, complete=False)


def with_model(recipe: Recipe, name: str, settings: dict[str, Any]) -> Recipe:
    """The same recipe with another model."""
    values = recipe.to_dict()
    values["model"] = {**settings, "name": name}
    return from_values(values, f"the recipe with the model {name}")


def _checked(
    values: dict[str, Any], label: str, sources: Sources, discovery: Discovery, check_files: bool, complete: bool
) -> Recipe:
    task = discovery.task(values, sources)
    section = values.get("model")
    if section is not None and not isinstance(section, dict):
        raise ConfigError(
            f"model = {quoted(section)} ({sources.of(('model',))}) must be a group of settings, one of them `name`"
        )
    values["model"] = section or {}
    model = discovery.model(values, sources, task)
    train = importlib.import_module(f"{discovery.package}.training.config").TrainConfig
    recipe_class = _recipe_class(task.Config, model.Config, train, values["model"]["name"])
    values["model"] = {name: value for name, value in values["model"].items() if name != "name"}
    for name, field in recipe_class.model_fields.items():
        if _is_config(field.annotation) and values.get(name) is None:
            values[name] = {}  # a section left out, or with nothing under it, has its defaults
    values = _expanded(values, (), recipe_class, sources, environment=check_files)
    try:
        return recipe_class.model_validate_json(
            _as_json(values, label), context={"check_files": check_files, "complete": complete}
        )
    except ValidationError as error:
        messages = sentences(error, recipe_class, values, sources, discovery.settings_of_models(task))
        raise ConfigError(together(messages, label)) from None


def _model_name(values: dict[str, Any]) -> Any:
    model = values.get("model")
    return model.get("name") if isinstance(model, dict) else None


def _override(values: dict[str, Any], sources: Sources, override: str, option: str) -> None:
    name, equals, text = override.partition("=")
    place = tuple(name.strip().split("."))
    if not equals or not all(place):
        raise ConfigError(f"{option} {quoted(override)} must be PLACE=VALUE, for example {option} train.steps=2000")
    for depth, part in enumerate(place[:-1], start=1):
        if not isinstance(values.get(part), dict):
            values[part] = {}
            sources[place[:depth]] = option
        values = values[part]
    values[place[-1]] = parse_override(text, f"{option} {override}")
    for below in [known for known in sources if known[: len(place)] == place]:
        del sources[below]
    sources[place] = option


def _expanded(value: Any, place: Place, recipe: type[Config], sources: Sources, environment: bool) -> Any:
    """${NAME} in a path becomes the environment's value, where that is allowed or a person gave the path just now; $${NAME} stays ${NAME}.
    Other text is never touched: it may be published."""
    if isinstance(value, dict):
        return {name: _expanded(inner, (*place, name), recipe, sources, environment) for name, inner in value.items()}
    if isinstance(value, list):
        return [_expanded(inner, (*place, index), recipe, sources, environment) for index, inner in enumerate(value)]
    if not isinstance(value, str) or not is_path(recipe, place):
        return value
    environment = environment or sources.of(place) in OPTIONS

    def replace(match: re.Match[str]) -> str:
        dollar, name = match.groups()
        if dollar:
            return match[0][1:]
        if not environment:
            return match[0]
        if name not in os.environ:
            raise ConfigError(
                f"{format_place(place)} = {quoted(value)} ({sources.of(place)}) needs the environment variable {name}, "
                f"which is not set: run `export {name}=...` with the folder of the data first (docs/data.md says what is in it)"
            )
        return os.environ[name]

    return _VARIABLE.sub(replace, value)


def _escaped(value: Any, place: Place, recipe: type[Config]) -> Any:
    if isinstance(value, dict):
        return {name: _escaped(inner, (*place, name), recipe) for name, inner in value.items()}
    if isinstance(value, list):
        return [_escaped(inner, (*place, index), recipe) for index, inner in enumerate(value)]
    return _VARIABLE.sub(r"$\g<0>", value) if isinstance(value, str) and is_path(recipe, place) else value


def _as_json(values: dict[str, Any], label: str) -> bytes:
    """pydantic takes a list for a tuple and text for a path from JSON, and nothing else for anything else."""
    try:
        return json.dumps(values, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"{label} holds text that is not valid Unicode ({error.object[error.start]!a})") from None


@cache
def _recipe_class(task: type[Config], model: type[Config], train: type[Config], model_name: str) -> type[Recipe]:
    """One class per combination, so that a recipe read back compares equal."""
    made = cast(
        type[Recipe],
        create_model("Recipe", __base__=(task, Recipe), model=(model, ...), start=(_START, ...), train=(train, ...)),
    )
    made.task_config, made.model_name = task, model_name
    return made


def _is_config(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Config)
