"""Options of a command that depend on the run it is given: derived from what the run's task says may be asked (saccade/config/options.py).

`saccade predict RUN --help` lists those of this very run. A command written as `def predict(run, ..., **options)` gets their values under
their names, those that were given only.
"""

import inspect
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from saccade.cli.signature import with_parameters
from saccade.config.options import Command, Options, extra_of, options_for, unknown_option
from saccade.errors import ConfigError

THIS_RUN = "What this run takes"


def run_named(words: Sequence[str]) -> Path | None:
    """The first of the words that is a run, if there is one."""
    for word in words:
        path = Path(word)
        if not word.startswith("-") and ((path / "config.yaml").is_file() or (path / "config.json").is_file()):
            return path
    return None


def options_of(path: Path) -> type[Options]:
    """What may be asked of the run in a directory; its weights are not read."""
    from saccade.runs.opening import open_task, stored_recipe, task_class

    if not (path / "config.yaml").is_file():
        task = open_task(path)
        return task.options(task.recipe)
    recipe = stored_recipe(path)
    return task_class(recipe).options(recipe)


def with_options(command: Callable[..., None], name: Command, options: type[Options]) -> Callable[..., None]:
    """The command with the options of a run as parameters of its own."""
    fields = options_for(options, name)
    parameters = {field_name: _parameter(field_name, field) for field_name, field in fields.items()}
    return with_parameters(command, parameters, lambda field_name, value: _read(field_name, fields[field_name], value))


def require_known(
    words: Sequence[str], name: Command, command: Callable[..., None], run: Path, options: type[Options]
) -> None:
    """Refuses an option that this run does not take by one sentence that says which ones it does."""
    known = {"--help", "-h", *(f"--{field.replace('_', '-')}" for field in options_for(options, name))}
    for parameter in inspect.signature(command).parameters.values():
        known |= set(_spellings(parameter))
    for word in words:
        if word == "--":
            return
        option = word.partition("=")[0]
        if option.startswith("--") and option not in known:
            raise unknown_option(option, str(run), name, options)


def _spellings(parameter: inspect.Parameter) -> list[str]:
    """How a parameter of a command is written on the command line."""
    named = [f"--{parameter.name.replace('_', '-')}"]
    for item in get_args(parameter.annotation)[1:]:
        named += [declared for declared in getattr(item, "param_decls", None) or () if declared.startswith("-")]
        if isinstance(getattr(item, "default", None), str) and item.default.startswith("-"):
            named.append(item.default)
    return named


def _parameter(name: str, field: FieldInfo) -> inspect.Parameter:
    spelled, meaning = f"--{name.replace('_', '-')}", field.description or ""
    kind: Any = _plain(field.annotation)
    default: Any = False if kind is bool else None
    if get_origin(kind) is tuple:
        kind = str
    shown = typer.Option(
        spelled,
        help=meaning[:1].upper() + meaning[1:] + _default(field),
        metavar=extra_of(field, "metavar"),
        show_default=False,
        rich_help_panel=THIS_RUN,
    )
    annotation = Annotated[bool, shown] if kind is bool else Annotated[kind | None, shown]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _default(field: FieldInfo) -> str:
    return "" if field.default in (None, False, "") else f" ({field.default} unless given)"


def _plain(annotation: Any) -> Any:
    """`int | None` is int."""
    if get_origin(annotation) in (Union, types.UnionType):
        (kind,) = [member for member in get_args(annotation) if member is not type(None)]
        return kind
    return annotation


def _read(name: str, field: FieldInfo, value: Any) -> Any:
    """A pair of numbers from its text; everything else was read by typer."""
    kind = _plain(field.annotation)
    if get_origin(kind) is not tuple:
        return value
    parts = str(value).split(",")
    wanted = extra_of(field, "metavar") or ",".join("N" for _ in get_args(kind))
    if len(parts) != len(get_args(kind)) or not all(part.strip().isdecimal() and len(part) < 10 for part in parts):
        raise ConfigError(f"--{name} {value!r} must be {wanted}, for example --{name} 12,20")
    return tuple(int(part) for part in parts)
