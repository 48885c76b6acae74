"""The course's exercise: how many parameters each of the four networks has, and what attention in place of a dense layer can do."""

import pytest
import torch
from pydantic import ValidationError

from saccade.attention import record_attention
from saccade.data.image_shape import ImageShape
from saccade.errors import UserError
from saccade.models.cnn import Config, build

CIFAR = ImageShape(3, 32, 32)


@pytest.mark.parametrize(
    ("settings", "least", "most"),
    [
        ({"attention": "none", "hidden": 192}, 2.4e6, 2.6e6),
        ({"attention": "none", "hidden": 30}, 0.45e6, 0.55e6),
        ({"attention": "self", "heads": 1}, 0.45e6, 0.55e6),
        ({"attention": "self", "heads": 4, "spread": True, "regions": 4}, 0.45e6, 0.6e6),
    ],
    ids=["plain, large", "plain, small", "attention", "multi-head"],
)
def test_the_four_networks_are_as_large_as_the_exercise_has_them(settings, least, most):
    model = build(Config(**settings), CIFAR, classes=10)
    assert least < sum(parameter.numel() for parameter in model.parameters()) < most


def small(**settings):
    torch.manual_seed(0)
    return build(Config(widths=(4, 4, 8), hidden=8, heads=2, **settings), CIFAR, classes=3).eval()


@torch.no_grad()
@pytest.mark.parametrize("settings", [{}, {"spread": True}, {"regions": 3}])
def test_attention_reads_an_image_of_another_size(settings):
    model = small(**settings)
    assert model(torch.randn(2, 3, 48, 20)).shape == (2, 3)
    queries, keys = model.attention_axes("layer.self_attention", 48, 20)
    assert (queries.rows, queries.columns, len(keys)) == (12, 5, 60)


@torch.no_grad()
def test_a_dense_layer_refuses_an_image_of_another_size():
    with pytest.raises(UserError, match=r"48 × 20 .* 32 × 32"):
        small(attention="none")(torch.randn(2, 3, 48, 20))


@torch.no_grad()
def test_without_positions_attention_does_not_know_where_a_cell_is():
    """Turned upside down cell by cell, the grid says the same to attention and mean alone; positions tell the difference."""
    model = small()
    cells = torch.randn(2, 8, 8, 8)
    model.trunk = torch.nn.Identity()
    turned = cells.flip(2)
    assert not torch.allclose(model(cells), model(turned), atol=1e-4)
    model.positions.table.zero_()
    torch.testing.assert_close(model(cells), model(turned), atol=1e-5, rtol=0)


@torch.no_grad()
def test_regions_tell_which_part_of_the_grid_said_what():
    """Weights of one region: only a cell there changes the answer, if nothing attends and no norm mixes the cells."""
    model = small(regions=2)
    model.trunk, model.layer, model.positions.table = (
        torch.nn.Identity(),
        torch.nn.Identity(),
        torch.nn.Parameter(torch.zeros(8, 8, 8)),
    )
    model.layer.forward = lambda x, bias: x
    model.output.weight.unflatten(1, (8, 2, 2))[..., :, 0] = 0
    cells = torch.randn(1, 8, 8, 8)
    left, right = cells.clone(), cells.clone()
    left[..., 0], right[..., 7] = 1.0, 1.0
    torch.testing.assert_close(model(left), model(cells))
    assert not torch.allclose(model(right), model(cells), atol=1e-3)


@torch.no_grad()
def test_spread_heads_start_by_looking_to_different_sides():
    model = small(spread=True)
    with record_attention(model) as maps:
        model(torch.randn(1, 3, 32, 32))
    weights = maps["layer.self_attention"][0][0].unflatten(2, (8, 8))  # (H, Q, R, S)
    columns = (weights.sum(2) * torch.arange(8)).sum(-1)  # where each head looks on average: (H, Q)
    own = torch.arange(64) % 8
    inner = (own > 2) & (own < 5)
    assert (columns[0] < own)[inner].all()
    assert (columns[1] > own)[inner].all()


def test_heads_must_share_the_width():
    with pytest.raises(ValidationError, match="multiple of 5 heads"):
        Config(heads=5)
    assert Config(heads=5, attention="none").heads == 5
