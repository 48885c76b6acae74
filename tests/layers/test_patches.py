"""Cells and positions against torch's convolution and interpolation."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from saccade.layers.patches import ConvolutionalEmbedding, LearnedPositions, PatchEmbedding


@pytest.mark.parametrize("size", [(8, 8), (4, 12), (10, 7), (1, 1)])
def test_patches_are_a_convolution_without_overlap(size):
    torch.manual_seed(0)
    embed, images = PatchEmbedding(3, 5, patch=4), torch.randn(2, 3, *size)
    rows, columns = embed.grid(*size)
    padded = F.pad(images, (0, 4 * columns - size[1], 0, 4 * rows - size[0]))
    expected = F.conv2d(padded, embed.project.weight.view(5, 3, 4, 4), embed.project.bias, stride=4)
    torch.testing.assert_close(embed(images), expected.permute(0, 2, 3, 1))
    assert embed(images).shape == (2, rows, columns, 5)


@pytest.mark.parametrize(("patch", "widths"), [(2, [8]), (4, [4, 8]), (8, [2, 4, 8])])
@pytest.mark.parametrize("size", [(16, 16), (9, 20)])
def test_a_convolutional_stem_halves_until_a_cell_is_as_wide_as_a_patch(patch, widths, size):
    embed = ConvolutionalEmbedding(3, 8, patch)
    cells = embed(torch.randn(2, 3, *size))
    assert cells.shape == (2, -(-size[0] // patch), -(-size[1] // patch), 8) == (2, *embed.grid(*size), 8)
    assert [layer.out_channels for layer in embed.modules() if isinstance(layer, nn.Conv2d)] == widths


@pytest.mark.parametrize("patch", [0, 1, 3, 12])
def test_a_convolutional_stem_can_only_halve(patch):
    with pytest.raises(ValueError, match=f"2, 4, 8.*got {patch}"):
        ConvolutionalEmbedding(3, 8, patch)


def test_positions_of_the_grid_trained_on_are_the_table_row_by_row():
    positions = LearnedPositions(4, rows=2, columns=3)
    found = positions(2, 3)
    assert all(
        torch.equal(found[3 * row + column], positions.table[row, column]) for row in range(2) for column in range(3)
    )


@pytest.mark.parametrize("grid", [(4, 6), (3, 2), (1, 1)])
def test_positions_of_another_grid_are_torchs_bicubic_interpolation(grid):
    positions = LearnedPositions(4, rows=2, columns=3)
    upsample = nn.Upsample(grid, mode="bicubic", align_corners=False)
    expected = upsample(positions.table.permute(2, 0, 1)[None])[0].permute(1, 2, 0).reshape(-1, 4)
    torch.testing.assert_close(positions(*grid), expected)


def test_a_grid_of_as_many_cells_in_another_shape_is_another_grid():
    positions = LearnedPositions(4, rows=2, columns=6)
    assert not torch.allclose(positions(3, 4), positions(2, 6))
