"""The vision Transformer's parts; tests/models/test_hugging_face.py compares the whole with Hugging Face's."""

import pytest
import torch
from pydantic import ValidationError

from saccade.data.image_shape import ImageShape
from saccade.models.shapes import Shapes
from saccade.models.vit import Config, build
from saccade.views.axes import Grid, Tokens

CIFAR = ImageShape(3, 32, 32)


def make(image=CIFAR, **settings):
    torch.manual_seed(0)
    return build(
        Config(**{"layers": 2, "width": 16, "heads": 2, "feed_forward": 24} | settings), Shapes(image, classes=5)
    ).eval()


def size(**settings) -> int:
    return sum(parameter.numel() for parameter in build(Config(**settings), Shapes(CIFAR, classes=10)).parameters())


def test_sizes_are_those_published():
    """Hassani 2021, table 1: the compact convolutional CCT-2/3×2 and ViT-Lite-7/4."""
    compact = size(stem="convolutional", layers=2, width=128, heads=2, feed_forward=128, pooling="attention")
    assert round(compact / 1e6, 2) == 0.28
    assert round(size(layers=7, width=256, heads=4, feed_forward=512) / 1e6, 2) == 3.72


@pytest.mark.parametrize(
    "settings", [{}, {"positions": "sinusoidal"}, {"stem": "convolutional", "pooling": "attention"}], ids=str
)
@torch.no_grad()
def test_an_image_of_another_size_can_be_read(settings):
    model = make(**settings)
    assert model(torch.randn(2, 3, 24, 40)).shape == (2, 5)
    assert model.attention_axes("layers.0.self_attention", {"image": Grid(24, 40)})[0] == Grid(
        6, 10, model.pooling.extra, cell=4
    )


@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
@torch.no_grad()
def test_positions_tell_where_a_patch_is(positions, monkeypatch):
    model, images = make(positions=positions, pooling="mean"), torch.randn(2, 3, 32, 32)
    turned = images.view(2, 3, 32, 2, 16).flip(3).reshape(2, 3, 32, 32)  # halves change places, patches stay whole
    assert not torch.allclose(model(images), model(turned), atol=1e-4)
    nowhere = torch.zeros(64, 16)
    monkeypatch.setattr(type(model.positions), "forward", lambda self, rows, columns: nowhere)
    torch.testing.assert_close(model(images), model(turned), atol=1e-5, rtol=0)


@torch.no_grad()
def test_a_small_layer_scale_starts_as_the_identity():
    model, images = make(layer_scale=1e-9, pooling="mean"), torch.randn(2, 3, 32, 32)
    cells = model.embed(images).flatten(1, 2) + model.positions(8, 8)
    torch.testing.assert_close(model(images), model.output(model.norm(cells).mean(1)))
    assert not torch.allclose(make(pooling="mean")(images), model(images), atol=1e-3)


def test_stochastic_depth_rises_to_the_last_layer():
    model = make(layers=3, stochastic_depth=0.2)
    assert [layer.around_feed_forward.depth.rate for layer in model.layers] == [0.0, 0.1, 0.2]


def test_the_pooling_attention_asks_for_the_whole_image():
    model = make(pooling="attention")
    assert model.attention_axes("pooling.attention", {"image": Grid(32, 32)}) == (
        Tokens(("[image]",)),
        Grid(8, 8, cell=4),
    )
    assert model.attention_axes("layers.1.self_attention", {"image": Grid(32, 32)}) == (
        Grid(8, 8, cell=4),
        Grid(8, 8, cell=4),
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"width": 30, "heads": 4}, "multiple of 4 heads"),
        ({"width": 30, "heads": 3, "positions": "sinusoidal"}, "multiple of 4 for sinusoidal"),
        ({"stem": "convolutional", "patch": 6}, "power of 2"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, said):
    with pytest.raises(ValidationError, match=said):
        Config(**settings)
