"""Attention stands on the picture where the weights are, and the picture says what it shows."""

import json
import re
import subprocess
import sys
import warnings
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest
from matplotlib.patches import Rectangle
from PIL import Image
from sights import a_picture, a_task

from saccade.errors import UserError
from saccade.tasks.image_classes.look import Sight, see
from saccade.tasks.image_classes.overlay import draw, png, save, svg
from saccade.tasks.image_classes.task import Classified
from saccade.views import AttentionMap
from saccade.views.axes import Grid
from saccade.views.shelves import blended, uncovered

CELLS = Grid(2, 3)
ANSWER = Classified("photos/cat.png", ("cat", "dog", "bird"), (0.7, 0.2, 0.1))


def a_sight(weights, grid=CELLS, picture=None, pixel=None, name="layers.0.self_attention", answer=ANSWER) -> Sight:
    """Every cell looks with the same weights (H, K)."""
    weights = np.repeat(np.asarray(weights, np.float32)[:, None], len(grid), 1)
    picture = a_picture() if picture is None else picture
    return Sight(picture, answer, [AttentionMap(name, weights, grid, grid)], pixel)


def texts(figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts] + [text.get_text() for text in figure.texts]


def panels(figure) -> list:
    return [axes for axes in figure.axes if axes.images]


def colourfulness(axes) -> np.ndarray:
    """How far each place is from grey."""
    image = np.asarray(axes.images[0].get_array())
    return image.max(-1) - image.min(-1)


