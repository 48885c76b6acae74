"""Convolution blocks against the same steps by torch.nn.functional."""

import pytest
import torch
from torch.nn import functional as F

from saccade.layers.convolution import CellNorm, ConvolutionBlock, PoolingBlock, channels_last, convolution


def with_drawn_norm(block):
    """A norm that has seen something: its scale positive, as pooling before it wants."""
    norm = next(layer for layer in block if isinstance(layer, torch.nn.BatchNorm2d))
    torch.nn.init.uniform_(norm.weight, 0.5, 2.0)
    for tensor in (norm.bias, norm.running_mean):
        torch.nn.init.normal_(tensor)
    torch.nn.init.uniform_(norm.running_var, 0.5, 2.0)
    return block.eval(), norm


def by_hand(block, norm, images):
    x = F.conv2d(images, block[0].weight, padding=1)
    return F.relu(F.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias))


def test_a_block_is_convolution_norm_and_relu():
    torch.manual_seed(0)
    block, norm = with_drawn_norm(ConvolutionBlock(3, 6))
    images = torch.randn(2, 3, 7, 5)
    torch.testing.assert_close(block(images), by_hand(block, norm, images))


@pytest.mark.parametrize("size", [(8, 6), (7, 5), (1, 1)])
def test_pooling_first_gives_the_maxima_of_the_block_and_drops_no_pixel(size):
    torch.manual_seed(0)
    block, norm = with_drawn_norm(PoolingBlock(3, 6))
    images = torch.randn(2, 3, *size)
    rows, columns = -(-size[0] // 2), -(-size[1] // 2)
    whole = F.pad(by_hand(block, norm, images), (0, 2 * columns - size[1], 0, 2 * rows - size[0]), value=-torch.inf)
    expected = whole.unflatten(3, (columns, 2)).unflatten(2, (rows, 2)).amax((3, 5))
    torch.testing.assert_close(block(images), expected)


def test_the_order_in_memory_changes_no_value():
    torch.manual_seed(0)
    layer, images = convolution(3, 6, stride=2), torch.randn(2, 3, 9, 9)
    assert torch.equal(channels_last(images), images)
    assert channels_last(images).stride(1) == 1
    torch.testing.assert_close(layer(channels_last(images)), layer(images))
    assert layer(channels_last(images)).stride(1) == 1


def test_relu_keeps_the_variance_through_many_convolutions():
    torch.manual_seed(0)
    x = torch.randn(4, 32, 24, 24)
    for _ in range(6):
        x = F.relu(convolution(32, 32)(x))
    assert 0.3 < x.square().mean() < 3  # a third of it would be lost at every step without the right scale


def test_the_norm_of_a_cell_is_over_its_channels():
    torch.manual_seed(0)
    norm, cells = CellNorm(6), torch.randn(2, 6, 5, 4)
    for row in range(5):
        for column in range(4):
            torch.testing.assert_close(norm(cells)[:, :, row, column], F.layer_norm(cells[:, :, row, column], (6,)))
