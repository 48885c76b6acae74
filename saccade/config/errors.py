"""What a wrong recipe is told: one sentence per mistake, with the place, the value, what is allowed and what was meant."""

import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from saccade.config.files import Place, format_place, nearest, quoted

_WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    Path: "a path",
    type(None): "null",
}
_BOUNDS = {
    "ge": "at least {}",
    "gt": "above {}",
    "le": "at most {}",
    "lt": "below {}",
    "multiple_of": "a multiple of {}",
    "min_length": "of length {} or more",
    "max_length": "of length {} or less",
}


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


@dataclass(frozen=True)
class Means:
    """Stands in `Annotated[...]` of a type to say in an error what the type takes."""

    words: str


OPTIONS = ("--set", "--vary")


class Sources(dict[Place, str]):
    """Where each value was given: "recipe translation, line 4" or one of the options."""

    def of(self, place: Place) -> str:
        while place not in self:
            place = place[:-1]
        return self[place]


@dataclass(frozen=True)
class Kind:
    """What may stand at a place."""

    annotation: Any
    metadata: tuple[Any, ...] = ()
    purpose: str = ""


def sentences(
    error: ValidationError,
    recipe: type[BaseModel],
    values: Mapping[str, Any],
    sources: Sources,
    other_models: Mapping[str, Sequence[str]] | None = None,
) -> list[str]:
    """One sentence for each place that is wrong. `other_models` has the settings of models that could stand in the recipe, and whose."""
    found: dict[Place, str] = {}
    for mistake in error.errors(include_url=False):
        place, value = _locate(mistake["loc"], values)
        if mistake["type"] == "missing":
            place = (*place, mistake["loc"][-1])
        if place not in found:
            found[place] = _sentence(mistake, place, value, recipe, sources, other_models or {})
    return list(found.values())


def together(sentences: Sequence[str], label: str) -> str:
    """One mistake is one sentence; several are shown one per line, so that they can be mended in one go."""
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
    kinds = _kinds_at(recipe, place)
    allowed = " or ".join(dict.fromkeys(_words(kind) for kind in kinds)) or mistake["msg"]
    if mistake["type"] == "missing":
        return f"{format_place(place)} {where} is missing: it must be {allowed}"
    if mistake["type"] == "extra_forbidden":
        while sources.of(place) in OPTIONS and isinstance(value, dict) and len(value) == 1:
            (name, value) = next(iter(value.items()))
            place = (*place, name)
        renamed = RENAMED.get(format_place(place), "")
        if tuple(renamed.split(".")) in _places(recipe):
            return f"{format_place(place)} {where} is now called {renamed}"
        return (
            f"{format_place(place)} = {quoted(value)} {where} is not a setting: {_meant(recipe, place, other_models)}"
        )
    shown = f"{format_place(place)} = {quoted(value)} {where}"
    if mistake["type"] in ("value_error", "assertion_error"):
        subject = f"{format_place(place) or 'recipe'} {where}" if isinstance(value, dict) else shown
        return f"{subject}: {mistake['ctx']['error']}"
    near = _near_value(value, [branch for kind in kinds for branch in _branches(kind)])
    return f"{shown} must be {allowed}" + (f": did you mean {near}?" if near else "")


def _near_value(value: Any, kinds: Sequence[Kind]) -> str:
    if isinstance(value, float) and value.is_integer() and any(kind.annotation is int for kind in kinds):
        return str(int(value))
    choices = [str(choice) for kind in kinds for choice in _choices(kind.annotation)]
    ours = [name for name in _ELSEWHERE.get(value, ()) if name in choices] if isinstance(value, str) else []
    return ours[0] if ours else nearest(value, choices) if isinstance(value, str) else ""


def _meant(recipe: type[BaseModel], place: Place, other_models: Mapping[str, Sequence[str]]) -> str:
    """The setting of the same name elsewhere, or else the nearest name; and what could be set instead."""
    known = _places(recipe)
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


