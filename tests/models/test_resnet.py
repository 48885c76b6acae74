"""The residual network against Hugging Face's block with the same weights, the paper's size, and its twin."""

import pytest
import torch
from pydantic import ValidationError
from torch import nn
from torch.nn import functional as F
from transformers.models.resnet.modeling_resnet import ResNetBasicLayer, ResNetBottleNeckLayer

from saccade.attention import LocalSelfAttention2d, record_attention
from saccade.data.image_shape import ImageShape
from saccade.layers.convolution import convolution
from saccade.models.resnet import Block, Bottleneck, Config, Residual, build
from saccade.models.shapes import Shapes
from saccade.views.axes import Grid

CIFAR = ImageShape(3, 32, 32)


def size(**settings) -> int:
    return sum(parameter.numel() for parameter in build(Config(**settings), Shapes(CIFAR, classes=10)).parameters())


@pytest.mark.parametrize(("blocks", "millions"), [(3, 0.27), (5, 0.46), (7, 0.66), (9, 0.85)])
def test_sizes_are_those_of_the_paper(blocks, millions):
    assert round(size(blocks=blocks) / 1e6, 2) == millions


@pytest.mark.parametrize("neighbourhood", [3, 5, 7])
def test_the_twin_has_fewer_parameters(neighbourhood):
    after_stem = size(attention="after-stem", neighbourhood=neighbourhood)
    assert size(attention="all", neighbourhood=neighbourhood) < after_stem < 0.5 * size()


def test_the_twin_convolves_nowhere_but_in_the_stem():
    for attention, stem in (("after-stem", nn.Conv2d), ("all", LocalSelfAttention2d)):
        model = build(Config(attention=attention, stem_layers=3), Shapes(CIFAR, classes=10))
        assert [type(each) for each in model.stem] == [stem] * 3
        wide = [each for each in model.stages.modules() if isinstance(each, nn.Conv2d) and each.kernel_size != (1, 1)]
        assert not wide
        assert sum(isinstance(each, LocalSelfAttention2d) for each in model.stages.modules()) == 18


def test_a_bottleneck_is_a_quarter_wide_and_its_twin_smaller():
    settings = {"bottleneck": True, "widths": (64, 128, 256), "blocks": 2}
    convolutions = build(Config(**settings), Shapes(CIFAR, classes=10))
    wide = [
        each for each in convolutions.stages.modules() if isinstance(each, nn.Conv2d) and each.kernel_size == (3, 3)
    ]
    assert [each.out_channels for each in wide] == [16, 16, 32, 32, 64, 64]
    assert size(attention="after-stem", **settings) < size(**settings)


def drawn(block: Residual) -> Residual:
    torch.manual_seed(0)
    means = [each.running_mean for each in block.modules() if isinstance(each, nn.BatchNorm2d)]
    for tensor in (*block.parameters(), *means):
        nn.init.normal_(tensor, std=0.5)
    return block.eval()


@pytest.mark.parametrize(
    ("ours", "theirs", "layers"),
    [
        (Block(convolution, 4, 4), ResNetBasicLayer(4, 4), ("first", "second")),
        (Block(convolution, 4, 6, 2), ResNetBasicLayer(4, 6, 2), ("first", "second")),
        (Bottleneck(convolution, 8, 8), ResNetBottleNeckLayer(8, 8), ("narrow", "middle", "widen")),
        (Bottleneck(convolution, 8, 16, 2), ResNetBottleNeckLayer(8, 16, 2), ("narrow", "middle", "widen")),
    ],
)
@torch.no_grad()
def test_a_block_equals_hugging_faces(ours, theirs, layers):
    drawn(ours), theirs.eval()
    for mine, other in zip(layers, theirs.layer, strict=True):
        other.convolution.load_state_dict(getattr(ours, mine).state_dict())
        other.normalization.load_state_dict(getattr(ours, f"{mine}_norm").state_dict())
    images = torch.randn(2, theirs.layer[0].convolution.in_channels, 7, 6)
    torch.testing.assert_close(ours.branch(images), theirs.layer(images))
    if ours.stride == 1 and not ours.new_channels:  # theirs has weights in the shortcut of others
        torch.testing.assert_close(ours(images), theirs(images))


@torch.no_grad()
def test_a_shortcut_takes_every_second_pixel_and_adds_empty_channels():
    block, images = drawn(Block(convolution, 4, 6, stride=2)), torch.randn(2, 4, 7, 6)
    nn.init.zeros_(block.second_norm.weight)
    nn.init.zeros_(block.second_norm.bias)
    out = block(images)
    assert out.shape == (2, 6, 4, 3)
    assert torch.equal(out[:, :4], F.relu(images[:, :, ::2, ::2]))
    assert not out[:, 4:].any()


@pytest.mark.parametrize("kind", [Block, Bottleneck])
def test_a_block_starts_as_its_shortcut(kind):
    images = torch.rand(2, 4, 6, 6)
    assert torch.equal(kind(convolution, 4, 4)(images), images)


def test_a_stage_asks_from_fewer_pixels_than_it_sees():
    model = build(Config(attention="all"), Shapes(CIFAR, classes=10))
    axes = {
        name: [(axis.rows, axis.columns) for axis in model.attention_axes(name, {"image": Grid(30, 17)})]
        for name in (
            "stem.0",
            "stages.0.0.first",
            "stages.1.0.first",
            "stages.1.0.second",
            "stages.2.0.first",
            "stages.2.1.first",
        )
    }
    assert axes == {
        "stem.0": [(30, 17), (30, 17)],
        "stages.0.0.first": [(30, 17), (30, 17)],
        "stages.1.0.first": [(15, 9), (30, 17)],
        "stages.1.0.second": [(15, 9), (15, 9)],
        "stages.2.0.first": [(8, 5), (15, 9)],
        "stages.2.1.first": [(8, 5), (8, 5)],
    }


@pytest.mark.parametrize(
    ("stem_layers", "bottleneck", "widths", "first", "cells"),
    [(1, False, (8, 8, 16), "first", 7 * 9), (2, True, (32, 32, 64), "middle", 4 * 5)],
)
def test_after_a_pooled_stem_the_axes_are_those_the_attention_records(stem_layers, bottleneck, widths, first, cells):
    image, blocks = ImageShape(3, 13, 18), {"blocks": 2, "bottleneck": bottleneck, "widths": widths}
    model = build(
        Config(attention="all", stem_pool=True, stem_layers=stem_layers, **blocks), Shapes(image, classes=3)
    ).eval()
    with record_attention(model) as recorded:
        model(torch.randn(2, 3, image.rows, image.columns))
    for name in recorded:
        query, key = model.attention_axes(name, {"image": Grid(image.rows, image.columns)})
        assert recorded.joined(name).shape[-2:] == (query.rows * query.columns, key.rows * key.columns)
    assert recorded.joined(f"stages.0.0.{first}").shape[-1] == cells


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"neighbourhood": 4}, "no centre"),
        ({"attention": "all", "heads": 16}, "multiples of 2 × 16 heads"),
        ({"widths": (32, 16, 64)}, "must not fall"),
        ({"bottleneck": True, "widths": (30, 60, 120)}, "multiples of 4"),
        ({"bottleneck": True, "attention": "all"}, "multiples of 4 × 2 × 4 heads"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, said):
    with pytest.raises(ValidationError, match=said):
        Config(**settings)
