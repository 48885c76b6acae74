"""ViT and Swin against Hugging Face's own, with random weights that went through its files."""

import json

import pytest
import torch
from transformers import SwinConfig, SwinForImageClassification, ViTConfig, ViTForImageClassification

from saccade.attention import record_attention
from saccade.errors import UserError
from saccade.models.hugging_face import from_hugging_face
from saccade.models.swin import Swin
from saccade.models.vit import VisionTransformer

LABELS = {0: "cat", 1: "dog", 2: "boat"}


def saved(model, directory):
    """Weights far from their small beginnings, so that every part has a say."""
    torch.manual_seed(0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.eval().save_pretrained(directory)
    return model


def a_vit(directory, **more) -> ViTForImageClassification:
    settings = {
        "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 40, "image_size": 16,
        "patch_size": 4, "id2label": LABELS,
    } | more  # fmt: skip
    return saved(ViTForImageClassification(ViTConfig(**settings)), directory)


def a_swin(directory, **more) -> SwinForImageClassification:
    settings = {
        "embed_dim": 12, "depths": [2, 3, 2], "num_heads": [2, 3, 4], "window_size": 4, "image_size": 64, "patch_size": 2,
        "mlp_ratio": 2.0, "id2label": LABELS,
    } | more  # fmt: skip
    return saved(SwinForImageClassification(SwinConfig(**settings)), directory)


def images(*shape: int) -> torch.Tensor:
    return torch.randn(3, *shape, generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def assert_same(ours, theirs, pictures, **how) -> None:
    expected = theirs(pictures, **how).logits
    assert expected.std() > 0.1
    torch.testing.assert_close(ours(pictures), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"qkv_bias": False},
        {"num_channels": 1, "layer_norm_eps": 1e-3},
        {"image_size": [8, 24]},
    ],
    ids=str,
)
def test_vit_equals_hugging_face(tmp_path, more):
    theirs = a_vit(tmp_path, **more)
    ours, labels = from_hugging_face(tmp_path)
    size = more.get("image_size", [16, 16])
    assert isinstance(ours, VisionTransformer)
    assert_same(ours, theirs, images(more.get("num_channels", 3), *size))
    assert labels == ("cat", "dog", "boat")


@pytest.mark.parametrize("size", [(32, 32), (8, 8), (12, 28)])
def test_vit_interpolates_positions_as_hugging_face_does(tmp_path, size):
    theirs = a_vit(tmp_path)
    ours, _ = from_hugging_face(tmp_path)
    assert_same(ours, theirs, images(3, *size), interpolate_pos_encoding=True)


def test_vit_interpolates_positions_of_a_grid_that_is_not_square(tmp_path):
    """Where Hugging Face refuses (it takes a square grid for granted), torch's own interpolation of the true grid is the measure."""
    a_vit(tmp_path, image_size=[8, 24])
    ours, _ = from_hugging_face(tmp_path)
    table = ours.positions.table.detach()
    assert table.shape == (2, 6, 24)
    upsample = torch.nn.Upsample((4, 3), mode="bicubic", align_corners=False)
    expected = upsample(table.permute(2, 0, 1)[None])[0]
    torch.testing.assert_close(ours.positions(4, 3), expected.flatten(1).T)
    assert torch.equal(ours.positions(2, 6), table.reshape(12, 24))


def test_vit_attends_as_hugging_face_does(tmp_path):
    a_vit(tmp_path)
    theirs = ViTForImageClassification.from_pretrained(tmp_path, attn_implementation="eager").eval()
    ours, _ = from_hugging_face(tmp_path)
    with torch.no_grad(), record_attention(ours) as maps:
        ours(images(3, 16, 16))
        expected = theirs(images(3, 16, 16), output_attentions=True).attentions
    assert len(maps) == len(expected) == 3
    for (weights,), theirs_weights in zip(maps.values(), expected, strict=True):
        torch.testing.assert_close(weights, theirs_weights, atol=1e-5, rtol=0)


@pytest.mark.parametrize("size", [(64, 64), (64, 96)])
@pytest.mark.parametrize("more", [{}, {"qkv_bias": False, "window_size": 5, "image_size": 80}], ids=str)
def test_swin_equals_hugging_face(tmp_path, more, size):
    """Grids that are multiples of the window: elsewhere Hugging Face lets padding take weight, and ours does not."""
    if more:
        size = (size[0] // 16 * 20, size[1] // 16 * 20)
    theirs = a_swin(tmp_path, **more)
    ours, labels = from_hugging_face(tmp_path)
    assert isinstance(ours, Swin)
    assert_same(ours, theirs, images(3, *size))
    assert labels == ("cat", "dog", "boat")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_missing_file_is_named(tmp_path, name):
    a_vit(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(UserError, match=name):
        from_hugging_face(tmp_path)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_damaged_file_is_named(tmp_path, name):
    a_vit(tmp_path)
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:50])
    with pytest.raises(UserError, match=name):
        from_hugging_face(tmp_path)


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("model_type", "beit", "swin and vit can be read"),
        ("hidden_act", "relu", "gelu"),
        ("image_size", "224", "does not fit its config.json"),
        ("image_size", [16], "does not fit its config.json"),
        ("patch_size", None, "does not fit its config.json"),
        ("patch_size", [4, 2], "square"),
        ("hidden_size", 48, "does not fit"),
        ("num_hidden_layers", 2, "does not fit"),
        ("num_attention_heads", 5, "does not fit"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path, setting, value, said):
    a_vit(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {setting: value}))
    with pytest.raises(UserError, match=said):
        from_hugging_face(tmp_path)


def test_settings_that_are_none_are_refused(tmp_path):
    a_vit(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(UserError, match=r"config\.json is not the settings of a model"):
        from_hugging_face(tmp_path)


@pytest.mark.parametrize(
    "more", [{"use_absolute_embeddings": True}, {"layer_norm_eps": 1e-3}, {"mlp_ratio": 1.5}], ids=str
)
def test_a_swin_of_another_kind_is_refused(tmp_path, more):
    a_swin(tmp_path, **more)
    with pytest.raises(UserError, match="Swin"):
        from_hugging_face(tmp_path)
