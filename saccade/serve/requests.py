"""What a request may hold: derived from what each run reads and from what its task says may be asked.

A body names a run (unless one is served only), an input (`text`, `image`, ...) and options. `/api/predict` also takes a list of inputs.
"""

import json
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from annotated_types import Le
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.fields import FieldInfo

from saccade.config.options import Command, Options, extra_of, options_for
from saccade.config.recipe import Config
from saccade.errors import UserError
from saccade.runs.run import Run
from saccade.serve.limits import Limits
from saccade.tasks.task import Example, Json

_MOST_KEYS = 60  # of a body: more are an attack, and each would be told in an error of its own


class FigureFields(Config):
    format: str = Field("png", pattern="^(png|svg|pdf)$", description="png, svg or pdf")
    head: int | None = Field(None, ge=0, le=1000, description="one head; all of them unless given")


@dataclass(frozen=True)
class Body:
    """The fields of a request to one run, for one question."""

    run: Run
    model: type[BaseModel]
    command: Command | None = None  # whose options are among the fields
    extra: type[Config] | None = None  # further fields

    @classmethod
    def of(cls, name: str, run: Run, command: Command | None, extra: type[Config] | None = None) -> "Body":
        fields: dict[str, tuple[Any, FieldInfo]] = {}
        for kind in (run.task.input.fields, extra):
            if kind is not None:
                fields |= {field_name: (field.annotation, field) for field_name, field in kind.model_fields.items()}
        if command is not None:
            options = options_for(run.task.options(run.recipe), command)
            fields |= {
                field_name: (field.annotation, _served(field))
                for field_name, field in options.items()
                if extra_of(field, "served")
            }
            fields = {field_name: field for field_name, field in fields.items() if not _is_path(field[1])}
        run_name = Field(None, description="a name from /api/runs; may be left out where one run is served only")
        model = create_model(  # type: ignore[call-overload]
            name,
            __config__=ConfigDict(extra="forbid", allow_inf_nan=False, protected_namespaces=()),
            run=(str | None, run_name),
            **fields,
        )
        return cls(run, model, command, extra)

    def schema(self, limits: Limits) -> dict[str, Any]:
        """The fields in JSON schema. What is predicted may be a list of inputs."""
        reference = f"#/components/schemas/{self.run.recipe.task}_{{model}}"
        schema = self.model.model_json_schema(ref_template=reference)
        definitions = schema.pop("$defs", {})
        if definitions:
            schema["$defs"] = {f"{self.run.recipe.task}_{name}": part for name, part in definitions.items()}
        if self.command == "predict":
            for name in self.run.task.input.fields.model_fields:
                field = schema["properties"][name]
                one = {key: value for key, value in field.items() if key not in ("title", "description", "examples")}
                many = {"type": "array", "items": one, "minItems": 1, "maxItems": limits.batch}
                description = f"{field['description']}, or a list of them"
                schema["properties"][name] = {"anyOf": [one, many], "description": description}
        return schema

    def read(self, body: Mapping[str, Any], limits: Limits) -> "Question":
        values = _validated(self.model, body)
        for name, value in values.items():
            if isinstance(value, str) and name not in ("run", *self.run.task.input.fields.model_fields):
                _require_short(name, value, limits)
        example = self.run.task.input.from_json(_only(self.run.task.input.fields, values), limits)
        options = None
        if self.command is not None:
            named = options_for(self.run.task.options(self.run.recipe), self.command)
            options = self.run.options(
                self.command, {name: value for name, value in values.items() if name in named}, "`{}`"
            )
        return Question(example, options, None if self.extra is None else _only(self.extra, values))


@dataclass(frozen=True)
class Question:
    example: Example[Any]
    options: Options | None
    fields: Any = None  # an instance of the body's `extra`


