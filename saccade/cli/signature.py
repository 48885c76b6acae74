"""A command written as `def predict(run, ..., **options)` as typer reads it: with a parameter for each option, or with none of them."""

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any


def with_parameters(
    command: Callable[..., None], parameters: Mapping[str, inspect.Parameter], read: Callable[[str, Any], Any]
) -> Callable[..., None]:
    """The command with these parameters in place of its `**options`; it gets those that were given, as `read` turns them into values."""
    own = [
        parameter
        for parameter in inspect.signature(command).parameters.values()
        if parameter.kind != parameter.VAR_KEYWORD
    ]

    @wraps(command)
    def run(**values: Any) -> None:
        options = {name: values.pop(name) for name in parameters}
        chosen = {
            name: read(name, value) for name, value in options.items() if value is not None and value is not False
        }
        command(**values, **chosen)

    every = [*own, *parameters.values()]
    run.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in every} | {"return": None}
    return run
