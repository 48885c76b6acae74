"""Recipes as files: where they are, and their values with line numbers.

Imports PyYAML and nothing heavier, so that listing recipes is instant. Numbers, true/false and null are read by YAML 1.2's
rules: `1e-3` is a number, and `no`, `on` and `12:30` are text.
"""

import difflib
import json
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import yaml

from saccade.errors import ConfigError
from saccade.files import expanded, read_bytes

FOLDER = Path(__file__).parents[1] / "recipes"
Place = tuple[str | int, ...]  # ("model", "layers") is model.layers

_DEPTH = 30
_MOST_BYTES = 1 << 18  # of a recipe: YAML is parsed slowly
_BREAK = re.compile("[\n\r\x85\u2028\u2029]")


def recipes() -> list[tuple[str, str]]:
    """The name and the one-line description of every recipe in the package."""
    listing = []
    for path in sorted(FOLDER.glob("*.yaml"), key=lambda path: path.stem):
        values, _ = read(path, f"recipe {path.stem}")
        description = values.get("description") if isinstance(values, dict) else None
        listing.append((path.stem, " ".join(str(description or "").split())))
    return listing


def find_recipe(recipe: str | Path) -> Path:
    """The file of a recipe given by its name (`saccade recipes` lists them) or by its path."""
    text = str(recipe)
    path = expanded(text)
    named = FOLDER / f"{text}.yaml"
    if isinstance(recipe, str) and re.fullmatch(r"[\w-]+", text) and os.path.isfile(named):
        return named
    if os.path.isdir(path):
        config = path / "config.yaml"
        hint = f"did you mean {config}?" if os.path.isfile(config) else "name a YAML file in it"
        raise ConfigError(f"{quoted(text)} is a folder, not a recipe: {hint}")
    if os.path.exists(path):
        return path
    names = [file.stem for file in FOLDER.glob("*.yaml")]
    if path.suffix in (".yaml", ".yml") or len(path.parts) > 1:
        near = nearest(path.stem, names) if path.stem in names else nearest_file(path)
        raise ConfigError(f"there is no recipe file {quoted(text)}{near and f': did you mean {near}?'}")
    near = nearest(text, names)
    hint = f"did you mean {near}?" if near else "give a name that `saccade recipes` lists, or the path of a YAML file"
    raise ConfigError(f"there is no recipe {quoted(text)}: {hint}")


