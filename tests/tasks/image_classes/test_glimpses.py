"""The path of a glimpse network as a picture, a page and data."""

import json
import re
import xml.etree.ElementTree as ElementTree
from base64 import b64decode
from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest
import torch
from matplotlib.patches import FancyArrowPatch, Rectangle
from PIL import Image

from saccade.config.recipe import load
from saccade.data.image_shape import ImageShape
from saccade.errors import UserError
from saccade.models.glimpse import Config, GlimpseNetwork, build
from saccade.models.shapes import Shapes
from saccade.tasks.image_classes.glimpses import GlimpsePath, look, page, save, see
from saccade.tasks.image_classes.task import ClassifyTask
from saccade.views import AttentionMap, glimpse_figure
from saccade.views.glimpse_figure import draw, png

DIGITS = tuple("0123456789")


def make(channels: int = 1, classes: int = 10, **settings) -> GlimpseNetwork:
    torch.manual_seed(0)
    sizes = {"hidden": 16, "patch": 4, "scales": 2, "glimpses": 4} | settings
    model = build(Config(**sizes), Shapes(ImageShape(channels, 14, 18), classes))
    torch.nn.init.normal_(model.policy.mean.weight) if sizes.get("policy", "learned") == "learned" else None
    return model


def an_image(channels: int = 1) -> torch.Tensor:
    return torch.randn(channels, 14, 18, generator=torch.Generator().manual_seed(2))


def a_path(**settings) -> GlimpsePath:
    return look(make(**settings), an_image(), DIGITS)


def written(figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts] + [text.get_text() for text in figure.texts]


def test_the_path_is_the_one_that_the_model_predicts_with():
    model, image = make().eval(), an_image()
    path = look(model, image, DIGITS)
    torch.testing.assert_close(torch.from_numpy(path.probabilities[-1]), model(image[None])[0].softmax(-1).detach())
    np.testing.assert_allclose(path.probabilities.sum(axis=1), 1, atol=1e-6)
    assert path.answer.text == DIGITS[int(model(image[None]).argmax())]
    assert path.locations.shape == (4, 2)
    assert len(set(map(tuple, path.locations.tolist()))) > 1


@pytest.fixture(scope="module")
def digits(tmp_path_factory) -> ClassifyTask:
    recipe = load("digits-glimpse", ["model.hidden=16"])
    return ClassifyTask.prepare(recipe, tmp_path_factory.mktemp("digits"), say=lambda sentence: None)


def test_a_task_shows_the_path_of_its_own_prediction(digits):
    image = digits.images.test.pixels[0, 0]
    path = see(digits, image)
    answer = digits.predict([image])[0]
    assert (path.answer.classes, path.source) == (answer.classes, answer.source)
    assert path.answer.probabilities == pytest.approx(answer.probabilities, abs=1e-5)
    np.testing.assert_allclose(path.picture, image / 255, atol=1e-6)
    assert path.classes == DIGITS


def test_a_model_without_glimpses_says_so(digits, monkeypatch):
    monkeypatch.setattr(digits, "model", torch.nn.Identity())
    with pytest.raises(UserError, match=r"model\.name: glimpse"):
        see(digits, digits.images.test.pixels[0, 0])


def test_looking_does_not_change_the_model():
    model = make().train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    look(model, an_image(), DIGITS)
    assert model.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_beyond_the_edge_stands_the_colour_that_the_model_takes_for_nothing(digits, monkeypatch):
    """The retina fills up with 0, and 0 is the mean colour once an image is standardised."""
    model, image = make(policy="centre", patch=18), an_image()
    picture, mean = np.random.default_rng(0).random((14, 18), np.float32), np.array([0.3], np.float32)
    path = look(model, image, DIGITS, picture, mean)
    row, column, side = path.windows[0, 0].tolist()
    assert (row, column, side) == (-2, 0, 18)
    np.testing.assert_allclose(path.patches[0, 0, :2], 0.3, atol=1e-6)
    np.testing.assert_allclose(path.patches[0, 0, 2:16], picture, atol=1e-6)
    monkeypatch.setattr(digits, "model", build(Config(patch=12, policy="centre"), Shapes(ImageShape(1, 8, 8), 10)))
    seen = see(digits, digits.images.test.pixels[0, 0])  # a window of 12 × 12 around an image of 8 × 8
    np.testing.assert_allclose(seen.patches[0, 0, 0], digits.images.mean[0], atol=1e-6)


def test_a_window_that_reaches_over_the_edge_is_drawn_whole():
    path = a_path(patch=8, std=0.5)
    windows = path.windows[:, 0]
    assert (windows[:, :2] < 0).any() or (windows[:, :2] + windows[:, 2:] > (14, 18)).any()
    picture = draw(path).axes[0]
    (left, right), (bottom, top) = picture.get_xlim(), picture.get_ylim()
    for row, column, side in windows.tolist():
        assert top <= row
        assert row + side <= bottom
        assert left <= column
        assert column + side <= right


