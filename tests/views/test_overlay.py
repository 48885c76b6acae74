"""Weights stand on the picture where they are, at a scale that compared panels share, and the picture says what it shows."""

import warnings
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from saccade.views import AttentionMap, Grid, Tokens, View
from saccade.views.figures.overlay import blended, uncovered

CELLS = Grid(2, 3)
WHITE = np.full((16, 24, 3), 255, np.uint8)
LAYER = "layers.0.self_attention"


def a_picture(rows: int = 16, columns: int = 24) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (rows, columns, 3), dtype=np.uint8)


def cells_look(heads, grid=CELLS, name=LAYER) -> AttentionMap:
    """Every cell looks with the same weights (H, K)."""
    return AttentionMap(name, np.repeat(np.asarray(heads, np.float32)[:, None], len(grid), 1), grid, grid)


def a_view(*maps: AttentionMap, picture=None, **fields) -> View:
    picture = a_picture() if picture is None else picture
    starts = {each.name: 0 for each in maps if isinstance(each.queries, Grid) and each.queries.extra}
    fields = {"seen_from": starts, "first": len(maps) - 1} | fields
    return View("cat (probability 0.70)", maps, picture=picture, **fields)


def texts(figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts] + [text.get_text() for text in figure.texts]


def panels(figure) -> list:
    return [axes for axes in figure.axes if axes.images]


def colourfulness(axes) -> np.ndarray:
    """How far each place is from grey."""
    image = np.asarray(axes.images[0].get_array())
    return image.max(-1) - image.min(-1)


def darkness(axes) -> float:
    """Of the darkest place."""
    return 1 - float(np.asarray(axes.images[0].get_array()).mean(-1).min())


def frames(axes) -> list[tuple[float, ...]]:
    return [patch.get_bbox().bounds for patch in axes.patches if isinstance(patch, Rectangle)][:1]