def read(path: Path, label: str) -> tuple[Any, dict[Place, int]]:
    """The values in a YAML file, and the line that each place stands on. Errors call the file `label`."""
    try:
        text = read_bytes(path, _MOST_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{label} is not UTF-8 text (byte {error.start + 1}): save it as UTF-8") from None
    except OSError as error:
        raise ConfigError(f"{label} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{label} is not a recipe: {error}") from None
    return parse(text, label)


def parse(text: str, label: str) -> tuple[Any, dict[Place, int]]:
    """The values in YAML text, and the line of each place."""
    lines: dict[Place, int] = {}
    try:
        node = yaml.compose(text, Loader=_Loader)
        return (None if node is None else _value(node, (), lines)), lines
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(f"{label} is not valid YAML{where}: {error.problem}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError(f"{label} is not valid YAML at line {line}: {error.reason}") from None
    except RecursionError:
        raise ConfigError(f"{label} is nested more than {_DEPTH} deep: a recipe needs two or three levels") from None


def parse_override(text: str, label: str) -> Any:
    """The value after `=` in `--set model.layers=4`: a number, a word, a [list]; text that only a file could lay out
    in lines (`note: this`, `- that`) stays text."""
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError:
        node = None
    if isinstance(node, yaml.CollectionNode) and not node.flow_style:
        return text
    return parse(text, label)[0]


def dump(values: dict[str, Any]) -> str:
    """YAML that `parse` reads back to the same values: sections as lines, lists in brackets."""
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1_000_000)


def nearest(name: object, names: Iterable[str]) -> str:
    """The name that was probably meant, or an empty string."""
    by_lower_case = {candidate.lower(): candidate for candidate in names}
    matches = difflib.get_close_matches(str(name).lower(), by_lower_case, n=1)
    return by_lower_case[matches[0]] if matches else ""


def nearest_file(path: Path, is_meant: Callable[[Path], bool] = os.path.exists) -> str:
    """An existing file beside a missing one that was probably meant, or an empty string."""
    try:
        near = nearest(path.name, [name for name in os.listdir(path.parent) if is_meant(path.with_name(name))])
    except (OSError, ValueError):
        return ""
    return str(path.with_name(near)) if near else ""


def quoted(value: object) -> str:
    """A value for an error message: short, on one line, text in quotes."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else f"{text[:60]}…{text[-1]}"


class _Loader(yaml.SafeLoader):
    """Composes nodes only; values are made by `_value`. Aliases are refused: a recipe says each thing once."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML's own class attribute

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            problem = f"*{event.anchor} would be a reference: write the value out, or quote the text"
            raise yaml.composer.ComposerError(None, None, problem, event.start_mark)
        return super().compose_node(parent, index)


class _Dumper(yaml.SafeDumper):
    """Quotes any text that either version of YAML would read as something else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text_node(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    """Text with a line break of any kind is double-quoted: PyYAML's other styles change some kinds."""
    return dumper.represent_scalar(_tag("str"), text, style='"' if _BREAK.search(text) else None)


_Dumper.add_representer(list, lambda dumper, data: dumper.represent_sequence(_tag("seq"), data, flow_style=True))
_Dumper.add_representer(str, _text_node)


def _tag(name: str) -> str:
    return f"tag:yaml.org,2002:{name}"


_NUMBERS = "-+.0123456789"
for _name, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", [*"~nN", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", [*"tTfF"]),
    ("int", r"[-+]?(0|[1-9][0-9]*(_[0-9]+)*)", [*_NUMBERS]),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?", [*_NUMBERS]),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", [*_NUMBERS]),
):
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(_tag(_name), re.compile(rf"(?:{_pattern})\Z"), _first)

_SCALARS = {
    _tag("null"): lambda text: None,
    _tag("bool"): lambda text: {"true": True, "false": False}[text.lower()],
    _tag("int"): lambda text: _integer(text),
    _tag("float"): lambda text: float(re.sub(r"\.(?=[a-zA-Z])", "", text)),
    _tag("str"): lambda text: text,
}


def _integer(text: str) -> int:
    value = int(text)
    if not -(2**63) <= value < 2**63:
        raise ValueError("larger than any setting")
    return value


def _value(node: yaml.Node, place: Place, lines: dict[Place, int]) -> Any:
    if len(place) > _DEPTH:
        raise RecursionError
    lines[place] = node.start_mark.line + 1
    if isinstance(node, yaml.ScalarNode) and node.tag in _SCALARS:
        try:
            return _SCALARS[node.tag](node.value)
        except (ValueError, KeyError):
            raise _problem(node, f"{quoted(node.value)} is not a value of the type {node.tag}") from None
    if isinstance(node, yaml.SequenceNode) and node.tag == _tag("seq"):
        return [_value(item, (*place, index), lines) for index, item in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode) and node.tag == _tag("map"):
        return _mapping(node, place, lines)
    raise _problem(node, f"the tag {node.tag} is not supported: write a plain value")


def _mapping(node: yaml.MappingNode, place: Place, lines: dict[Place, int]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise _problem(key, "a name on the left of `:` must be a plain word")
        name = (*place, key.value)
        if key.value in values:
            first = lines[name]
            raise _problem(key, f"{format_place(name)} is given twice (first on line {first}): remove one of them")
        values[key.value] = _value(value, name, lines)
        lines[name] = key.start_mark.line + 1
    return values


def _problem(node: yaml.Node, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


def format_place(place: Place) -> str:
    """model.layers; a name with odd characters stands in quotes."""
    return ".".join(str(part) if re.fullmatch(r"[\w-]+", str(part)) else quoted(str(part)) for part in place)