def test_patches_are_what_the_windows_hold():
    picture = np.random.default_rng(0).integers(0, 256, (14, 18), dtype=np.uint8)
    path = look(make(), an_image(), DIGITS, picture)
    np.testing.assert_allclose(path.picture, picture / 255, atol=1e-7)
    padded = np.pad(path.picture, 20)
    for squares, patches in zip(path.windows.tolist(), path.patches, strict=True):
        for scale, (row, column, side) in enumerate(squares):
            window = padded[20 + row : 20 + row + side, 20 + column : 20 + column + side]
            blocks = window.reshape(4, 2**scale, 4, 2**scale).mean(axis=(1, 3))
            np.testing.assert_allclose(patches[scale], blocks, atol=1e-6)


def test_the_attention_map_is_each_pixels_share_in_what_was_seen():
    path = a_path()
    attention = path.attention_map()
    expected = np.zeros((4, 14, 18))
    for glimpse, squares in enumerate(path.windows.tolist()):
        for top, left, side in squares:
            for row in range(max(top, 0), min(top + side, 14)):
                for column in range(max(left, 0), min(left + side, 18)):
                    expected[glimpse, row, column] += 0.5 / side**2
    np.testing.assert_allclose(attention.weights[0].reshape(4, 14, 18), expected, atol=1e-6)
    assert attention.weights[0, 0].sum() == pytest.approx(1, abs=1e-5)  # the middle: nothing reaches over the edge
    assert attention.queries.labels == ("glimpse 1", "glimpse 2", "glimpse 3", "glimpse 4")
    assert (attention.keys.rows, attention.keys.columns) == (14, 18)


def test_a_window_over_the_edge_counts_only_what_is_inside():
    path = replace(a_path(), windows=np.array([[[-2, -2, 4], [-4, -4, 8]]]))
    assert path.attention_map().weights.sum() == pytest.approx(0.25)


def test_json_holds_the_path_and_an_attention_map(tmp_path):
    path = replace(a_path(), source="test:0", truth="7")
    save(path, tmp_path / "deep" / "path.json", title="seven")
    data = json.loads((tmp_path / "deep" / "path.json").read_text())
    assert data["title"] == "seven"
    assert data["answer"] == path.answer.to_dict()
    assert (data["answer"]["source"], data["truth"]) == ("test:0", "7")
    assert len(data["glimpses"]) == 4
    last = data["glimpses"][-1]
    assert last["probabilities"][path.answer.text] == pytest.approx(float(path.probabilities[-1].max()), abs=1e-5)
    assert last["windows"][1] == dict(zip(("row", "column", "side"), path.windows[-1, 1].tolist(), strict=True))
    assert np.array_equal(AttentionMap.from_dict(data["maps"][0]).weights, path.attention_map().weights)


@pytest.mark.parametrize("ending", ["png", "svg", "html", "json"])
def test_every_ending_is_written_whole(tmp_path, ending):
    save(a_path(), tmp_path / f"path.{ending}")
    assert [file.name for file in tmp_path.iterdir()] == [f"path.{ending}"]
    content = (tmp_path / f"path.{ending}").read_bytes()
    if ending == "png":
        assert Image.open(BytesIO(content)).size[0] > 800
    if ending == "svg":
        ElementTree.fromstring(content)


def test_the_picture_says_every_number_and_frames_the_answer():
    probabilities = np.full((4, 10), 0.01, dtype=np.float32)
    probabilities[:, 3] = (0.3, 0.5, 0.8, 0.91)
    figure = draw(replace(a_path(), probabilities=probabilities), title="")
    said = written(figure)
    assert {".30", ".50", ".80", ".91", "3 (probability 0.91)"} <= set(said)
    assert [said.count(str(number)) for number in range(1, 5)] == [3, 3, 3, 3]  # on the image, beside it, as a class


def test_the_picture_explains_itself():
    path = replace(a_path(), source="photos/seven.png", truth="7")
    said = written(draw(path))
    assert "what it sees\nfine → coarse" in said
    assert any("dark: not looked at\ndashed: the coarse windows, of glimpse 1 only" in text for text in said)
    assert any(text.startswith("seven.png · in truth 7 · else ") and text.endswith("after 4 glimpses") for text in said)
    alone = written(draw(a_path(scales=1)))
    assert "what it sees" in alone
    assert not any("dashed" in text for text in alone)


def frames(figure) -> list[tuple[float, ...]]:
    """Left, top, width and height of the finest windows as they are drawn."""
    lines = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
    return [patch.get_bbox().bounds for patch in lines if patch.get_linestyle() == "solid"]


def test_frames_of_one_place_lie_inside_each_other():
    outer, *others = frames(draw(a_path(policy="centre", glimpses=5)))
    assert outer == tuple(map(float, (7, 5, 4, 4)))
    for inner in others:
        assert outer[0] < inner[0]
        assert outer[1] < inner[1]
        assert 0 < inner[2] < outer[2]
        outer = inner


