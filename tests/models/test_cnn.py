"""The course's exercise: how many parameters each of the four networks has, and what attention in place of a dense layer can do."""

import pytest
import torch
from pydantic import ValidationError

from saccade.attention import record_attention
from saccade.data.image_shape import ImageShape
from saccade.errors import UserError
from saccade.models.cnn import Config, build
from saccade.models.shapes import Shapes
from saccade.views.axes import Grid

CIFAR = ImageShape(3, 32, 32)


@pytest.mark.parametrize(
    ("settings", "least", "most"),
    [
        ({"attention": "none", "hidden": 192}, 2.4e6, 2.6e6),
        ({"attention": "none", "hidden": 30}, 0.45e6, 0.55e6),
        ({"widths": (32, 64, 128), "regions": 4, "hidden": 160, "heads": 1}, 0.45e6, 0.55e6),
        ({"widths": (32, 64, 128), "regions": 4, "hidden": 160, "heads": 4, "spread": True}, 0.45e6, 0.55e6),
    ],
    ids=["plain, large", "plain, small", "attention", "multi-head"],
)
def test_the_four_networks_are_as_large_as_the_exercise_has_them(settings, least, most):
    model = build(Config(**settings), Shapes(CIFAR, classes=10))
    assert least < sum(parameter.numel() for parameter in model.parameters()) < most


def small(**settings):
    torch.manual_seed(0)
    model = build(Config(widths=(4, 4, 8), hidden=8, heads=2, **settings), Shapes(CIFAR, classes=3)).eval()
    if settings.get("attention") != "none":
        torch.nn.init.normal_(model.over_cells.attention.output.weight)
    return model


@torch.no_grad()
@pytest.mark.parametrize("settings", [{}, {"spread": True}, {"attention": "none"}])
def test_regions_let_it_read_an_image_of_another_size(settings):
    model = small(regions=3, **settings)
    assert model(torch.randn(2, 3, 48, 20)).shape == (2, 3)
    queries, keys = model.attention_axes("over_cells.attention", {"image": Grid(48, 20)})
    assert (queries.rows, queries.columns, len(keys)) == (12, 5, 60)


@torch.no_grad()
@pytest.mark.parametrize("attention", ["none", "self"])
def test_a_dense_layer_over_every_cell_refuses_an_image_of_another_size(attention):
    with pytest.raises(UserError, match=r"48 × 20 .* 32 × 32.* model\.regions"):
        small(attention=attention)(torch.randn(2, 3, 48, 20))


@torch.no_grad()
def test_attention_is_torchs_multihead_attention_between_two_norms():
    over = small().over_cells
    theirs = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    parts = (over.attention.query, over.attention.key, over.attention.value)
    theirs.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
    theirs.out_proj.load_state_dict(over.attention.output.state_dict())
    cells = torch.randn(2, 8, 5, 3)
    x = cells.flatten(2).transpose(1, 2) + over.positions(5, 3)
    normed = torch.nn.functional.layer_norm(x, (8,))
    expected = torch.nn.functional.layer_norm(x + theirs(normed, normed, normed)[0], (8,))
    torch.testing.assert_close(over(cells), expected.transpose(1, 2).reshape(cells.shape))


@torch.no_grad()
def test_attention_starts_as_the_cells_themselves():
    over = build(Config(), Shapes(CIFAR, classes=3)).over_cells
    cells = torch.randn(2, 192, 8, 8)
    with_places = cells.flatten(2).transpose(1, 2) + over.positions(8, 8)
    expected = torch.nn.functional.layer_norm(with_places, (192,))
    torch.testing.assert_close(over(cells), expected.transpose(1, 2).reshape(cells.shape))


@torch.no_grad()
def test_without_positions_attention_does_not_know_where_a_cell_is():
    """Turned upside down cell by cell, the grid says the same to attention and mean alone; positions tell the difference."""
    model = small(regions=1)
    cells = torch.randn(2, 8, 8, 8)
    model.trunk = torch.nn.Identity()
    turned = cells.flip(2)
    assert not torch.allclose(model(cells), model(turned), atol=1e-4)
    model.over_cells.positions.table.zero_()
    torch.testing.assert_close(model(cells), model(turned), atol=1e-5, rtol=0)


@torch.no_grad()
def test_the_dense_layer_reads_the_mean_of_each_region():
    model = small(attention="none", regions=2)
    cells = torch.randn(1, 8, 8, 8)
    corners = torch.stack([cells[..., :4, :4], cells[..., :4, 4:], cells[..., 4:, :4], cells[..., 4:, 4:]], -1).mean(
        (2, 3)
    )
    model.trunk = torch.nn.Identity()
    read = torch.relu(model.dense[1](corners.flatten(1)))  # (B, D, region)
    torch.testing.assert_close(model(cells), model.output(read))


@torch.no_grad()
def test_spread_heads_start_by_looking_to_different_sides():
    model = small(spread=True)
    with record_attention(model) as maps:
        model(torch.randn(1, 3, 32, 32))
    weights = maps["over_cells.attention"][0][0].unflatten(2, (8, 8))  # (H, Q, R, S)
    columns = (weights.sum(2) * torch.arange(8)).sum(-1)  # where each head looks on average: (H, Q)
    own = torch.arange(64) % 8
    inner = (own > 2) & (own < 5)
    assert (columns[0] < own)[inner].all()
    assert (columns[1] > own)[inner].all()


def test_there_are_no_more_regions_than_cells():
    with pytest.raises(
        UserError, match=r"model\.regions = 9, and images of 32 × 32 pixels give 8 × 8 cells: choose 8 or less"
    ):
        small(regions=9)


def test_heads_must_share_the_width():
    with pytest.raises(ValidationError, match="multiple of 5 heads"):
        Config(heads=5)
    assert Config(heads=5, attention="none").heads == 5
