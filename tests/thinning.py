"""A test with several parametrised settings runs by default once for every value of every setting; their whole product is slow."""

from collections import defaultdict
from pathlib import Path

import pytest


def mark_products_slow(items: list[pytest.Item], folder: Path) -> None:
    """Of each test in `folder`, keep a small set of cases that covers every value, and mark the others slow."""
    tests: dict[tuple[str, str], list[pytest.Function]] = defaultdict(list)
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec") and folder in item.path.parents:
            tests[str(item.path), item.originalname].append(item)
    for cases in tests.values():
        for case in _beyond_cover(cases):
            case.add_marker(pytest.mark.slow)


def _beyond_cover(cases: list[pytest.Function]) -> list[pytest.Function]:
    rest, uncovered = list(cases), set().union(*(_values(case) for case in cases))
    while uncovered:
        best = max(rest, key=lambda case: len(uncovered & _values(case)))
        rest.remove(best)
        uncovered -= _values(best)
    return rest


def _values(case: pytest.Function) -> set[tuple[int, str]]:
    """Of each `parametrize` of a test, the id of the values that this case has."""
    return set(enumerate(case.callspec._idlist))
