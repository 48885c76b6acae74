"""The messages for a wrong recipe: one sentence per mistake, with the place, the value, what is allowed and what was probably meant."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from saccade.config.files import Place, format_place, nearest, quoted
from saccade.config.kinds import Kind, allowed_values, branches, described, kinds_at, places

# Settings that had another name in an earlier version.
RENAMED = {
    "data.batch": "data.batch_size",
    "data.longest": "data.max_length",
    "data.vocabulary": "data.vocab_size",
    "decode.batch": "decode.batch_size",
    "decode.longest": "decode.max_length",
    "model.longest": "model.max_length",
    "train.rate": "train.learning_rate",
    "train.warmup": "train.warmup_steps",
    "train.clip": "train.max_grad_norm",
    "train.accumulate": "train.gradient_accumulation",
}

# What other tools call a setting of ours.
_ELSEWHERE = {
    "lr": ("learning_rate",),
    "epochs": ("steps",),
    "max_steps": ("steps",),
    "max_updates": ("steps",),
    "early_stopping": ("patience",),
    "batch_size": ("batch_tokens",),
    "max_tokens": ("batch_tokens",),
    "beam_size": ("beam",),
    "num_beams": ("beam",),
    "d_model": ("width", "hidden"),
    "hidden_size": ("hidden", "width"),
    "num_layers": ("layers",),
    "num_heads": ("heads",),
    "ffn_dim": ("feed_forward",),
    "noam": ("inverse-square-root",),
}


OPTIONS = ("--set", "--vary")


class Sources(dict[Place, str]):
    """Where each value was given: "recipe translation, line 4" or one of the options."""

    def of(self, place: Place) -> str:
        while place not in self:
            place = place[:-1]
        return self[place]


def sentences(
    error: ValidationError,
    recipe: type[BaseModel],
    values: Mapping[str, Any],
    sources: Sources,
    other_models: Mapping[str, Sequence[str]] | None = None,
) -> list[str]:
    """One sentence for each place that is wrong. `other_models` has the settings of models that could stand in the recipe, and whose."""
    messages: dict[Place, str] = {}
    for mistake in error.errors(include_url=False):
        place, value = _locate(mistake["loc"], values)
        if mistake["type"] == "missing":
            place = (*place, mistake["loc"][-1])
        if place not in messages:
            messages[place] = _sentence(mistake, place, value, recipe, sources, other_models or {})
    return list(messages.values())


def together(sentences: Sequence[str], label: str) -> str:
    """One mistake is one sentence; several are shown one per line, so that all can be corrected at once."""
    if len(sentences) == 1:
        return sentences[0]
    return "\n  ".join([f"{label} has {len(sentences)} mistakes:", *sentences])


def listed(names: Sequence[str], word: str = "and") -> str:
    """a, b and c."""
    return f" {word} ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _locate(location: Place, values: Any) -> tuple[Place, Any]:
    """The part of pydantic's location that the recipe has (the rest names branches of a union), and the value there."""
    place: Place = ()
    for part in location:
        inside = values.keys() if isinstance(values, dict) else range(len(values)) if isinstance(values, list) else ()
        if part in inside:
            place, values = (*place, part), values[part]
    return place, values


def _sentence(
    mistake: Any,
    place: Place,
    value: Any,
    recipe: type[BaseModel],
    sources: Sources,
    other_models: Mapping[str, Sequence[str]],
) -> str:
    where = f"({sources.of(place)})"
    kinds = kinds_at(recipe, place)
    allowed = " or ".join(dict.fromkeys(described(kind) for kind in kinds)) or mistake["msg"]
    if mistake["type"] == "missing":
        return f"{format_place(place)} {where} is missing: it must be {allowed}"
    if mistake["type"] == "extra_forbidden":
        while sources.of(place) in OPTIONS and isinstance(value, dict) and len(value) == 1:
            (name, value) = next(iter(value.items()))
            place = (*place, name)
        renamed = RENAMED.get(format_place(place), "")
        if tuple(renamed.split(".")) in places(recipe):
            return f"{format_place(place)} {where} is now called {renamed}"
        return (
            f"{format_place(place)} = {quoted(value)} {where} is not a setting: {_meant(recipe, place, other_models)}"
        )
    shown = f"{format_place(place)} = {quoted(value)} {where}"
    if mistake["type"] in ("value_error", "assertion_error"):
        subject = f"{format_place(place) or 'recipe'} {where}" if isinstance(value, dict) else shown
        return f"{subject}: {mistake['ctx']['error']}"
    near = _near_value(value, [branch for kind in kinds for branch in branches(kind)])
    return f"{shown} must be {allowed}" + (f": did you mean {near}?" if near else "")


def _near_value(value: Any, kinds: Sequence[Kind]) -> str:
    if isinstance(value, float) and value.is_integer() and any(kind.annotation is int for kind in kinds):
        return str(int(value))
    if not isinstance(value, str):
        return ""
    names = [str(allowed) for kind in kinds for allowed in allowed_values(kind.annotation)]
    ours = [name for name in _ELSEWHERE.get(value, ()) if name in names]
    return ours[0] if ours else nearest(value, names)


def _meant(recipe: type[BaseModel], place: Place, other_models: Mapping[str, Sequence[str]]) -> str:
    """The setting of the same name elsewhere, or else the nearest name; and what could be set instead."""
    known = places(recipe)
    parent = place[:-1]
    while parent and parent not in known:
        parent = parent[:-1]
    beside = [name for *before, name in known if tuple(before) == parent]
    same = [format_place(other) for other in known if other[-1] == place[-1] and len(other) > 1]
    called = _ELSEWHERE.get(str(place[-1]), ())
    ours = [name for name in called if name in beside]
    anywhere = [format_place(other) for name in called for other in known if other[-1] == name]
    others = other_models if parent == ("model",) else {}
    near = ours[0] if ours else nearest(place[len(parent)], [*beside, *others])
    meant = format_place((*parent, near)) if near else ""
    if near in others and near not in beside:
        meant = f"{meant} of model.name={listed(others[near], 'or')}"
    elif anywhere and not ours:
        meant = anywhere[0]
    elif same:
        meant = same[0]
    elif parent != place[:-1]:
        meant = nearest(format_place(place), [format_place(other) for other in known]) or meant
    settings = f"{format_place(parent) or 'this recipe'} has {listed(beside)}"
    return f"did you mean {meant}? ({settings})" if meant else settings
