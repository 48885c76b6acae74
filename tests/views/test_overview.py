"""A picture of very many maps shows their means instead."""

import numpy as np
import pytest

from saccade.views.axes import Tokens
from saccade.views.maps import AttentionMap
from saccade.views.overview import MOST_PANELS, overview

SOURCE, TARGET = Tokens(("a", "dog")), Tokens(("ein", "hund", "<end>"))


def some(name: str, heads: int, queries: Tokens = TARGET) -> AttentionMap:
    """A map over the source, by its title where others look at it."""
    titles = ("translation", "source") if queries is TARGET else ()
    weights = np.random.default_rng(len(name)).random((heads, len(queries), len(SOURCE))).astype(np.float32)
    return AttentionMap(name, weights / weights.sum(-1, keepdims=True), queries, SOURCE, *titles)


def test_few_maps_stay_as_they_are() -> None:
    maps = [some("decoder.layers.0.anything", 4), some("decoder.layers.1.anything", 4)]
    assert overview(maps, "source") == maps
    assert overview(maps[:1], "source") == maps[:1]


def test_many_become_the_mean_of_all_and_the_mean_of_each_layer_over_the_source() -> None:
    crosses = [some(f"decoder.layers.{number}.anything", 4) for number in range(4)]
    maps = [some("encoder.layers.0.self_attention", 4, SOURCE), *crosses]
    shown = overview(maps, "source")
    assert [attention.heads for attention in shown] == [1] * 5
    assert len(shown) <= MOST_PANELS
    np.testing.assert_allclose(
        shown[0].weights[0], np.mean([attention.weights.mean(0) for attention in crosses], 0), rtol=1e-6
    )
    np.testing.assert_allclose(shown[3].weights[0], crosses[2].weights.mean(0), rtol=1e-6)
    assert shown[3].label == "decoder · layer 2 · anything, average of 4 heads"


@pytest.mark.parametrize("name", ["layers.{}.self_attention", "attention.{}"])
def test_without_a_source_every_map_is_averaged(name: str) -> None:
    maps = [some(name.format(number), 8, SOURCE) for number in range(3)]
    assert [attention.heads for attention in overview(maps, "source")][-3:] == [1, 1, 1]