@pytest.mark.parametrize("cell", range(6))
def test_colour_stands_where_the_weight_is(cell):
    head = np.zeros(6)
    head[cell] = 0.8
    picture, overlay = panels(draw(a_sight([head])))[:2]
    np.testing.assert_allclose(np.asarray(picture.images[0].get_array())[::16, ::16], a_picture() / 255)
    colour = colourfulness(overlay)
    rows, columns = colour.shape
    row, column = divmod(cell, 3)
    middle = (
        slice(row * rows // 2 + rows // 6, row * rows // 2 + rows // 3),
        slice(column * columns // 3 + 40, column * columns // 3 + 80),
    )
    assert colour[middle].min() > 0.3
    far = np.ones_like(colour, bool)
    top, left = max(0, row * rows // 2 - rows // 4), max(0, column * columns // 3 - columns // 6)
    far[top : (row + 1) * rows // 2 + rows // 4, left : (column + 1) * columns // 3 + columns // 6] = False
    assert far.any()
    assert colour[far].max() < 0.25  # nearly the grey picture


def test_a_panel_is_coloured_up_to_its_own_largest_weight_and_says_how_much_that_is():
    ratio = np.array([0.5, 1, 0.5, 0.5, 0.5, 0.5])
    small, large = draw(a_sight([0.001 * ratio])), draw(a_sight([0.9 * ratio]))
    np.testing.assert_allclose(
        panels(small)[1].images[0].get_array(), panels(large)[1].images[0].get_array(), atol=1e-6
    )
    assert "largest .001 · even .17" in texts(small)
    assert "largest .90 · even .17" in texts(large)


def test_even_is_said_of_what_the_cell_that_looks_can_see():
    """The two cells on the left see each other only, as in windows of their own."""
    weights = np.full((1, 6, 6), 1 / 6, np.float32)
    weights[:, [0, 3]] = np.array([0.5, 0, 0, 0.5, 0, 0])
    windows = AttentionMap("layers.0.self_attention", weights, CELLS, CELLS)
    sight = Sight(a_picture(), ANSWER, [windows], (3, 2))
    assert "largest .50 · even .50" in texts(draw(sight))
    assert "largest .17 · even .17" in texts(draw(replace(sight, pixel=(3, 20))))
    assert "largest .28" in texts(draw(replace(sight, pixel=None)))


def test_the_weight_of_a_class_token_is_said_beside_the_picture():
    sight = a_sight([[0.4, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]], Grid(2, 3, ("[class]",)))
    said = texts(draw(sight))
    assert "largest .10 · [class] .40 · even .14" in said
    assert "seen from [class]" in said


def test_titles_say_class_probability_and_the_runners_up():
    said = texts(draw(a_sight([[1 / 6] * 6])))
    assert {"cat (probability 0.70)", "cat.png · else dog 0.20, bird 0.10", "the picture"} <= set(said)
    assert "A cat" in texts(draw(a_sight([[1 / 6] * 6]), title="A cat"))


def test_the_truth_and_the_name_of_a_held_out_picture_are_said(tmp_path):
    sight = replace(a_sight([[1 / 6] * 6]), truth="dog", answer=replace(ANSWER, source="test:0"))
    assert "test:0 · in truth dog · else dog 0.20, bird 0.10" in texts(draw(sight))
    save(sight, tmp_path / "a.json")
    values = json.loads((tmp_path / "a.json").read_text())
    assert (values["answer"]["source"], values["truth"]) == ("test:0", "dog")


def test_data_say_which_pixel_looks_and_how_large_the_image_is(tmp_path):
    save(a_sight([[1 / 6] * 6], pixel=(3, 20)), tmp_path / "a.json")
    values = json.loads((tmp_path / "a.json").read_text())
    assert (values["image"], values["pixel"]) == ({"rows": 16, "columns": 24}, {"row": 3, "column": 20})


def test_a_layer_of_other_cells_has_the_one_that_looks_framed_in_its_panel():
    coarse, fine = Grid(2, 3), Grid(4, 6)
    maps = [
        AttentionMap(f"layers.{index}.self_attention", np.full((1, len(grid), len(grid)), 0.01), grid, grid)
        for index, grid in enumerate((fine, coarse))
    ]
    picture, last, first, again = panels(draw(Sight(a_picture(), ANSWER, maps, (3, 20))))
    bounds = [
        [patch.get_bbox().bounds for patch in axes.patches if isinstance(patch, Rectangle)]
        for axes in (picture, last, first, again)
    ]
    assert bounds[0][0] == pytest.approx((2 / 3, 0, 1 / 3, 1 / 2))
    assert bounds[2][0] == pytest.approx((5 / 6, 0, 1 / 6, 1 / 4))
    assert bounds[1] == bounds[3] == []


def test_panels_say_who_looks_where_that_differs(tmp_path):
    said = texts(draw(see(a_task(tmp_path, "pooled"), a_picture())))
    assert sum(text.startswith("from the average cell · ") for text in said) == 2 + 2  # heads, layers
    assert sum(text.startswith("from the pooling query · ") for text in said) == 3
    assert not any("[image]" in text for text in said)


def test_the_cell_that_looks_is_framed():
    (frame, _) = [
        each for each in panels(draw(a_sight([[1 / 6] * 6], pixel=(3, 20))))[0].patches if isinstance(each, Rectangle)
    ]
    assert frame.get_bbox().bounds == pytest.approx((2 / 3, 0, 1 / 3, 1 / 2))
    assert not panels(draw(a_sight([[1 / 7] * 7], Grid(2, 3, ("[class]",)))))[0].patches


def test_cells_that_hang_over_the_edge_are_cut_off_and_not_squeezed_in():
    picture, grid = np.full((10, 10, 3), 128, np.uint8), Grid(2, 2, cell=8)  # covers 16 × 16
    cells = np.array([[0, 0], [0, 1]], np.float32)
    shown = blended(picture, cells, grid)
    whole = blended(np.full((16, 16, 3), 128, np.uint8), cells, Grid(2, 2))
    scale, large = shown.shape[0] // 10, whole.shape[0] // 16
    for pixel in range(
        10
    ):  # at the middle of each pixel on the diagonal, the same colour as with the whole cell in view
        here, there = pixel * scale + scale // 2, pixel * large + large // 2
        np.testing.assert_allclose(shown[here, here], whole[there, there], atol=0.02)


def test_every_head_and_every_layer_has_its_panel(tmp_path):
    figure = draw(see(a_task(tmp_path, "vit"), a_picture()))
    said = texts(figure)
    assert {"rollout of 3 layers", "layer 2", "layer 2 · self attention, head by head"} <= set(said)
    assert {"head 0", "head 1", "layer by layer, average of heads", "layer 0", "layer 1"} <= set(said)
    assert len(panels(figure)) == 3 + 2 + 3
    boxes = [axes.get_position() for axes in figure.axes]
    assert not any(a.overlaps(b) for place, a in enumerate(boxes) for b in boxes[place + 1 :])


@pytest.mark.parametrize("model", ["vit", "pooled", "cnn", "resnet", "swin"])
def test_every_model_can_be_drawn_without_words_over_words(tmp_path, model):
    figure = draw(see(a_task(tmp_path, model), a_picture()))
    figure.canvas.draw()
    boxes = [
        text.get_window_extent() for holder in (figure, *panels(figure)) for text in holder.texts if text.get_text()
    ]
    assert not any(a.overlaps(b) for place, a in enumerate(boxes) for b in boxes[place + 1 :])


@pytest.mark.parametrize("shape", [(8, 8, 1), (40, 20, 3), (10, 90, 3), (300, 200, 3)])
def test_pictures_of_any_size_keep_their_shape(shape):
    picture = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    axes = panels(draw(a_sight([[1 / 6] * 6], picture=picture)))[0]
    box = axes.get_window_extent()
    assert box.width / box.height == pytest.approx(shape[1] / shape[0], rel=0.01)


def test_weights_of_zero_and_strange_names_are_drawn_without_a_warning(caplog, capsys):
    answer = Classified("a/$x$ 猫 \ud800.png", ("$5 猫 العربية", "b", "c"), (0.5, 0.3, 0.2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        png(a_sight([np.zeros(6)], answer=answer))
        ElementTree.fromstring(svg(a_sight([np.zeros(6)], answer=answer), title="$ 猫"))
    assert not caplog.records
    assert capsys.readouterr().err == ""


def test_files_of_every_ending_are_written(tmp_path):
    sight = see(a_task(tmp_path, "vit"), a_picture())
    for ending in ("png", "svg", "html", "json"):
        save(sight, tmp_path / "new" / f"a.{ending}")
    assert Image.open(BytesIO((tmp_path / "new" / "a.png").read_bytes())).size[0] > 600
    ElementTree.parse(tmp_path / "new" / "a.svg")
    values = json.loads((tmp_path / "new" / "a.json").read_text())
    assert values["answer"] == sight.answer.to_dict()
    for stored, each in zip(values["maps"], sight.maps, strict=True):
        np.testing.assert_array_equal(AttentionMap.from_dict(stored).weights, each.weights)
    page = (tmp_path / "new" / "a.html").read_text()
    assert f"{sight.answer.text} (probability" in page
    assert '"columns":6,"extra":["[class]"]' in page
    with pytest.raises(UserError, match=r"the name must end in \.png, \.svg, \.html or \.json"):
        save(sight, tmp_path / "a.gif")


def test_a_page_holds_every_cells_row_unless_that_is_too_much(tmp_path, monkeypatch):
    sight = see(a_task(tmp_path, "vit"), a_picture())
    save(sight, tmp_path / "whole.html")
    monkeypatch.setattr("saccade.tasks.image_classes.overlay._WHOLE_PAGE", 100)
    save(sight, tmp_path / "rows.html")
    whole, rows = ((tmp_path / name).read_text() for name in ("whole.html", "rows.html"))
    shapes = [
        np.shape(json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])["maps"][-1]["weights"])
        for text in (whole, rows)
    ]
    assert shapes[0][1] == shapes[0][2]
    assert shapes[1] == (shapes[0][0], 1, shapes[0][2])
    assert "only as seen from [class]:" in rows
    save(see(a_task(tmp_path, "pooled"), a_picture()), tmp_path / "pooled.html")
    assert "only as seen from the pooling query and the average cell:" in (tmp_path / "pooled.html").read_text()
    save(see(a_task(tmp_path, "swin"), a_picture(), (3, 3)), tmp_path / "swin.html")
    assert "only as seen from the pixel:" in (tmp_path / "swin.html").read_text()
    assert "only as seen from" not in whole


def test_matplotlib_is_loaded_when_something_is_drawn_and_pyplot_never():
    code = """
import sys
import numpy as np
from saccade.views.axes import Grid
from saccade.views import confusion
from saccade.tasks.image_classes import overlay
from saccade.views import AttentionMap
from saccade.tasks.image_classes.look import Sight
from saccade.metrics.classes import score_classes
from saccade.tasks.image_classes.task import Classified
grid = Grid(2, 2)
attention = AttentionMap("x", np.eye(4), grid, grid)
sight = Sight(np.zeros((8, 8, 1), np.uint8), Classified("x", ("a", "b"), (.9, .1)), [attention], None)
assert "matplotlib" not in sys.modules
overlay.png(sight)
confusion.draw(score_classes(np.log(np.eye(3) + .1), np.arange(3), "abc"))
assert "matplotlib" in sys.modules
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_hard_attention_uncovers_its_cell_and_nothing_else():
    picture = np.zeros((8, 8, 3), np.uint8)
    picture[..., 0] = 200
    cells = np.zeros((2, 2), np.float32)
    cells[1, 0] = 1
    shown = uncovered(picture, cells)
    rows, columns = shown.shape[0] // 2, shown.shape[1] // 2
    np.testing.assert_allclose(shown[rows:, :columns], np.broadcast_to([200 / 255, 0, 0], (rows, columns, 3)))
    grey = shown.copy()
    grey[rows:, :columns] = 0
    assert (grey[..., 0] == grey[..., 2]).all()
    assert grey[:rows].min() > 0.3


def test_each_cell_has_one_colour_and_places_without_weight_have_none():
    """Smoothing would show weight outside of the window that a cell can look at."""
    shown = colourfulness(panels(draw(a_sight([[0, 0, 0, 0, 1, 0]])))[1])
    rows, columns = shown.shape
    cell = (slice(rows // 2, None), slice(columns // 3, 2 * columns // 3))
    assert shown[cell].min() > 0.2
    shown[cell] = 0
    np.testing.assert_allclose(shown, 0, atol=1e-9)


def test_a_map_without_a_shape_is_half_coloured():
    even = panels(draw(a_sight([[1 / 6] * 6], picture=np.full((16, 24, 3), 128, np.uint8))))[1]
    peak = panels(draw(a_sight([[0, 1, 0, 0, 0, 0]], picture=np.full((16, 24, 3), 128, np.uint8))))[1]
    image, largest = (np.asarray(each.images[0].get_array()) for each in (even, peak))
    assert np.ptp(image.reshape(-1, 3), axis=0).max() < 1e-6
    assert np.abs(image[0, 0] - largest[0, largest.shape[1] // 2]).max() > 0.1


def test_heads_are_drawn_of_every_layer_that_is_named(tmp_path):
    task = a_task(tmp_path, "vit")
    alone = [text for text in texts(draw(see(task, a_picture()))) if text == "head 0"]
    named = [text for text in texts(draw(see(task, a_picture(), only="layers.[12]*"))) if text == "head 0"]
    assert (len(alone), len(named)) == (1, 2)
