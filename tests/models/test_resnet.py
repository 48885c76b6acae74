"""The residual network against Hugging Face's block with the same weights, the paper's size, and its twin."""

import pytest
import torch
from pydantic import ValidationError
from torch import nn
from torch.nn import functional as F
from transformers.models.resnet.modeling_resnet import ResNetBasicLayer

from saccade.attention import LocalSelfAttention2d, record_attention
from saccade.data.image_shape import ImageShape
from saccade.layers.convolution import convolution
from saccade.models.resnet import Block, Config, build

CIFAR = ImageShape(3, 32, 32)


def size(**settings) -> int:
    return sum(parameter.numel() for parameter in build(Config(**settings), CIFAR, classes=10).parameters())


@pytest.mark.parametrize(("blocks", "millions"), [(3, 0.27), (5, 0.46), (7, 0.66), (9, 0.85)])
def test_sizes_are_those_of_the_paper(blocks, millions):
    assert round(size(blocks=blocks) / 1e6, 2) == millions


@pytest.mark.parametrize("neighbourhood", [3, 5, 7])
def test_the_twin_has_fewer_parameters(neighbourhood):
    after_stem = size(attention="after-stem", neighbourhood=neighbourhood)
    assert size(attention="all", neighbourhood=neighbourhood) < after_stem < 0.5 * size()


def test_the_twin_convolves_nowhere_but_in_the_stem():
    for attention, stem in (("after-stem", nn.Conv2d), ("all", LocalSelfAttention2d)):
        model = build(Config(attention=attention), CIFAR, classes=10)
        assert isinstance(model.stem, stem)
        wide = [each for each in model.stages.modules() if isinstance(each, nn.Conv2d) and each.kernel_size != (1, 1)]
        assert not wide
        assert sum(isinstance(each, LocalSelfAttention2d) for each in model.stages.modules()) == 18


def drawn(block: Block) -> Block:
    torch.manual_seed(0)
    for tensor in (*block.parameters(), block.first_norm.running_mean, block.second_norm.running_mean):
        nn.init.normal_(tensor, std=0.5)
    return block.eval()


@torch.no_grad()
def test_a_block_equals_hugging_faces():
    ours = drawn(Block(convolution(4, 4), convolution(4, 4), 4, 4, stride=1))
    theirs = ResNetBasicLayer(4, 4).eval()
    for mine, other in zip(("first", "second"), theirs.layer, strict=True):
        other.convolution.load_state_dict(getattr(ours, mine).state_dict())
        other.normalization.load_state_dict(getattr(ours, f"{mine}_norm").state_dict())
    images = torch.randn(2, 4, 7, 6)
    torch.testing.assert_close(ours(images), theirs(images))


@torch.no_grad()
def test_a_shortcut_takes_every_second_pixel_and_adds_empty_channels():
    block, images = drawn(Block(convolution(4, 6, 2), convolution(6, 6), 4, 6, stride=2)), torch.randn(2, 4, 7, 6)
    nn.init.zeros_(block.second_norm.weight)
    nn.init.zeros_(block.second_norm.bias)
    out = block(images)
    assert out.shape == (2, 6, 4, 3)
    assert torch.equal(out[:, :4], F.relu(images[:, :, ::2, ::2]))
    assert not out[:, 4:].any()


def test_a_block_starts_as_its_shortcut():
    images = torch.rand(2, 4, 6, 6)
    assert torch.equal(Block(convolution(4, 4), convolution(4, 4), 4, 4, 1)(images), images)


def test_a_stage_asks_from_fewer_pixels_than_it_sees():
    model = build(Config(attention="all"), CIFAR, classes=10)
    axes = {
        name: [(axis.rows, axis.columns) for axis in model.attention_axes(name, 30, 17)]
        for name in (
            "stem",
            "stages.0.0.first",
            "stages.1.0.first",
            "stages.1.0.second",
            "stages.2.0.first",
            "stages.2.1.first",
        )
    }
    assert axes == {
        "stem": [(30, 17), (30, 17)],
        "stages.0.0.first": [(30, 17), (30, 17)],
        "stages.1.0.first": [(15, 9), (30, 17)],
        "stages.1.0.second": [(15, 9), (15, 9)],
        "stages.2.0.first": [(8, 5), (15, 9)],
        "stages.2.1.first": [(8, 5), (8, 5)],
    }


def test_after_a_pooled_stem_the_axes_are_those_the_attention_records():
    image = ImageShape(3, 13, 18)
    model = build(Config(attention="after-stem", stem_pool=True, blocks=1, widths=(8, 8, 16)), image, classes=3).eval()
    with record_attention(model) as recorded:
        model(torch.randn(2, 3, image.rows, image.columns))
    for name in recorded:
        query, key = model.attention_axes(name, image.rows, image.columns)
        assert recorded.joined(name).shape[-2:] == (query.rows * query.columns, key.rows * key.columns)
    assert recorded.joined("stages.0.0.first").shape[-1] == 7 * 9


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"neighbourhood": 4}, "no centre"),
        ({"attention": "all", "heads": 16}, "multiples of 2 × 16 heads"),
        ({"widths": (32, 16, 64)}, "must not fall"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, said):
    with pytest.raises(ValidationError, match=said):
        Config(**settings)
