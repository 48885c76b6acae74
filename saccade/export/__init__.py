"""Other engines: what a run's task can write for them, and nothing else."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from saccade.config.errors import Sources, sentences, together
from saccade.errors import ConfigError, UserError
from saccade.runs.run import Run


def export(run: Run, directory: str | Path, to: str, settings: Mapping[str, Any] | None = None) -> str:
    """Writes the run for the engine `to` into a new directory, checked against torch; says what was written and how it compares."""
    exports = run.task.exports()
    if to not in exports:
        engines = f"choose {' or '.join(exports)}" if exports else "use it with torch"
        raise UserError(
            f"{run.path} is a run of the task {run.recipe.task}, which cannot be exported to {to}: {engines}"
        )
    engine, settings = exports[to], dict(settings or {})
    for name in settings:
        if name not in engine.takes.model_fields:
            raise ConfigError(f"--{name} is not an option of the export to {to}: leave it out")
    try:
        fields = engine.takes.model_validate(settings)
    except ValidationError as error:
        raise ConfigError(
            together(sentences(error, engine.takes, settings, Sources({(): f"an option of the export to {to}"})), to)
        ) from None
    return engine.write(Path(directory), fields)
