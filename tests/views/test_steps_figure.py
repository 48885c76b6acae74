"""Steps over a picture: numbered windows, the path between them, what was seen, and what was believed after each."""

import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.patches import FancyArrowPatch, Rectangle

from saccade.views import AttentionMap, Grid, Steps, View
from saccade.views.figures import steps as drawing

SIZE = (14, 18)
DIGITS = tuple("0123456789")


def squares(*places: tuple[int, int], scales: int = 2, patch: int = 4) -> tuple:
    """Windows around the middles given as (row, column)."""
    sides = [patch * 2**scale for scale in range(scales)]
    return tuple(tuple((row - side // 2, column - side // 2, side) for side in sides) for row, column in places)


def a_view(windows=None, classes=DIGITS, picture=None, probabilities=None) -> View:
    windows = squares((7, 9), (3, 4), (10, 12), (5, 15)) if windows is None else windows
    random = np.random.default_rng(0)
    probabilities = random.dirichlet(np.ones(len(classes)), len(windows)) if probabilities is None else probabilities
    steps = Steps(
        tuple(f"glimpse {number + 1}" for number in range(len(windows))),
        windows,
        classes,
        tuple(map(tuple, probabilities.tolist())),
        tuple(tuple(random.random((4, 4), np.float32) for _ in scales) for scales in windows),
    )
    weights = random.dirichlet(np.ones(SIZE[0] * SIZE[1]), len(windows))
    picture = random.integers(0, 256, (*SIZE, 1), dtype=np.uint8) if picture is None else picture
    return View(
        "7 (probability 0.91)", (AttentionMap("glimpses", weights, steps, Grid(*SIZE, cell=1)),), picture=picture
    )


def written(figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts] + [text.get_text() for text in figure.texts]


def frames(figure) -> list[tuple[float, ...]]:
    """Left, top, width and height of the finest windows as they are drawn."""
    lines = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
    return [patch.get_bbox().bounds for patch in lines if patch.get_linestyle() == "solid"]


def test_the_picture_says_every_number_and_frames_the_answer():
    probabilities = np.full((4, 10), 0.01)
    probabilities[:, 3] = (0.3, 0.5, 0.8, 0.91)
    said = written(a_view(probabilities=probabilities).figure())
    assert {".30", ".50", ".80", ".91", "7 (probability 0.91)"} <= set(said)
    assert [said.count(str(number)) for number in range(1, 5)] == [3, 3, 3, 3]  # on the image, beside it, as a class


def test_the_picture_explains_itself():
    said = written(a_view().figure())
    assert "what it sees\nfine → coarse" in said
    assert any("dark: not looked at\ndashed: the coarse windows, of step 1 only" in text for text in said)
    alone = written(a_view(squares((7, 9), (3, 4), scales=1)).figure())
    assert "what it sees" in alone
    assert not any("dashed" in text for text in alone)


def test_a_window_that_reaches_over_the_edge_is_drawn_whole():
    windows = squares((0, 0), (14, 18), patch=8)
    picture = a_view(windows).figure().axes[0]
    (left, right), (bottom, top) = picture.get_xlim(), picture.get_ylim()
    for (row, column, side), _ in windows:
        assert top <= row < row + side <= bottom
        assert left <= column < column + side <= right


def test_frames_of_one_place_lie_inside_each_other():
    outer, *others = frames(a_view(squares(*[(7, 9)] * 5)).figure())
    assert outer == (7, 5, 4, 4)
    for inner in others:
        assert outer[0] < inner[0]
        assert 0 < inner[2] < outer[2]
        outer = inner


def test_a_short_hop_has_an_arrow_and_a_number_aside_is_tied_to_its_place():
    axes = a_view(squares((4, 5), (5, 5), (12, 15), patch=2)).figure().axes[0]
    arrows = [patch for patch in axes.patches if isinstance(patch, FancyArrowPatch)]
    assert len(arrows) == 2
    ties = [line.get_xydata()[0] for line in axes.lines]
    np.testing.assert_allclose(ties, [(5, 4), (5, 5)])
    numbers = [text.get_position() for text in axes.texts]
    np.testing.assert_allclose(numbers[2], (15, 12))  # with room around it stands where it belongs


def test_the_image_is_bright_where_it_was_seen_and_dark_elsewhere():
    view = a_view((((2, 3, 4), (0, 1, 8)),) * 4, picture=np.full((*SIZE, 1), 255, np.uint8))
    shown = view.figure().axes[0].get_images()[0].get_array()
    np.testing.assert_allclose(shown[2:6, 3:7], 1.0)
    assert shown[0, 1] == pytest.approx(0.65)
    assert shown[13, 17] == pytest.approx(0.3)


@pytest.mark.parametrize("places", [[(7, 9)] * 8, [(7, 9)], [(2 + n % 3, 3 + n) for n in range(14)]])
def test_numbers_on_the_image_never_cover_each_other(places):
    figure = a_view(squares(*places)).figure()
    numbers = [text.get_position() for text in figure.axes[0].texts]
    pixel = figure.axes[0].get_window_extent().width / figure.dpi / 18  # inches
    assert len(numbers) == len(places)
    apart = [np.hypot(a[0] - b[0], a[1] - b[1]) * pixel for i, a in enumerate(numbers) for b in numbers[:i]]
    assert min(apart, default=1.0) > 0.2


@pytest.mark.parametrize(("patch", "count"), [(2, 8), (8, 20)])
def test_crowded_numbers_in_a_corner_stay_numbers(patch, count):
    places = np.full((count, 2), 60.0 - patch / 2)
    assert np.isfinite(drawing._apart(places, 6.0, (0.0, 0.0, 60.0, 60.0))).all()


def test_of_many_classes_the_likeliest_are_shown():
    view = a_view(classes=tuple(f"class {number}" for number in range(40)))
    steps = view.maps[0].queries
    columns = [text for text in written(view.figure()) if text.startswith("class")]
    assert len(columns) == 12
    assert steps.classes[int(np.argmax(steps.probabilities[-1]))] in columns


def test_colour_images_and_long_names_are_drawn_in_every_format():
    picture = np.zeros((*SIZE, 3), np.uint8)
    view = a_view(classes=("a very long name of a class", "猫 $x$"), picture=picture)
    assert view.png().startswith(b"\x89PNG")
    assert view.pdf().startswith(b"%PDF")
    assert "猫 $x$" in list(ElementTree.fromstring(view.svg()).itertext())


def test_data_hold_windows_probabilities_and_patches_and_give_back_the_map():
    view = a_view()
    values = json.loads(json.dumps(view.to_dict()))
    steps = values["maps"][0]["queries"]
    assert steps["windows"][0] == [[5, 7, 4], [3, 5, 8]]
    assert steps["classes"] == list(DIGITS)
    assert steps["patches"][0][0].startswith("data:image/png;base64,")
    again = AttentionMap.from_dict(values["maps"][0])
    assert np.array_equal(again.weights, view.maps[0].weights)
    assert again.queries.windows == view.maps[0].queries.windows


def test_names_cannot_break_out_of_the_page():
    attack = "</script><script>alert(1)</script>{{title}}"
    document = replace(a_view(classes=(attack, "b")), title=attack).html()
    assert document.count("<script") == document.count("</script>") == 2
    assert "default-src 'none'" in document
    assert not re.search(r"\b(src|href|action)=|@import|url\(", document)