def test_a_short_hop_has_an_arrow_and_a_number_aside_is_tied_to_its_place():
    far, near = (-0.5, -0.5), (-0.45, -0.5)
    path = replace(a_path(glimpses=3), locations=np.array([far, near, (0.8, 0.8)], np.float32))
    axes = draw(path).axes[0]
    arrows = [patch for patch in axes.patches if isinstance(patch, FancyArrowPatch)]
    assert len(arrows) == 2
    short = arrows[0]
    assert short.shrinkA + short.shrinkB < 72 * 4.4 / 18 * 0.35  # what lies between both places, in points
    ties = [line.get_xydata()[0] for line in axes.lines]
    np.testing.assert_allclose(ties, [(4.5, 3.5), (4.5, 3.85)], atol=1e-5)
    numbers = [text.get_position() for text in axes.texts]
    np.testing.assert_allclose(numbers[2], (16.2, 12.6), atol=1e-5)  # with room around it stands where it belongs


def test_the_image_is_bright_where_it_was_seen_and_dark_elsewhere():
    path = replace(
        a_path(),
        picture=np.ones((14, 18), dtype=np.float32),
        windows=np.tile(np.array([[[2, 3, 4], [0, 1, 8]]]), (4, 1, 1)),
    )
    shown = draw(path).axes[0].get_images()[0].get_array()
    np.testing.assert_allclose(shown[2:6, 3:7], 1.0)
    assert shown[0, 1] == pytest.approx(0.65)
    assert shown[13, 17] == pytest.approx(0.3)


@pytest.mark.parametrize(("policy", "glimpses"), [("centre", 8), ("learned", 1), ("learned", 14)])
def test_numbers_on_the_image_never_cover_each_other(policy, glimpses):
    figure = draw(a_path(policy=policy, glimpses=glimpses))
    places = [text.get_position() for text in figure.axes[0].texts]
    pixel = figure.axes[0].get_window_extent().width / figure.dpi / 18  # inches
    assert len(places) == glimpses
    apart = [np.hypot(a[0] - b[0], a[1] - b[1]) * pixel for i, a in enumerate(places) for b in places[:i]]
    assert min(apart, default=1.0) > 0.2


def test_of_many_classes_the_likeliest_are_shown_best_first():
    names = tuple(f"class {number}" for number in range(40))
    path = look(make(classes=40), an_image(), names)
    said = [text for text in written(draw(path)) if text.startswith("class")]
    columns = [text for text in said if "probability" not in text]
    assert len(columns) == 12
    assert columns[0] == path.answer.text


def test_colour_images_and_long_names_are_drawn():
    path = look(make(channels=3, classes=2), an_image(3), ("a very long name of a class", "猫 $x$"))
    assert path.picture.shape == (14, 18, 3)
    assert path.patches.shape == (4, 2, 4, 4, 3)
    assert Image.open(BytesIO(png(path))).size[0] > 600


def test_the_page_names_nothing_outside_itself_and_names_cannot_break_out():
    attack = "</script><script>alert(1)</script>{{title}}"
    path = look(make(classes=2), an_image(), (attack, "b"))
    document = page(path, title=attack)
    assert document.count("<script") == 2
    assert document.count("</script>") == 2
    data = json.loads(re.search(r'id="data">(.*?)</script>', document, re.DOTALL)[1])
    assert data["maps"][0]["queries"]["classes"] == [attack, "b"]
    assert "default-src 'none'" in document
    assert not re.search(r"\b(src|href|action)=|@import|url\(", document)
    assert set(re.findall(r"https?://[^\s\"']+", document)) == {"http://www.w3.org/2000/svg"}


def test_the_page_holds_what_each_glimpse_saw_and_believed(tmp_path):
    path = a_path()
    save(path, tmp_path / "path.html", title="seven")
    values = json.loads(re.search(r'id="data">(.*?)</script>', (tmp_path / "path.html").read_text(), re.DOTALL)[1])
    steps = values["maps"][0]["queries"]
    assert values["subtitle"].endswith("after 4 glimpses")
    assert steps["windows"] == path.windows.tolist()
    np.testing.assert_allclose(steps["probabilities"], path.probabilities, atol=1e-5)
    patch = Image.open(BytesIO(b64decode(steps["patches"][0][0].partition(",")[2])))
    np.testing.assert_allclose(np.asarray(patch), 255 * path.patches[0, 0], atol=1)


def test_mistakes_are_told_in_a_sentence(tmp_path):
    model, image = make(), an_image()
    with pytest.raises(UserError, match="3 names of classes were given for a model of 10"):
        look(model, image, ("a", "b", "c"))
    with pytest.raises(UserError, match="give one image as"):
        look(model, image[None], DIGITS)
    with pytest.raises(UserError, match="of the same size"):
        look(model, image, DIGITS, np.zeros((9, 9)))
    with pytest.raises(UserError, match=r"must end in \.png, \.svg, \.html or \.json"):
        save(look(model, image, DIGITS), tmp_path / "path.gif")


@pytest.mark.parametrize(("patch", "count"), [(2, 8), (8, 20)])
def test_crowded_numbers_in_a_corner_stay_numbers(patch, count):
    places = np.full((count, 2), 60.0 - patch / 2)
    apart = glimpse_figure._apart(places, 6.0, (0.0, 0.0, 60.0, 60.0))
    assert np.isfinite(apart).all()
