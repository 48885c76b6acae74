"""Whatever is written in a recipe, it loads or is refused with a ConfigError."""

from pathlib import Path
from typing import Any

import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from saccade.config.recipe import Recipe, load
from saccade.errors import ConfigError

from .recipes import RECIPE

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.sampled_from(["${X}", "yes", "1e3", "seq2seq"])
)
values = st.recursive(
    scalars | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(scalars, inner, max_size=3),
    max_leaves=6,
)
places = st.sampled_from(
    [
        *("task", "description", "new"),
        *("data", "data.train", "data.images", "data.lengths", "data.crop", "data.note", "data.new"),
        *("model", "model.name", "model.hidden", "model.hidden.new", "model.dropout", "model.score", "model.tied"),
        *("train", "train.rate", "decode.beam"),
    ]
)
fast = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def load_or_refuse(**arguments: Any) -> Recipe | None:
    try:
        return load(**arguments)
    except ConfigError as error:
        str(error).encode(errors="backslashreplace")
        return None


@fast
@given(place=places, value=values)
def test_any_value_at_any_place_loads_or_is_refused(package: str, folder: Path, place: str, value: Any) -> None:
    whole = yaml.safe_load(RECIPE)
    section = whole
    *above, name = place.split(".")
    for part in above:
        section[part] = section = section[part] if isinstance(section.get(part), dict) else {}
    section[name] = value
    (folder / "any.yaml").write_text(yaml.safe_dump(whole, allow_unicode=True), encoding="utf-8", errors="replace")
    load_or_refuse(recipe="any.yaml", package=package)


@fast
@given(content=st.binary() | st.text().map(lambda text: text.encode(errors="replace")))
def test_any_file_loads_or_is_refused(package: str, folder: Path, content: bytes) -> None:
    (folder / "any.yaml").write_bytes(content)
    load_or_refuse(recipe="any.yaml", package=package)


@fast
@example(name="~\0")
@given(name=st.text())
def test_any_name_of_a_recipe_loads_or_is_refused(package: str, folder: Path, name: str) -> None:
    load_or_refuse(recipe=name, package=package)


@fast
@given(place=places | st.text(), text=st.text() | values.map(str))
def test_any_override_loads_or_is_refused(package: str, folder: Path, place: str, text: str) -> None:
    load_or_refuse(recipe="toy.yaml", overrides=[f"{place}={text}", text], package=package)
    load_or_refuse(recipe="toy.yaml", overrides=[f"{place}={text}"], package=package)


@fast
@given(
    note=st.text()
    | st.text("a \n\r\x85\u2028:#'\"")
    | st.from_regex(r"[$]{0,3}\{[A-Z]+\}|[-+]?[0-9._e]+|yes|no|~|null|- a|a: b"),
    lengths=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4),
    rate=st.floats(min_value=0, exclude_min=True, allow_infinity=False),
    dropout=st.floats(0, 1, exclude_max=True),
)
def test_any_recipe_reads_back_equal(
    package: str, folder: Path, note: str, lengths: list[int], rate: float, dropout: float
) -> None:
    recipe = load("toy.yaml", package=package)
    changed = recipe.model_copy(
        update={
            "data": recipe.data.model_copy(update={"note": note, "lengths": tuple(lengths)}),
            "train": recipe.train.model_copy(update={"rate": rate}),
            "model": recipe.model.model_copy(update={"dropout": dropout}),
        }
    )
    (folder / "written.yaml").write_text(changed.to_yaml(), encoding="utf-8", newline="")
    assert load("written.yaml", package=package) == changed
