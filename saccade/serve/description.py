"""What /openapi.json and /docs say of the bodies that runs take: the schema of every run, and an example of a request that works."""

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI

from saccade.serve.served import Served
from saccade.tasks.task import Json

_LONGEST_INPUT = 2000  # characters of an example; a larger picture is replaced by the small one of its field


class DescribedApp(FastAPI):
    """An application whose description also has the definitions that the schemas of bodies refer to."""

    definitions: Mapping[str, Json] = {}

    def openapi(self) -> Json:
        description = super().openapi()
        description["components"]["schemas"].update(self.definitions)
        return description


def request_body(endpoint: str, runs: Mapping[str, Served]) -> tuple[Json, dict[str, Json]]:
    """The requestBody of an endpoint for the runs that answer it, and the definitions it refers to. Where several runs are served a
    request must name one of them."""
    schemas: list[Json] = []
    examples: dict[str, Json] = {}
    definitions: dict[str, Json] = {}
    several_runs = len(runs) > 1
    for name, run in runs.items():
        if endpoint in run.bodies:
            schema = run.bodies[endpoint].schema(run.limits)
            definitions |= schema.pop("$defs", {})
            works = example(run, endpoint, several_runs)
            schemas.append({**_of_run(schema, name, several_runs), "examples": [works]})
            examples[name] = {"value": works}
    schema = schemas[0] if len(schemas) == 1 else {"oneOf": schemas}
    return {"required": True, "content": {"application/json": {"schema": schema, "examples": examples}}}, definitions


def example(run: Served, endpoint: str, names_run: bool) -> Json:
    """A request that works."""
    fields = run.run.task.input.fields.model_json_schema()["properties"]
    values = {name: field["examples"][0] for name, field in fields.items() if "examples" in field}
    own = [text for text in run.examples if len(text) <= _LONGEST_INPUT]
    if own and len(fields) == 1:
        values = dict.fromkeys(fields, own[0])
    question = run.questions.get(endpoint)
    return {**({"run": run.name} if names_run else {}), **values, **(question.example if question else {})}


def _of_run(schema: Json, name: str, must_be_named: bool) -> Json:
    properties: dict[str, Any] = schema["properties"]
    run = {"type": "string", "const": name, "description": properties["run"]["description"]}
    required = [*(["run"] if must_be_named else []), *schema.get("required", [])]
    return {**schema, "title": name, "properties": {**properties, "run": run}, "required": required}
