"""What may be asked of a trained run beyond its input: beam, best, pixel, samples, ...

A task says it once, as an `Options` config; the command line, the API and their documentation are derived from it. Each field names the
commands it is for: `beam: int | None = option(None, "predict evaluate", "width of the beam", ge=1)`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field, ValidationError
from pydantic.fields import FieldInfo

from saccade.config.errors import Sources, sentences, together
from saccade.config.recipe import Config
from saccade.errors import ConfigError

Command = Literal["predict", "evaluate", "look"]
Chosen = TypeVar("Chosen", bound="Options")


class Options(Config):
    """The base of every task's options. All fields have defaults: an option that is not given changes nothing."""

    @property
    def may_share_a_batch(self) -> bool:
        """Whether the answer to an input does not depend on the inputs beside it."""
        return True


def option(
    default: Any,
    commands: str,
    meaning: str,
    *,
    metavar: str | None = None,
    most_served: float | None = None,
    served: bool = True,
    is_input: bool = False,
    **limits: Any,
) -> Any:
    """A field of an `Options` config for these commands, separated by spaces. A request over the network may ask for
    `most_served` at most, and for an option that is not `served` not at all. One that `is_input` is what the command reads, in the
    place of its words; a request has the fields of the input instead."""
    extra: dict[str, Any] = {"commands": commands.split(), "served": served and not is_input, "is_input": is_input}
    if metavar is not None:
        extra["metavar"] = metavar
    if most_served is not None:
        extra["most_served"] = most_served
    return Field(default, description=meaning, json_schema_extra=extra, **limits)


def options_for(options: type[Options], command: Command) -> dict[str, FieldInfo]:
    """The fields that a command takes, in the order they are written in."""
    return {
        name: field for name, field in options.model_fields.items() if command in (extra_of(field, "commands") or ())
    }


def extra_of(field: FieldInfo, name: str) -> Any:
    """What `option` was told beside pydantic's own settings; None unless given."""
    return field.json_schema_extra.get(name) if isinstance(field.json_schema_extra, dict) else None


def chosen(options: type[Chosen], command: Command, values: Mapping[str, Any], run: str, spelled: str = "{}") -> Chosen:
    """The options with these values; `spelled` is how an option is written where it was given ("--{}", "`{}`")."""
    allowed = options_for(options, command)
    for name in values:
        if name not in allowed:
            raise unknown_option(
                spelled.format(name.replace("_", "-") if spelled.startswith("--") else name), run, command, options
            )
    try:
        return options.model_validate({name: _as_written(allowed[name], value) for name, value in values.items()})
    except ValidationError as error:
        written = sentences(error, options, dict(values), Sources({(): f"an option of {command}"}))
        sentence = together(written, command).removeprefix(f"recipe (an option of {command}): ")
        raise ConfigError(sentence.replace(" or null", "")) from None


def _as_written(field: FieldInfo, value: Any) -> Any:
    """A path may be given as text, and a pair of numbers as a list."""
    if isinstance(value, str) and "Path" in str(field.annotation):
        return Path(value)
    return tuple(value) if isinstance(value, list) and "tuple" in str(field.annotation) else value


def unknown_option(spelled: str, run: str, command: Command, options: type[Options]) -> ConfigError:
    dashes = spelled.startswith("--")
    names = [f"--{name.replace('_', '-')}" if dashes else name for name in options_for(options, command)]
    takes = f"it takes {', '.join(names)}" if names else "it takes none"
    return ConfigError(f"{spelled} is not an option of {command} for {run}: {takes}")