def parsed(content: bytes, limits: Limits) -> Json | None:
    """The object in a body; None if it is not JSON. Counting is quick, and what it lets pass is quickly parsed and little to hold."""
    values = sum(content.count(letter) for letter in b",:[{")
    if values > limits.values:
        raise UserError(
            f"the body holds about {values:,} values, and {limits.values:,} are allowed: see /docs for what to send"
        )
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict):
        raise UserError('the body must be a JSON object such as {"text": "..."}: see /docs for what to send')
    _require_few_keys(body)
    return body


def several(body: Json, inputs: Sequence[str], limits: Limits) -> Sequence[Json] | None:
    """A body for each input, where the inputs are a list; None where there is one."""
    for name in inputs:
        if isinstance(body.get(name), list):
            values = body[name]
            if not 1 <= len(values) <= limits.batch:
                raise UserError(
                    f"`{name}` is a list of {len(values)}, and 1 to {limits.batch} are allowed: send fewer at a time"
                )
            return [{**body, name: value} for value in values]
    return None


def _only(kind: type[Config], values: Mapping[str, Any]) -> Config:
    return kind.model_validate({name: value for name, value in values.items() if name in kind.model_fields})


def _require_few_keys(value: Any) -> None:
    """Refuses an object that has more fields than any request needs, at any depth, before anything is built from it."""
    if isinstance(value, dict) and len(value) > _MOST_KEYS:
        raise UserError(
            f"the body has {len(value):,} fields, and {_MOST_KEYS} are allowed: see /docs for what there is"
        )
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _require_few_keys(inner)


def _validated(model: type[BaseModel], body: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return model.model_validate(body).model_dump(exclude_unset=True)
    except ValidationError as error:
        raise UserError(_sentence(error, model, body)) from None


def _sentence(error: ValidationError, model: type[BaseModel], body: Mapping[str, Any]) -> str:
    """One sentence on the first mistake. An unknown field comes before a missing one, whose name it may have been meant to be."""
    mistakes = error.errors(include_url=False, include_input=False)
    missing = [
        str(mistake["loc"][0]) for mistake in mistakes if mistake["type"] == "missing" and len(mistake["loc"]) == 1
    ]
    for mistake in mistakes:
        if mistake["type"] == "extra_forbidden" and len(mistake["loc"]) == 1:
            name = str(mistake["loc"][0])
            return f"Unknown field `{name[:80]}`; {_meant(name, list(model.model_fields), missing)}"
    first = mistakes[0]
    place = _place(first["loc"], body)
    if first["type"] == "missing":
        return f"`{'.'.join((*place, str(first['loc'][-1])))}` is missing: see /docs for what is needed"
    return f"`{'.'.join(place)[:200]}` is wrong ({first['msg']}): see /docs for what is allowed"


def _meant(name: str, names: Sequence[str], missing: Sequence[str]) -> str:
    near = get_close_matches(name, names, n=1, cutoff=0.7) or missing or get_close_matches(name, names, n=1, cutoff=0.4)
    return f"did you mean `{near[0]}`?" if near else f"there are {', '.join(names)}"


def _place(location: Sequence[int | str], body: Any) -> tuple[str, ...]:
    """The part of pydantic's location that the body has; the rest names kinds of values."""
    place: tuple[str, ...] = ()
    for part in location:
        inside = body.keys() if isinstance(body, dict) else range(len(body)) if isinstance(body, list) else ()
        if part in inside:
            place, body = (*place, str(part)), body[part]
    return place


def _require_short(name: str, value: str, limits: Limits) -> None:
    if len(value) > limits.characters:
        raise UserError(
            f"the {name} has {len(value):,} characters, and {limits.characters:,} are allowed: split it into sentences"
        )


def _served(field: FieldInfo) -> FieldInfo:
    most = extra_of(field, "most_served")
    if most is None:
        return field
    limited = copy(field)
    limited.metadata = [*field.metadata, Le(most)]
    return limited


def _is_path(field: FieldInfo) -> bool:
    """A request never names a file."""
    return "Path" in str(field.annotation)
