"""A folder in Hugging Face's format used as a run, against Hugging Face's own pixels and model."""

import json

import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_image
from transformers import (
    SwinConfig,
    SwinForImageClassification,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessorPil,
)

import saccade
from saccade.errors import UserError

LABELS = {0: "cat", 1: "dog", 2: "boat"}


@pytest.fixture
def photo(tmp_path):
    path = tmp_path / "photo.png"
    Image.fromarray(load_sample_image("china.jpg")).save(path)  # 427 × 640
    return path


def saved(model, processor, directory):
    torch.manual_seed(0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    model.eval().save_pretrained(directory)
    processor.save_pretrained(directory)
    return model


def a_vit(directory, **pixels) -> tuple[ViTForImageClassification, ViTImageProcessorPil]:
    settings = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40}
    config = ViTConfig(**settings, image_size=32, patch_size=8, id2label=LABELS)
    processor = ViTImageProcessorPil(size={"height": 32, "width": 32}, **pixels)
    return saved(ViTForImageClassification(config), processor, directory), processor


def probabilities_of(model, processor, photo) -> list[float]:
    with torch.no_grad():
        logits = model(**processor(Image.open(photo), return_tensors="pt")).logits
    return logits.softmax(1)[0].tolist()


def assert_same(directory, model, processor, photo) -> None:
    expected = probabilities_of(model, processor, photo)
    [answer] = saccade.load(directory).predict([photo], best=3)
    found = dict(zip(answer.classes, answer.probabilities, strict=True))
    assert [found[name] for name in LABELS.values()] == pytest.approx(expected, abs=1e-4)
    assert max(expected) < 0.99


@pytest.mark.parametrize(
    "pixels",
    [
        {},
        {"image_mean": [0.48, 0.46, 0.41], "image_std": [0.23, 0.22, 0.225], "resample": 3},
        {"do_normalize": False},
    ],
    ids=str,
)
def test_a_vit_predicts_what_hugging_face_does_from_the_file_on(tmp_path, photo, pixels):
    assert_same(tmp_path / "theirs", *a_vit(tmp_path / "theirs", **pixels), photo)


def test_a_swin_predicts_what_hugging_face_does_from_the_file_on(tmp_path, photo):
    config = SwinConfig(
        embed_dim=12, depths=[2, 2], num_heads=[2, 3], window_size=4, image_size=32, patch_size=2, id2label=LABELS
    )
    processor = ViTImageProcessorPil(size={"height": 32, "width": 32})
    model = saved(SwinForImageClassification(config), processor, tmp_path / "theirs")
    assert_same(tmp_path / "theirs", model, processor, photo)


def test_without_a_preprocessor_pixels_are_as_their_vit_takes_them(tmp_path, photo):
    theirs = a_vit(tmp_path / "theirs")
    (tmp_path / "theirs" / "preprocessor_config.json").unlink()
    assert_same(tmp_path / "theirs", *theirs, photo)


def test_it_can_be_looked_into_and_judged(tmp_path, photo):
    theirs = a_vit(tmp_path / "theirs")
    run = saccade.load(tmp_path / "theirs")
    assert {"layers.0.self_attention", "layers.1.self_attention"} <= {each.name for each in run.look(photo).maps}
    expected = probabilities_of(*theirs, photo)
    best = LABELS[expected.index(max(expected))]
    for label in LABELS.values():
        folder = tmp_path / f"others-{label}" / label
        folder.mkdir(parents=True)
        Image.open(photo).save(folder / "photo.png")
        assert run.evaluate(data=folder.parent).accuracy == (100 if label == best else 0)
    with pytest.raises(UserError, match="holds no test images, only a model: name others"):
        run.evaluate()


def test_it_has_attention_and_no_examples(tmp_path):
    a_vit(tmp_path / "theirs")
    task = saccade.load(tmp_path / "theirs").task
    assert task.attends
    with pytest.raises(UserError, match="holds no test images, only a model: name others"):
        task.held_out("test")


@pytest.mark.parametrize(
    "settings",
    ['{"image_mean": [0.5]}', '{"image_std": [0, 1, 1]}', '{"image_std": [NaN, 1, 1]}', "[]", "{"],
)
def test_pixels_that_cannot_be_made_are_a_sentence(tmp_path, settings):
    a_vit(tmp_path / "theirs")
    (tmp_path / "theirs" / "preprocessor_config.json").write_text(settings)
    with pytest.raises(UserError, match=r"preprocessor_config\.json does not say how pixels are standardised"):
        saccade.load(tmp_path / "theirs")


def test_weights_of_another_size_are_a_sentence(tmp_path):
    a_vit(tmp_path / "theirs")
    path = tmp_path / "theirs" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"intermediate_size": 48}))
    with pytest.raises(UserError, match=r"model\.safetensors does not fit its config\.json"):
        saccade.load(tmp_path / "theirs")


@pytest.mark.parametrize(
    "settings",
    [
        {"do_center_crop": True, "size": 256, "crop_size": 224},
        {"size": {"shortest_edge": 256}},
        {"do_resize": False},
        {"do_rescale": False},
        {"rescale_factor": 0.5},
        {"resample": 77},
    ],
    ids=str,
)
def test_what_else_is_done_with_images_is_refused_and_not_ignored(tmp_path, settings):
    a_vit(tmp_path / "theirs")
    (tmp_path / "theirs" / "preprocessor_config.json").write_text(json.dumps(settings))
    with pytest.raises(
        UserError, match=r"preprocessor_config\.json .*(choose another model|a filter that Pillow does not have)"
    ):
        saccade.load(tmp_path / "theirs")


def test_what_is_null_is_as_if_it_were_not_there(tmp_path, photo):
    theirs = a_vit(tmp_path / "theirs")
    path = tmp_path / "theirs" / "preprocessor_config.json"
    absent = dict.fromkeys(("resample", "rescale_factor", "do_rescale", "image_mean", "image_std", "do_center_crop"))
    path.write_text(json.dumps(json.loads(path.read_text()) | absent))
    assert_same(tmp_path / "theirs", *theirs, photo)


def test_two_classes_of_one_name_are_told_apart(tmp_path):
    a_vit(tmp_path / "theirs")
    path = tmp_path / "theirs" / "config.json"
    names = {"0": "crane", "1": "dog", "2": "crane"}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"id2label": names}))
    assert saccade.load(tmp_path / "theirs").task.classes == ("crane", "dog", "crane (2)")