@pytest.mark.parametrize("cell", [0, 4])
def test_ink_stands_where_the_weight_is(cell):
    head = np.zeros(6)
    head[cell] = 0.8
    picture, overlay = panels(a_view(cells_look([head])).figure())[:2]
    np.testing.assert_allclose(np.asarray(picture.images[0].get_array())[::16, ::16], a_picture() / 255)
    colour = colourfulness(overlay)
    rows, columns = colour.shape
    row, column = divmod(cell, 3)
    inside = np.zeros_like(colour, bool)
    inside[row * rows // 2 : (row + 1) * rows // 2, column * columns // 3 : (column + 1) * columns // 3] = True
    assert colour[inside].min() > 0.25
    assert colour[~inside].max() < 0.05  # the grey picture


def test_compared_panels_share_one_scale_and_say_their_own_largest_weight():
    heads = [[0.08, 0, 0, 0, 0, 0], [0.8, 0, 0, 0, 0, 0]]
    figure = a_view(cells_look(heads), picture=WHITE).figure()
    pale, strong = panels(figure)[2:4]
    assert darkness(pale) < 0.3 * darkness(strong)
    assert {"largest .08", "largest .80"} <= set(texts(figure))
    (heads_bar,) = (axes for axes in figure.axes[-1:] if axes.get_ylabel() == "attention weight")
    assert heads_bar.get_ylim() == pytest.approx((0, 1.0))


def test_nearly_even_attention_looks_nearly_even():
    grid = Grid(8, 8)
    even = panels(a_view(cells_look([np.full(64, 1 / 64)], grid), picture=WHITE).figure())[1]
    sharp = panels(a_view(cells_look([np.eye(64)[9]], grid), picture=WHITE).figure())[1]
    assert darkness(even) < 0.3 * darkness(sharp)


def test_even_is_said_of_what_the_cell_that_looks_can_see():
    """The two cells on the left see each other only, as in windows of their own."""
    weights = np.full((1, 6, 6), 1 / 6, np.float32)
    weights[:, [0, 3]] = np.array([0.5, 0, 0, 0.5, 0, 0])
    windows = AttentionMap(LAYER, weights, CELLS, CELLS)
    assert "largest .50 · even .50" in texts(a_view(windows, seen_from={LAYER: 0}).figure())
    assert "largest .17 · even .17" in texts(a_view(windows, seen_from={LAYER: 2}).figure())
    assert "largest .28" in texts(a_view(windows).figure())


def test_the_weight_of_a_class_token_is_said_beside_the_picture():
    view = a_view(cells_look([[0.4, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]], Grid(2, 3, ("[class]",))))
    said = texts(view.figure())
    assert "largest .10 · [class] .40 · even .14" in said
    assert "seen from [class]" in said
    assert not frames(panels(view.figure())[0])


def test_the_title_the_name_and_the_reference_stand_above():
    view = a_view(cells_look([[1 / 6] * 6]), source="photos/cat.png", subtitle="else dog 0.20", text="cat")
    assert {"cat (probability 0.70)", "cat.png · else dog 0.20", "the picture"} <= set(texts(view.figure()))
    assert "test:0 · reference: dog · else dog 0.20" in texts(replace(view, source="test:0", truth="dog").figure())


def test_the_cell_that_looks_is_framed_on_the_picture_and_in_panels_of_other_cells():
    coarse, fine = Grid(2, 3), Grid(4, 6)
    maps = [cells_look([np.full(len(grid), 0.01)], grid, f"layers.{n}.x") for n, grid in enumerate((fine, coarse))]
    view = a_view(*maps, seen_from={"layers.0.x": 5, "layers.1.x": 2})
    picture, last, first, again = panels(view.figure())
    assert frames(picture)[0] == pytest.approx((2 / 3, 0, 1 / 3, 1 / 2))
    assert frames(first)[0] == pytest.approx((5 / 6, 0, 1 / 6, 1 / 4))
    assert frames(last) == frames(again) == []


def test_a_picture_shows_the_heads_of_its_summary_and_every_layer():
    maps = [cells_look(np.full((2, 6), 1 / 6), name=f"layers.{n}.self_attention") for n in range(3)]
    rolled = cells_look([[1 / 6] * 6], name="rollout of 3 layers")
    view = a_view(rolled, *maps, first=0, summary=(rolled, maps[0].averaged(), maps[1].averaged(), maps[2]))
    figure = view.figure()
    said = texts(figure)
    assert {"rollout of 3 layers", "layer 2", "layer 2 · self attention, head by head"} <= set(said)
    assert {"head 0", "head 1", "layer by layer, average of heads", "layer 0", "layer 1"} <= set(said)
    assert len(panels(figure)) == 3 + 2 + 3
    boxes = [axes.get_position() for axes in figure.axes]
    assert not any(a.overlaps(b) for place, a in enumerate(boxes) for b in boxes[place + 1 :])
    assert len(panels(a_view(rolled, *maps, first=0).figure())) == 3 + 6 + 3


WORDS = Tokens(("a", "dog", "<end>"))


def words_look(layers: int = 1, heads: int = 1) -> list[AttentionMap]:
    weights = np.random.default_rng(0).dirichlet(np.ones(12), (heads, 3)).astype(np.float32)
    return [AttentionMap(f"decoder.layers.{n}.cross_attention", weights, WORDS, Grid(3, 4)) for n in range(layers)]


@pytest.mark.parametrize(
    ("layers", "heads", "headings"),
    [
        (1, 1, []),
        (2, 2, ["average of 2 layers", *(f"decoder · layer {n} · cross attention" for n in range(2))]),
        (1, 2, ["decoder · layer 0 · cross attention, average of 2 heads", "head 0", "head 1"]),
    ],
)
def test_words_that_look_have_a_panel_each_layer_by_layer_or_head_by_head(layers, heads, headings):
    figure = a_view(*words_look(layers, heads)).figure()
    assert set(headings) <= set(texts(figure))
    assert len(panels(figure)) == 1 + 3 * max(1, len(headings))
    assert [text.get_text() for axes in panels(figure)[:4] for text in axes.texts[:1]] == ["the picture", *WORDS.words]


def test_the_cell_that_hard_attention_chose_is_uncovered_and_framed():
    weights = np.zeros((1, 3, 12), np.float32)
    weights[0, [0, 1, 2], [5, 0, 11]] = 1
    figure = a_view(AttentionMap("decoder.attention", weights, WORDS, Grid(3, 4))).figure()
    assert frames(panels(figure)[1])[0] == pytest.approx((1 / 4, 1 / 3, 1 / 4, 1 / 3))
    assert "one cell" in texts(figure)
    picture = np.zeros((8, 8, 3), np.uint8)
    picture[..., 0] = 200
    shown = uncovered(picture, np.array([[0, 0], [1, 0]], np.float32))
    half = shown.shape[0] // 2
    np.testing.assert_allclose(shown[half:, :half], np.broadcast_to([200 / 255, 0, 0], (half, half, 3)))
    np.testing.assert_allclose(np.ptp(shown[:half], axis=-1), 0)


def test_cells_that_hang_over_the_edge_are_cut_off_and_not_squeezed_in():
    picture, grid = np.full((10, 10, 3), 128, np.uint8), Grid(2, 2, cell=8)  # covers 16 × 16
    cells = np.array([[0, 0], [0, 1]], np.float32)
    shown = blended(picture, cells, grid, 1.0)
    whole = blended(np.full((16, 16, 3), 128, np.uint8), cells, Grid(2, 2), 1.0)
    scale, large = shown.shape[0] // 10, whole.shape[0] // 16
    for pixel in range(
        10
    ):  # at the middle of each pixel on the diagonal, the same colour as with the whole cell in view
        here, there = pixel * scale + scale // 2, pixel * large + large // 2
        np.testing.assert_allclose(shown[here, here], whole[there, there], atol=0.02)


@pytest.mark.parametrize("shape", [(8, 8, 1), (10, 90, 3), (300, 200, 3)])
def test_pictures_of_any_size_keep_their_shape(shape):
    picture = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    box = panels(a_view(cells_look([[1 / 6] * 6]), picture=picture).figure())[0].get_window_extent()
    assert box.width / box.height == pytest.approx(shape[1] / shape[0], rel=0.01)


def test_weights_of_zero_and_strange_names_are_drawn_without_a_warning(caplog, capsys):
    view = a_view(cells_look([np.zeros(6)]), source="a/$x$ 猫 \ud800.png", subtitle="$5 猫 العربية")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        view.png()
        view.pdf()
        drawing = view.svg()
    assert any("猫" in text for text in ElementTree.fromstring(drawing).itertext())
    assert not caplog.records
    assert capsys.readouterr().err == ""
