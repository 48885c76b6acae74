"""Tasks and models by name: a folder of saccade/tasks, a file of saccade/models, or any importable module by its dotted name.

    task: translation                 saccade/tasks/translation/task.py
    task: my_project.counting         imported as it stands, from wherever Python finds my_project
    model: {name: transformer}        saccade/models/transformer.py
    model: {name: my_project.tiny}    imported as it stands

A task's module has a `Config` that says which kind of model it takes (`model_kind`), a model's a `Config` that says which kinds it serves.
Nothing has to be registered. Modules are imported at load, because everything else stands above this package.
"""

import importlib
import importlib.util
import os
import pkgutil
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from saccade.config.errors import Sources, listed
from saccade.config.files import Place, format_place, nearest, quoted
from saccade.errors import ConfigError

_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", re.ASCII)


@dataclass(frozen=True)
class Discovery:
    """`package` is searched for bare names. `run` is the directory of a run whose config is read: no code is ever taken from inside it."""

    package: str
    run: Path | None = None

    def task(self, values: Mapping[str, Any], sources: Sources) -> ModuleType:
        name, names = values.get("task"), _folders(f"{self.package}.tasks")
        module = self._dotted(name, ("task",), sources)
        if module is None and isinstance(name, str) and name in names:
            module = importlib.import_module(f"{self.package}.tasks.{name}.task")
        if module is None or not hasattr(getattr(module, "Config", None), "model_kind"):
            raise _wrong_name(("task",), values, sources, names, "a task")
        return module

    def model(self, values: Mapping[str, Any], sources: Sources, task: ModuleType) -> ModuleType:
        section, place, kind = values["model"], ("model", "name"), task.Config.model_kind
        name = section.get("name")
        module = self._dotted(name, place, sources)
        if module is None and isinstance(name, str) and name in _files(f"{self.package}.models"):
            module = importlib.import_module(f"{self.package}.models.{name}")
        if module is None or kind not in getattr(getattr(module, "Config", None), "serves", ()):
            fitting = [model for model, _ in self._models(kind)]
            raise _wrong_name(place, section, sources, fitting, f"a model for the task {values['task']}")
        return module

    def settings_of_models(self, task: ModuleType) -> dict[str, list[str]]:
        """Every setting of every model for the task, and which models have it."""
        models_with: dict[str, list[str]] = {}
        for name, config in self._models(task.Config.model_kind):
            for setting in config.model_fields:
                models_with.setdefault(setting, []).append(name)
        return models_with

    def _models(self, kind: str) -> list[tuple[str, Any]]:
        """The models of the package that serve this kind of task. Imports them all: only for error messages."""
        folder = f"{self.package}.models"
        configs = [
            (name, getattr(importlib.import_module(f"{folder}.{name}"), "Config", None)) for name in _files(folder)
        ]
        return [(name, config) for name, config in configs if kind in getattr(config, "serves", ())]

    def _dotted(self, name: object, place: Place, sources: Sources) -> ModuleType | None:
        if not isinstance(name, str) or not _DOTTED.fullmatch(name):
            return None
        shown = f"{format_place(place)} = {quoted(name)} ({sources.of(place)})"
        if self.run is not None and name not in sys.modules and _reaches_into(name, self.run):
            raise ConfigError(f"{shown} is code inside the run directory, which is never executed: install it outside")
        try:
            return importlib.import_module(name)
        except ImportError as error:
            raise ConfigError(
                f"{shown} cannot be imported ({error}): check the name, or add the folder of its package to PYTHONPATH"
            ) from None


def task_names() -> list[str]:
    """The tasks of the library."""
    return _folders("saccade.tasks")


def _reaches_into(module: str, directory: Path) -> bool:
    """Whether importing a module could execute a file inside a directory."""
    inside = {os.path.abspath(directory), os.path.realpath(directory)}
    parts = module.split(".")
    for folder in sys.path:
        for depth in range(1, len(parts) + 1):
            path = os.path.join(folder or os.getcwd(), *parts[:depth])
            for place in (os.path.abspath(path), os.path.realpath(path)):
                if any(place == folder_inside or place.startswith(folder_inside + os.sep) for folder_inside in inside):
                    return True
    return False


def _wrong_name(
    place: Place, section: Mapping[str, Any], sources: Sources, names: Sequence[str], what: str
) -> ConfigError:
    name, where = section.get(str(place[-1])), f"({sources.of(place)})"
    choice = f"choose {listed(names, 'or')}"
    if name is None:
        return ConfigError(f"{format_place(place)} {where} is missing: {choice}")
    near = nearest(name, names)
    hint = f"did you mean {near}? ({choice})" if near else choice
    return ConfigError(f"{format_place(place)} = {quoted(name)} {where} is not {what}: {hint}")


def _folders(package: str) -> list[str]:
    return [module.name for module in _inside(package) if module.ispkg]


def _files(package: str) -> list[str]:
    return [module.name for module in _inside(package)]


def _inside(package: str) -> list[pkgutil.ModuleInfo]:
    spec = importlib.util.find_spec(package)
    return list(pkgutil.iter_modules(spec.submodule_search_locations)) if spec else []
