"""Numbers stand where the counts are, truth down the side and predictions along the top."""

import warnings
import xml.etree.ElementTree as ElementTree
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from saccade.errors import UserError
from saccade.views.confusion import draw, save


def scores(counts, classes=None) -> tuple[list, list[str]]:
    """Counts and the names of their classes."""
    return np.asarray(counts).tolist(), classes or [f"class {index}" for index in range(len(counts))]


def test_counts_and_names_stand_where_they_belong():
    axes = draw(*scores([[50, 0, 2], [3, 40, 0], [0, 1, 30]], ["cat", "dog", "bird"])).axes[0]
    numbers = {
        (text.get_position()[1] - 0.5, text.get_position()[0] - 0.5): text.get_text()
        for text in axes.texts
        if text.get_text().isdigit()
    }
    assert numbers == {(0, 0): "50", (0, 2): "2", (1, 0): "3", (1, 1): "40", (2, 1): "1", (2, 2): "30"}
    inside = axes.get_window_extent()
    places: dict[str, list] = {}
    for text in axes.texts:
        places.setdefault(text.get_text(), []).append(text.get_window_extent().get_points().mean(0))
    assert places["taken for"][0][1] > inside.y1
    assert places["truth"][0][0] < inside.x0
    for name in ("cat", "dog", "bird"):
        beside, above = sorted(places[name], key=lambda place: place[0])
        assert beside[0] < inside.x0
        assert above[1] > inside.y1
    assert axes.get_ylim() == (3, 0)


def test_colours_are_shares_of_the_row_with_a_scale_for_mistakes():
    figure = draw(*scores([[90, 10, 0], [0, 2, 2], [0, 0, 7]]))
    right, mistaken = figure.axes[0].collections
    np.testing.assert_allclose(right.get_array().diagonal(), [0.9, 0.5, 1.0])
    assert right.norm.vmax == 1
    assert mistaken.norm.vmax == 0.5
    assert mistaken.get_array()[0, 1] == pytest.approx(0.1)
    assert {axes.get_ylabel() for axes in figure.axes[1:]} == {"right, of the row", "mistaken, of the row"}


@pytest.mark.parametrize("counts", [[[5, 0], [0, 5]], [[5, 0, 0], [0, 5, 0], [0, 0, 0]], [[0, 5], [5, 0]]])
def test_no_mistakes_no_images_and_nothing_right_are_drawn(counts):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw(*scores(counts)).savefig(BytesIO())


@pytest.mark.parametrize("classes", [2, 10, 60])
def test_a_picture_stays_readable_for_few_and_many_classes(classes, tmp_path):
    counts = np.random.default_rng(0).poisson(0.3, (classes, classes)) + 5 * np.eye(classes, dtype=int)
    figure = draw(*scores(counts))
    figure.savefig(tmp_path / "a.png", dpi=100, bbox_inches="tight")
    width, height = Image.open(tmp_path / "a.png").size
    assert 250 < height < width + 250 < 1800
    names = [text.get_window_extent() for text in figure.axes[0].texts if text.get_text().startswith("class")]
    assert not any(a.overlaps(b) for place, a in enumerate(names[:40]) for b in names[place + 1 : 40])
    bars = [axes.get_window_extent() for axes in figure.axes[1:]]
    assert all(bar.height > 60 for bar in bars)
    assert not bars[0].overlaps(bars[1])


def test_files_are_written_whatever_the_names_and_titles(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save(*scores([[1, 0], [1, 1]], ["$x$", "猫 العربية \ud800" + "x" * 80]), tmp_path / "a.svg", title="$ 猫")
    ElementTree.parse(tmp_path / "a.svg")
    save(*scores([[1, 0], [1, 1]]), tmp_path / "a.png")
    assert Image.open(tmp_path / "a.png").size[0] > 400
    with pytest.raises(UserError, match=r"must end in \.png, \.svg or \.pdf"):
        save(*scores([[1, 0], [1, 1]]), tmp_path / "a.html")
