"""Attention in windows against torch's attention over the whole grid, with the windows written down cell by cell."""

import itertools

import pytest
import torch
from torch.nn import functional as F

from saccade.attention import record_attention
from saccade.layers.windows import WindowAttention, Windows

GRIDS = [(8, 8), (4, 12), (9, 6), (5, 7), (3, 10), (2, 3), (1, 1)]
SHIFTS = [0, 1, 2]


def by_definition(layer: WindowAttention, rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Who sees whom (N, N), and the bias (H, N, N), from the definition: the window of a cell is where its shifted place falls."""
    cells = list(itertools.product(range(rows), range(columns)))
    down, right = (layer.shift if length > layer.window else 0 for length in (rows, columns))
    visible = torch.zeros(len(cells), len(cells), dtype=torch.bool)
    bias = torch.zeros(layer.heads, len(cells), len(cells))
    table = layer.offset_bias.view(2 * layer.window - 1, 2 * layer.window - 1, layer.heads)
    for (i, (r, c)), (j, (s, d)) in itertools.product(enumerate(cells), repeat=2):
        if ((r - down) // layer.window, (c - right) // layer.window) == (
            (s - down) // layer.window,
            (d - right) // layer.window,
        ):
            visible[i, j] = True
            bias[:, i, j] = table[r - s + layer.window - 1, c - d + layer.window - 1]
    return visible, bias


def make(shift: int, window: int = 4) -> WindowAttention:
    torch.manual_seed(0)
    layer = WindowAttention(6, heads=2, window=window, shift=shift)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    return layer


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("grid", GRIDS)
@torch.no_grad()
def test_windows_are_attention_over_the_grid_with_everything_else_hidden(grid, shift):
    layer, x = make(shift), torch.randn(2, *grid, 6)
    visible, bias = by_definition(layer, *grid)
    query, key, value = (
        project(x).view(2, -1, 2, 3).transpose(1, 2) for project in (layer.query, layer.key, layer.value)
    )
    mask = bias.masked_fill(~visible, -torch.inf)
    context = F.scaled_dot_product_attention(query, key, value, attn_mask=mask[None].expand(2, -1, -1, -1))
    expected = layer.output(context.transpose(1, 2).reshape(2, *grid, 6))
    torch.testing.assert_close(layer(x), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("grid", GRIDS)
@torch.no_grad()
def test_the_recorded_map_is_that_of_the_whole_grid(grid, shift):
    layer, x = make(shift), torch.randn(2, *grid, 6)
    visible, bias = by_definition(layer, *grid)
    query, key = (project(x).view(2, -1, 2, 3).transpose(1, 2) for project in (layer.query, layer.key))
    scores = query @ key.transpose(2, 3) / 3**0.5 + bias.masked_fill(~visible, -torch.inf)
    with record_attention(layer) as maps:
        watched = layer(x)
    assert list(maps) == [""]
    torch.testing.assert_close(maps[""][0], scores.softmax(-1), atol=1e-5, rtol=0)
    assert torch.equal(watched, layer(x))


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("grid", GRIDS)
def test_joining_undoes_cutting(grid, shift):
    windows, x = Windows.over(*grid, window=4, shift=shift), torch.randn(2, *grid, 3)
    assert torch.equal(windows.join(windows.cut(x)), x)


def test_gradients_are_those_of_finite_differences():
    layer = make(shift=1, window=2).double()
    x = torch.randn(1, 3, 5, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda x, bias: torch.func.functional_call(layer, {"offset_bias": bias}, x), (x, layer.offset_bias)
    )


def test_without_shift_and_padding_nobody_needs_a_mask():
    assert Windows.over(8, 4, window=4, shift=0).visible(torch.device("cpu")) is None
    assert Windows.over(4, 4, window=4, shift=2).visible(torch.device("cpu")) is None


@pytest.mark.parametrize(
    ("wrong", "said"), [({"heads": 4}, "multiple"), ({"window": 0}, "1 or more"), ({"shift": 4}, "less than")]
)
def test_sizes_that_cannot_be_are_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        WindowAttention(**({"size": 6, "heads": 2, "window": 4} | wrong))
