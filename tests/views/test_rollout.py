import numpy as np
import pytest

from saccade.errors import UserError
from saccade.views import AttentionMap, rollout
from saccade.views.axes import Grid, Tokens

WORDS = Tokens(("a", "b", "c", "d"))


def layers(count: int, heads: int = 3, words: Tokens | Grid = WORDS) -> list[AttentionMap]:
    weights = np.random.default_rng(0).dirichlet(np.ones(len(words)), size=(count, heads, len(words)))
    return [AttentionMap(f"layers.{index}.self_attention", each, words, words) for index, each in enumerate(weights)]


def looped(maps: list[AttentionMap], residual: float) -> np.ndarray:
    size = len(maps[0].queries)
    result = None
    for each in maps:
        layer = np.zeros((size, size))
        for row in range(size):
            for column in range(size):
                mean = sum(float(head[row, column]) for head in each.weights) / each.heads
                layer[row, column] = (1 - residual) * mean + (residual if row == column else 0)
            layer[row] /= sum(layer[row])
        result = layer if result is None else np.dot(layer, result)
    return result


@pytest.mark.parametrize("residual", [0.0, 0.5, 0.8])
@pytest.mark.parametrize("count", [1, 4])
def test_rollout_equals_a_plain_loop(count, residual):
    maps = layers(count)
    np.testing.assert_allclose(rollout(maps, residual).weights[0], looped(maps, residual), rtol=1e-5)


def test_two_layers_by_hand():
    first = AttentionMap("layers.0", [[0.0, 1.0], [0.0, 1.0]], Tokens(("a", "b")), Tokens(("a", "b")))
    second = AttentionMap("layers.1", [[1.0, 0.0], [1.0, 0.0]], Tokens(("a", "b")), Tokens(("a", "b")))
    # Â_1 = [[.5, .5], [0, 1]], Â_2 = [[1, 0], [.5, .5]], Â_2 Â_1 = [[.5, .5], [.25, .75]]
    np.testing.assert_allclose(rollout([first, second]).weights[0], [[0.5, 0.5], [0.25, 0.75]])


def test_rows_sum_to_one_and_the_axes_stay():
    grid = Grid(2, 2, ("[class]",))
    flow = rollout(layers(6, words=grid))
    np.testing.assert_allclose(flow.weights.sum(axis=-1), 1, rtol=1e-5)
    assert (flow.heads, flow.queries, flow.keys) == (1, grid, grid)


def test_a_row_that_sees_nothing_passes_itself_on():
    blind = AttentionMap("layers.0", np.zeros((2, 2)), Tokens(("a", "b")), Tokens(("a", "b")))
    np.testing.assert_array_equal(rollout([blind]).weights[0], np.eye(2))
    np.testing.assert_array_equal(rollout([blind], residual=0.0).weights[0], np.zeros((2, 2)))


def test_maps_that_are_no_stack_of_self_attention_are_refused():
    cross = AttentionMap("decoder.cross_attention", np.ones((4, 2)) / 2, WORDS, Tokens(("x", "y")))
    with pytest.raises(UserError, match="looks from 4 to 2 positions"):
        rollout([*layers(1), cross])
    with pytest.raises(UserError, match="none was given"):
        rollout([])