def _places(model: type[BaseModel], before: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every setting there is, sections before what is in them."""
    found = []
    for name, field in model.model_fields.items():
        place = (*before, name)
        found.append(place)
        if place == ("model",):
            found.append(("model", "name"))
        for kind in _branches(Kind(field.annotation)):
            if _is_model(kind.annotation):
                found += _places(kind.annotation, place)
    return found


def _kinds_at(model: type[BaseModel], place: Place) -> list[Kind]:
    kinds = [Kind(model)]
    for part in place:
        kinds = [inner for kind in kinds for branch in _branches(kind) for inner in _inside(branch, part)]
    return kinds


def _inside(kind: Kind, part: str | int) -> list[Kind]:
    if _is_model(kind.annotation):
        field = kind.annotation.model_fields.get(part)
        return [Kind(field.annotation, tuple(field.metadata), field.description or "")] if field else []
    origin, arguments = get_origin(kind.annotation), get_args(kind.annotation)
    if origin is dict:
        return [Kind(arguments[1])]
    if origin is tuple and isinstance(part, int) and Ellipsis not in arguments:
        return [Kind(argument) for argument in arguments[part : part + 1]]
    return [Kind(arguments[0])] if origin in (list, tuple, set, frozenset) and isinstance(part, int) else []


def _branches(kind: Kind) -> list[Kind]:
    """A union's members; anything else is its own only member. Annotations inside are unpacked."""
    annotation, metadata = kind.annotation, kind.metadata
    if get_origin(annotation) is Annotated:
        annotation, *inner = get_args(annotation)
        flat = [part for item in inner for part in (item.metadata if isinstance(item, FieldInfo) else [item])]
        return _branches(Kind(annotation, (*flat, *metadata)))
    if get_origin(annotation) in (Union, types.UnionType):
        return [branch for member in get_args(annotation) for branch in _branches(Kind(member, metadata))]
    return [Kind(annotation, metadata)]


def meaning(recipe: type[BaseModel], place: Place) -> str:
    """What a setting is for and what it may be; nothing of a group of settings or an item of a list."""
    kinds = _kinds_at(recipe, place)
    if any(_is_model(branch.annotation) for kind in kinds for branch in _branches(kind)) or isinstance(place[-1], int):
        return ""
    words = " or ".join(dict.fromkeys(_words(kind) for kind in kinds))
    purpose = next((kind.purpose for kind in kinds if kind.purpose), "")
    return f"{purpose} ({words})" if purpose else words


def _words(kind: Kind) -> str:
    return " or ".join(dict.fromkeys(_branch_words(branch) for branch in _branches(kind)))


def _branch_words(kind: Kind) -> str:
    for item in kind.metadata:
        if isinstance(item, Means):
            return item.words
    limits = [(words, getattr(item, name, None)) for item in kind.metadata for name, words in _BOUNDS.items()]
    texts = [words.format(limit) for words, limit in limits if limit is not None]
    words = _type_words(kind.annotation)
    return f"{words}, {' and '.join(texts)}" if texts and kind.annotation is not type(None) else words


def _type_words(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if choices := _choices(annotation):
        return f"one of {', '.join(str(choice) for choice in choices)}"
    if _is_model(annotation):
        return f"a group of settings ({', '.join(annotation.model_fields)})"
    if origin is tuple and Ellipsis not in arguments:
        return f"a list of {len(arguments)} ({', '.join(_words(Kind(argument)) for argument in arguments)})"
    if origin in (list, tuple, set, frozenset):
        return f"a list, each {_words(Kind(arguments[0]))}"
    if origin is dict:
        return f"`name: value` lines, each value {_words(Kind(arguments[1]))}"
    return _WORDS.get(annotation) or f"a {getattr(annotation, '__name__', annotation)}"


def _choices(annotation: Any) -> tuple[Any, ...]:
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return tuple(member.value for member in annotation)
    return get_args(annotation) if get_origin(annotation) is Literal else ()


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
