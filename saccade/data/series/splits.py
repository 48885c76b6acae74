"""Which series are trained on and which are held out: at random, by place, by blocks of the map, or by a group such as a field or a year.

Neighbours look alike: held out at random, a test asks about places that were trained on. What would stand on both sides is said.
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from saccade.data.series.table import SeriesTable
from saccade.data.splits import SplitName
from saccade.errors import Say, UserError

SplitBy = Literal["auto", "random", "place", "blocks", "group"]
Numbers = NDArray[np.int64]
KILOMETRES_A_DEGREE = 111.32
_FEWEST_UNITS = 8  # below which validation series are drawn at random


def split_units(table: SeriesTable, by: SplitBy, block_size: float) -> tuple[Numbers, str]:
    """A number for each series: those with the same one stay on the same side; and what they are."""
    if by == "auto":
        by = "group" if table.groups is not None else "place" if table.places is not None else "random"
    if by == "random":
        return np.arange(len(table)), "series"
    if by == "group":
        if table.groups is None:
            raise UserError("data.split_by = group needs a column of groups: name it with data.group")
        return np.unique(table.groups, return_inverse=True)[1].astype(np.int64), "groups"
    if table.places is None:
        raise UserError(
            f"data.split_by = {by} needs coordinates: name their columns with data.x and data.y, or the table that has them "
            "with data.samples"
        )
    if by == "place":
        return place_numbers(table), "places"
    return _blocks(table, block_size), f"blocks of {block_size:g} km"


def place_numbers(table: SeriesTable) -> Numbers:
    assert table.places is not None
    return np.unique(table.places.round(6), axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _blocks(table: SeriesTable, size: float) -> Numbers:
    """Squares of the map; degrees are turned into kilometres at the middle latitude, other coordinates are metres."""
    assert table.places is not None
    places = table.places
    if table.in_degrees:
        shrink = np.cos(np.radians(np.nanmean(places[:, 1])))
        kilometres = places * KILOMETRES_A_DEGREE * np.array([shrink, 1.0])
    else:
        kilometres = places / 1000
    cells = np.floor(kilometres / size)
    return np.unique(cells, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


def cut(
    table: SeriesTable, by: SplitBy, block_size: float, folds: int, fold: int, held_out: float, seed: int, say: Say
) -> dict[SplitName, Numbers]:
    """Test is one of `folds` parts, validation a share of the rest."""
    units, what = split_units(table, by, block_size)
    labels = table.with_labels()
    count = int(units.max()) + 1
    if count < max(folds, 3):
        raise UserError(
            f"the series are of {count} {what}, and a split into {folds} parts needs {max(folds, 3)} or more: set data.folds "
            "lower, or choose another data.split_by"
        )
    parts = _parts(units, labels, folds, np.random.default_rng([seed, 1]))
    test, rest = np.flatnonzero(parts == fold), np.flatnonzero(parts != fold)
    inner, how = units[rest], what
    if len(np.unique(inner)) < _FEWEST_UNITS:
        inner, how = np.arange(len(rest)), "series drawn at random from the rest"
    shares = max(2, round(1 / held_out))
    inner_parts = _parts(
        np.unique(inner, return_inverse=True)[1], [labels[n] for n in rest], shares, np.random.default_rng([seed, 2])
    )
    valid, train = rest[inner_parts == 0], rest[inner_parts != 0]
    held = len(np.unique(units[test]))
    say(f"held out by {what}: {held:,} of {count:,} to test; to validate, {how}")
    if what == "groups" and table.groups is not None:
        names = list(dict.fromkeys(table.groups[number] for number in test))
        say(f"the groups to test: {', '.join(names[:10])}{', …' if len(names) > 10 else ''}")
    return {"train": train, "valid": valid, "test": test}


def _parts(units: Numbers, labels: Sequence[str], parts: int, draw: np.random.Generator) -> Numbers:
    """A part for each series: classes evenly where each series is a unit, else parts of even size."""
    count = int(units.max()) + 1
    order = draw.permutation(count)
    part_of = np.zeros(count, np.int64)
    if count == len(units):
        codes = np.unique(labels, return_inverse=True)[1]
        code_of = np.zeros(count, np.int64)
        code_of[units] = codes
        part_of[order[np.argsort(code_of[order], kind="stable")]] = np.arange(count) % parts
    else:
        sizes = np.bincount(units, minlength=count)
        filled = np.zeros(parts, np.int64)
        for unit in order[np.argsort(-sizes[order], kind="stable")]:
            smallest = int(filled.argmin())
            part_of[unit] = smallest
            filled[smallest] += sizes[unit]
    return part_of[units]


def warn_of_neighbours(table: SeriesTable, splits: dict[SplitName, Numbers], say: Say) -> None:
    """Says how many held-out series stand at a place that is trained on too."""
    if table.places is None:
        return
    numbers = place_numbers(table)
    known = set(numbers[splits["train"]].tolist())
    shared = sum(int(numbers[series]) in known for series in splits["test"])
    if shared:
        say(
            f"warning: {shared:,} of the {len(splits['test']):,} series to test stand at places that are trained on too, so the "
            "test flatters; data.split_by=place or blocks holds whole places out"
        )


def require_disjoint(table: SeriesTable, other: SeriesTable, origin: str, say: Say) -> None:
    """One field must not stand on both sides: the same id with the same values is an error, the same id alone is said."""
    mine = {name: number for number, name in enumerate(table.ids)}
    shared = [(mine[name], number) for number, name in enumerate(other.ids) if name in mine]
    same = [number for first, number in shared if _is_same(table, first, other, number)]
    if same:
        raise UserError(
            f"{origin}: {len(same):,} of its series are also in the training table, the first is {other.ids[same[0]]}: "
            "a held-out series must not be trained on; leave them out of one of the two"
        )
    if shared and not all(name.isdigit() for name in (other.ids[number] for _, number in shared[:50])):
        say(
            f"warning: {len(shared):,} ids of {origin}, such as {other.ids[shared[0][1]]}, are also in the training table: "
            "if they are the same fields, the test flatters"
        )


def _is_same(table: SeriesTable, number: int, other: SeriesTable, other_number: int) -> bool:
    own, others = table.rows(number), other.rows(other_number)
    if own.stop - own.start != others.stop - others.start:
        return False
    days_agree = np.array_equal(table.days[own], other.days[others])
    return days_agree and np.array_equal(table.values[own], other.values[others], equal_nan=True)


def class_sentence(labels: Sequence[Any], classes: Sequence[str]) -> str:
    """Classes with their counts, the largest first."""
    names, counts = np.unique(np.asarray(labels, str), return_counts=True)
    order = np.argsort(-counts, kind="stable")
    shown = ", ".join(f"{names[place]} {counts[place]:,}" for place in order[:12])
    return f"{len(classes)} classes: {shown}{', …' if len(order) > 12 else ''}"
