"""Each word of a caption over the photo: the weights are those recorded, and every ending gives a file that shows them."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from saccade.attention import record_attention
from saccade.data.captions.dataset import Captions, CaptionsConfig
from saccade.data.image_shape import ImageShape
from saccade.data.text.tokenizer import BOS, Tokenizer
from saccade.errors import UserError
from saccade.models import caption_transformer, show_attend_tell, show_tell
from saccade.tasks.captions import look as looking
from saccade.tasks.captions.options import CaptionOptions
from saccade.tasks.captions.task import CaptionTask, ObjectiveConfig
from saccade.tasks.task import Example
from saccade.tasks.writing import DecodeConfig
from saccade.views.axes import Grid, Tokens
from saccade.views.maps import AttentionMap
from saccade.views.view import View

MODELS = {
    "none": (show_tell, {"embedding": 8, "hidden": 8}),
    "soft": (show_attend_tell, {"embedding": 8, "hidden": 8, "attention": 8}),
    "hard": (show_attend_tell, {"embedding": 8, "hidden": 8, "attention": 8, "selection": "hard"}),
    "transformer": (caption_transformer, {"layers": 2, "width": 16, "heads": 2, "feed_forward": 16}),
}
LAYERS = ["decoder.layers.0.cross_attention", "decoder.layers.1.cross_attention"]


def a_task(directory, name: str) -> CaptionTask:
    module, settings = MODELS[name]
    vocabulary = Tokenizer.train(["a dog runs on the red grass"], "words", 50, lowercase=True)
    recipe = SimpleNamespace(
        task="captions",
        data=CaptionsConfig(corpus="shapes"),
        objective=ObjectiveConfig(),
        decode=DecodeConfig(max_length=4),
        train=SimpleNamespace(seed=1),
        model=module.Config(encoder={"name": "cnn", "cell": 8, "width": 16}, **settings),
        model_module=module,
    )
    task = CaptionTask(recipe, Captions(directory, ImageShape(3, 24, 32), vocabulary))
    task.model.eval()
    return task


def a_picture(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (24, 32, 3), dtype=np.uint8)


def look(task: CaptionTask, picture, target: str | None = None, only: str | None = None) -> View:
    return looking.look(task, task.input.from_python(picture), target, only)


def recorded(task, picture, text) -> dict[str, np.ndarray]:
    """All weights (H, Q, K) over the image, by hand."""
    ids = task.vocabulary.encode(text)
    with torch.no_grad(), record_attention(task.model) as maps:
        encoded = task.model.encode(task.model.features(torch.tensor(picture.transpose(2, 0, 1))[None]))
        task.model.read(encoded, torch.tensor([[BOS, *ids]]))
    found = {name: maps.joined(name)[0].numpy() for name in maps if "self" not in name}
    return {name: weights if weights.ndim == 3 else weights[None] for name, weights in found.items()}


@pytest.mark.parametrize("name", ["soft", "hard", "transformer"])
def test_every_word_looks_where_it_was_recorded_to_look(tmp_path, name):
    task, picture = a_task(tmp_path, name), a_picture()
    maps, expected = look(task, picture, "a dog runs").maps, recorded(task, picture, "a dog runs")
    assert [each.name for each in maps] == list(expected)
    for each in maps:
        np.testing.assert_allclose(each.weights, expected[each.name], atol=1e-6)
        assert each.queries == Tokens(("a", "dog", "runs", "<end>"))
        assert each.keys == Grid(3, 4)
        assert (each.query_title, each.key_title) == ("words", "image")


def test_without_a_caption_the_models_own_is_shown(tmp_path):
    task, picture = a_task(tmp_path, "soft"), a_picture()
    view, answer = look(task, picture), next(task.answers([Example(picture)], CaptionOptions()))
    assert (view.answer, view.title, view.text) == (answer.to_dict(), answer.text, answer.text)
    assert view.maps[0].queries.words == (*task.vocabulary.words(answer.hypotheses[0].tokens), "<end>")
    np.testing.assert_array_equal(view.picture, picture)


def test_layers_are_chosen_by_name(tmp_path):
    task, picture = a_task(tmp_path, "transformer"), a_picture()
    assert [each.name for each in look(task, picture, only="*.1.*").maps] == LAYERS[1:]
    with pytest.raises(UserError, match=r"matches 'x\*': it has decoder\.layers\.0\.cross_attention, "):
        look(task, picture, only="x*")


def test_a_model_that_never_looks_says_so(tmp_path):
    task = a_task(tmp_path, "none")
    assert not task.attends
    with pytest.raises(UserError, match="never looks at the image while it writes"):
        look(task, a_picture()).save(tmp_path / "look.png")
    with pytest.raises(UserError, match="never looks at the image while it writes"):
        look(task, a_picture(), only="*")


@pytest.mark.parametrize("name", ["soft", "transformer"])
def test_every_ending_is_written(tmp_path, name):
    task, picture = a_task(tmp_path, name), a_picture()
    Image.fromarray(picture).save(tmp_path / "photo.png")
    view = look(task, tmp_path / "photo.png", "a dog runs")
    for ending in ("png", "svg", "pdf", "html", "json"):
        view.save(tmp_path / "out" / f"caption.{ending}")
    assert min(Image.open(tmp_path / "out" / "caption.png").size) > 200
    assert b"a dog runs" in (tmp_path / "out" / "caption.svg").read_bytes()
    values = json.loads((tmp_path / "out" / "caption.json").read_text())
    assert values["answer"]["captions"][0]["text"] == values["title"] == "a dog runs"
    assert [word["text"] for word in values["words"]] == ["a", "dog", "runs", "<end>"]
    assert all(0 < word["probability"] < 1 for word in values["words"])
    again = [AttentionMap.from_dict(each) for each in values["maps"]]
    assert [each.name for each in again] == [each.name for each in view.maps]
    assert all(np.array_equal(a.weights, b.weights) for a, b in zip(again, view.maps, strict=True))


def test_the_page_holds_the_photo_and_every_weight_and_loads_nothing(tmp_path):
    view = look(a_task(tmp_path, "transformer"), a_picture(), "a dog runs")
    text = replace(view, title="x </script> y").html()
    assert "default-src 'none'" in text
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert "x &lt;/script&gt; y" in text


def test_looking_leaves_the_answer_as_it_is(tmp_path):
    task, picture = a_task(tmp_path, "transformer"), a_picture()
    before = list(task.answers([Example(picture)], CaptionOptions()))
    look(task, picture)
    assert list(task.answers([Example(picture)], CaptionOptions())) == before


def test_the_name_and_the_reference_of_a_held_out_photo_are_said(tmp_path):
    truth = "a dog runs on the grass / " * 9
    task = a_task(tmp_path, "soft")
    view = task.look(Example(a_picture(), "test:0", truth), CaptionOptions())
    assert view.line_below_title.startswith("test:0 · reference: a dog runs on the grass / a dog")
    assert view.line_below_title.endswith(" …")
    assert len(view.line_below_title) < 130
    values = view.to_dict()
    assert (values["answer"]["source"], values["truth"]) == ("test:0", truth)
