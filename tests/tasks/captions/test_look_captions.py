"""Each word of a caption over the photo: the weights are those recorded, and every ending gives a file that shows them."""

import json
from base64 import b64decode
from dataclasses import replace
from io import BytesIO
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
from saccade.tasks.captions import look as captioning
from saccade.tasks.captions.look import look, page, save, see
from saccade.tasks.captions.task import CaptionTask, ObjectiveConfig
from saccade.tasks.writing import DecodeConfig
from saccade.views.axes import Grid, Tokens
from saccade.views.maps import AttentionMap

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
    maps, expected = look(task, picture, "a dog runs"), recorded(task, picture, "a dog runs")
    assert [each.name for each in maps] == list(expected)
    for each in maps:
        np.testing.assert_allclose(each.weights, expected[each.name], atol=1e-6)
        assert each.queries == Tokens(("a", "dog", "runs", "<end>"))
        assert each.keys == Grid(3, 4)
        assert each.axis_titles() == ("words", "image")


def test_without_a_caption_the_models_own_is_shown(tmp_path):
    task, picture = a_task(tmp_path, "soft"), a_picture()
    sight = see(task, picture)
    assert sight.answer == task.predict([picture])[0]
    assert sight.words == (*task.vocabulary.words(sight.answer.hypotheses[0].tokens), "<end>")
    np.testing.assert_array_equal(sight.picture, picture)


def test_layers_are_chosen_by_name(tmp_path):
    task, picture = a_task(tmp_path, "transformer"), a_picture()
    assert [each.name for each in look(task, picture, only="*.1.*")] == LAYERS[1:]
    with pytest.raises(UserError, match=r"matches 'x\*': it has decoder\.layers\.0\.cross_attention, "):
        look(task, picture, only="x*")


def test_a_model_that_never_looks_says_so(tmp_path):
    with pytest.raises(UserError, match="never looks at the image while it writes"):
        look(a_task(tmp_path, "none"), a_picture())


@pytest.mark.parametrize(
    ("name", "only", "shelves", "panels"),
    [
        ("soft", "*", [""], 5),
        ("transformer", "*", ["2 layers together, average of heads", *LAYERS], 13),
        ("transformer", "*.0.*", 3, 13),
    ],
)
def test_the_picture_has_a_panel_for_the_photo_and_for_every_word(tmp_path, name, only, shelves, panels):
    sight = see(a_task(tmp_path, name), a_picture(), "a dog runs", only)
    found = captioning._shelves(sight)
    assert len(found) == (shelves if isinstance(shelves, int) else len(shelves))
    assert sum(len(shelf.panels) for shelf in found) == panels
    assert [each.title for each in found[0].panels] == ["the picture", "a", "dog", "runs", "<end>"]
    figure = captioning.draw(sight)
    assert sum(len(axes.images) for axes in figure.axes) >= panels


def test_heads_of_the_only_layer_have_their_own_rows(tmp_path):
    sight = see(a_task(tmp_path, "transformer"), a_picture(), "a dog", "*.0.*")
    headings = [shelf.heading for shelf in captioning._shelves(sight)]
    assert headings == ["decoder · layer 0 · cross attention, average of 2 heads", "head 0", "head 1"]


def test_a_word_is_brightest_where_its_weight_is_largest(tmp_path):
    task = a_task(tmp_path, "soft")
    sight = see(task, np.full((24, 32, 3), 128, np.uint8), "a dog")
    weights = np.full((1, 3, 12), 0.01)
    weights[0, :, 6] = 0.89
    shown = captioning.CaptionSight(
        sight.picture,
        sight.answer,
        [AttentionMap("decoder.attention", weights, Tokens(("a", "dog", "<end>")), Grid(3, 4))],
    )
    image = captioning._shelves(shown)[0].panels[1].image
    rows, columns = image.shape[:2]
    yellow = image[..., 0] - image[..., 2]  # the colour of the largest weight
    row, column = np.unravel_index(yellow.argmax(), yellow.shape)
    assert (3 * row // rows, 4 * column // columns) == (1, 2)


def test_the_cell_that_hard_attention_chose_is_framed(tmp_path):
    task, picture = a_task(tmp_path, "hard"), a_picture()
    sight = see(task, picture, "a dog")
    chosen = recorded(task, picture, "a dog")["decoder.attention"][0].argmax(-1)
    for panel, cell in zip(captioning._shelves(sight)[0].panels[1:], chosen, strict=True):
        assert panel.mark == (cell % 4 / 4, cell // 4 / 3, 1 / 4, 1 / 3)
    soft = captioning._shelves(see(a_task(tmp_path, "soft"), picture, "a dog"))
    assert all(panel.mark is None for panel in soft[0].panels)


@pytest.mark.parametrize("name", ["soft", "transformer"])
def test_every_ending_is_written(tmp_path, name):
    task, picture = a_task(tmp_path, name), a_picture()
    Image.fromarray(picture).save(tmp_path / "photo.png")
    sight = see(task, tmp_path / "photo.png", "a dog runs")
    for ending in ("png", "svg", "html", "json"):
        save(sight, tmp_path / "out" / f"caption.{ending}")
    assert min(Image.open(tmp_path / "out" / "caption.png").size) > 200
    assert b"a dog runs" in (tmp_path / "out" / "caption.svg").read_bytes()
    values = json.loads((tmp_path / "out" / "caption.json").read_text())
    assert values["answer"]["captions"][0]["text"] == values["title"] == "a dog runs"
    again = [AttentionMap.from_dict(each) for each in values["maps"]]
    assert [each.name for each in again] == [each.name for each in sight.maps]
    assert all(np.array_equal(a.weights, b.weights) for a, b in zip(again, sight.maps, strict=True))


def test_the_page_holds_the_photo_and_every_weight_and_loads_nothing(tmp_path):
    sight = see(a_task(tmp_path, "transformer"), a_picture(), "a dog runs")
    text = page(sight, "x </script> y")
    assert "default-src 'none'" in text
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert "x &lt;/script&gt; y" in text
    data = json.loads(text.split('id="data">')[1].split("</script>")[0])
    shown = data["maps"][1]
    assert (shown["query_title"], shown["keys"]["rows"], shown["keys"]["columns"]) == ("caption", 3, 4)
    np.testing.assert_allclose(shown["weights"], sight.maps[1].weights, atol=1e-5)
    pixels = Image.open(BytesIO(b64decode(data["picture"]["address"].partition(",")[2])))
    np.testing.assert_array_equal(np.asarray(pixels), a_picture())


def test_looking_leaves_the_answer_as_it_is(tmp_path):
    task, picture = a_task(tmp_path, "transformer"), a_picture()
    before = task.predict([picture])
    png = captioning.png(see(task, picture))
    assert Image.open(BytesIO(png)).format == "PNG"
    assert task.predict([picture]) == before


def test_the_name_and_the_truth_of_a_held_out_photo_are_said(tmp_path):
    sight = see(a_task(tmp_path, "soft"), a_picture())
    truth = "a dog runs on the grass / " * 9
    sight = replace(sight, answer=replace(sight.answer, source="test:0"), truth=truth)
    (said,) = (text.get_text() for text in captioning.draw(sight).texts if "test:0" in text.get_text())
    assert said.startswith("test:0 · in truth: a dog runs on the grass / a dog")
    assert said.endswith(" …")
    assert len(said) < 130
    save(sight, tmp_path / "a.json")
    values = json.loads((tmp_path / "a.json").read_text())
    assert (values["answer"]["source"], values["truth"]) == ("test:0", truth)
