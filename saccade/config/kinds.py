"""What may stand at a place of a recipe, from the type annotations of its configs: for messages and for `saccade recipes NAME`."""

import types
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from saccade.config.files import Place

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


@dataclass(frozen=True)
class Means:
    """Put into `Annotated[...]` of a type: what the type takes, in the words of an error message."""

    words: str


@dataclass(frozen=True)
class Kind:
    """What may stand at a place."""

    annotation: Any
    metadata: tuple[Any, ...] = ()
    purpose: str = ""


def places(model: type[BaseModel], section: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every setting there is, sections before what is in them."""
    names: list[tuple[str, ...]] = []
    for name, field in model.model_fields.items():
        place = (*section, name)
        names.append(place)
        if place == ("model",):
            names.append(("model", "name"))
        for kind in branches(Kind(field.annotation)):
            if _is_model(kind.annotation):
                names += places(kind.annotation, place)
    return names


def kinds_at(model: type[BaseModel], place: Place) -> list[Kind]:
    """The kinds of value that the annotations allow at a place: several where a union stands above it, none where nothing may stand."""
    kinds = [Kind(model)]
    for part in place:
        kinds = [inner for kind in kinds for branch in branches(kind) for inner in _inside(branch, part)]
    return kinds


def is_path(model: type[BaseModel], place: Place) -> bool:
    return any(branch.annotation is Path for kind in kinds_at(model, place) for branch in branches(kind))


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


def branches(kind: Kind) -> list[Kind]:
    """A union's members; anything else is its own only member. Annotations inside are unpacked."""
    annotation, metadata = kind.annotation, kind.metadata
    if get_origin(annotation) is Annotated:
        annotation, *inner = get_args(annotation)
        flat = [part for item in inner for part in (item.metadata if isinstance(item, FieldInfo) else [item])]
        return branches(Kind(annotation, (*flat, *metadata)))
    if get_origin(annotation) in (Union, types.UnionType):
        return [branch for member in get_args(annotation) for branch in branches(Kind(member, metadata))]
    return [Kind(annotation, metadata)]


def meaning(recipe: type[BaseModel], place: Place) -> str:
    """What a setting is for and which values it takes; an empty string for a group of settings or an item of a list."""
    kinds = kinds_at(recipe, place)
    if any(_is_model(branch.annotation) for kind in kinds for branch in branches(kind)) or isinstance(place[-1], int):
        return ""
    allowed = " or ".join(dict.fromkeys(described(kind) for kind in kinds))
    purpose = next((kind.purpose for kind in kinds if kind.purpose), "")
    return f"{purpose} ({allowed})" if purpose else allowed


def described(kind: Kind) -> str:
    """A whole number, at least 1."""
    return " or ".join(dict.fromkeys(_branch_words(branch) for branch in branches(kind)))


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
    if values := allowed_values(annotation):
        return f"one of {', '.join(map(str, values))}"
    if _is_model(annotation):
        return f"a group of settings ({', '.join(annotation.model_fields)})"
    if origin is tuple and Ellipsis not in arguments:
        return f"a list of {len(arguments)} ({', '.join(described(Kind(argument)) for argument in arguments)})"
    if origin in (list, tuple, set, frozenset):
        return f"a list, each {described(Kind(arguments[0]))}"
    if origin is dict:
        return f"`name: value` lines, each value {described(Kind(arguments[1]))}"
    return _WORDS.get(annotation) or f"a {getattr(annotation, '__name__', annotation)}"


def allowed_values(annotation: Any) -> tuple[Any, ...]:
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return tuple(member.value for member in annotation)
    return get_args(annotation) if get_origin(annotation) is Literal else ()


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
