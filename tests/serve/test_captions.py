"""Captions over HTTP: they say what the library says, and each word has its weights over the picture."""

import io
import math
import shutil
from base64 import b64decode

import numpy as np
import pytest
from PIL import Image

import saccade
from saccade.serve.limits import Limits
from saccade.serve.served import Served

from .conftest import picture
from .test_api import ask


@pytest.fixture(scope="module")
def example(client):
    runs = client.get("/api/runs").json()["runs"]
    return next(run for run in runs if run["name"] == "captions")["examples"][0]


@pytest.fixture
def photo(example):
    return Image.open(io.BytesIO(b64decode(example.partition(",")[2])))


def test_a_caption_is_what_the_library_says(client, caption_run, example, photo):
    mine = saccade.load(caption_run).predict([photo], best=3)[0]
    answer = ask(client, "predict", run="captions", image=example, best=3)
    assert [caption["text"] for caption in answer["captions"]] == mine.lines()
    for caption in answer["captions"]:
        product = math.prod(word["probability"] for word in caption["words"])
        assert math.log(product) == pytest.approx(caption["log_prob"], rel=1e-4)


@pytest.mark.parametrize("target", [None, "a red circle"])
def test_each_word_has_its_weights_over_the_picture(client, opened, example, photo, target):
    view = opened["captions"].run.look(photo, target=target)
    answer = ask(client, "look", run="captions", image=example, target=target)
    assert answer["text"] == view.text
    assert (answer["picture"]["rows"], answer["picture"]["columns"]) == view.picture.shape[:2]
    (shown,) = answer["maps"]
    np.testing.assert_allclose(shown["weights"], view.maps[0].weights, atol=6e-6)
    words = [word["text"] for word in answer["words"]]
    assert words
    assert shown["queries"]["labels"] == [*words, "<end>"][: len(shown["queries"]["labels"])]
    assert np.shape(shown["weights"])[2] == shown["keys"]["rows"] * shown["keys"]["columns"]


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"text": "a"}, "Unknown field `text`"),
        ({"image": None}, "`image` is wrong"),
        ({"target": "red " * 61}, "a caption of 61 words was given, and at most 60 are allowed"),
        ({"pixel": [0, 0]}, "Unknown field `pixel`"),
        ({"only": "nothing"}, "no attention of this model matches"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(client, more, sentence):
    assert sentence in ask(client, "look", 422, **{"run": "captions", "image": picture(9, 9), **more})["error"]


def test_a_forced_beginning_of_a_caption_is_kept(client):
    answer = ask(client, "predict", run="captions", image=picture(), prefix="a red")
    assert answer["captions"][0]["text"].startswith("a red")


def test_a_run_without_its_images_has_no_examples_but_captions(caption_run, tmp_path):
    moved = tmp_path / "moved"
    shutil.copytree(caption_run, moved)
    shutil.rmtree(moved / "images")
    run = Served("moved", saccade.load(moved), Limits())
    assert run.info().examples == []


@pytest.mark.slow
def test_a_model_that_never_looks_back_has_a_caption_and_no_maps(tmp_path):
    from saccade.runs.train import train

    settings = [
        "data.examples=60",
        "train.steps=2",
        "train.validate_every=2",
        "train.threads=1",
        "train.precision=fp32",
    ]
    settings += ["model.encoder.width=16", "model.embedding=16", "model.hidden=16", "decode.valid_sentences=2"]
    run = Served("none", saccade.load(train("shapes-none", settings, tmp_path / "none")), Limits())
    assert not run.info().attends
    for target in (None, "a red circle"):
        answer = run.look(run.read("look", {"image": picture(20, 20), "target": target}))
        assert answer["maps"] == []
        assert answer["words"]
