"""A map between any two axes draws itself in every format and shows what stands along both sides."""

import itertools
import xml.etree.ElementTree as ElementTree
from datetime import date, timedelta

import numpy as np
import pytest

from saccade.views import AttentionMap, Dates, Grid, Objects, Scales, Steps, Tokens, Variables, View
from saccade.views.axes import Axis, axis_from_dict, axis_to_dict

DAYS = tuple(f"2021-05-{day:02}" for day in (1, 6, 11, 16))
AXES: dict[str, Axis] = {
    "tokens": Tokens(("le", "chat", "noir")),
    "grid": Grid(2, 3, ("[class]",)),
    "steps": Steps(
        ("first", "then"), (((1, 2, 4), (0, 0, 8)), ((5, 6, 4), (3, 4, 8))), ("cat", "dog"), ((0.4, 0.6), (0.9, 0.1))
    ),
    "dates": Dates(DAYS, {"NDVI": (0.1, None, 0.4, 0.7), "rain": (3.0, 0.0, 0.0, 1.0)}, (False, True, False, False)),
    "variables": Variables(("open", "close", "volume")),
    "objects": Objects(("person", "bicycle"), ((0.1, 0.1, 0.3, 0.6), (0.4, 0.3, 0.5, 0.6))),
    "scales": Scales(("1", "1/2", "1/4")),
}
PICTURE = np.random.default_rng(0).integers(0, 256, (16, 24, 3), dtype=np.uint8)


def a_view(queries: Axis, keys: Axis, picture=None, heads: int = 1) -> View:
    weights = np.random.default_rng(0).dirichlet(np.ones(len(keys)), (heads, len(queries)))
    return View("a title", (AttentionMap("attention", weights, queries, keys),), picture=picture)


def texts(figure) -> set[str]:
    written = (text.get_text() for holder in (figure, *figure.axes) for text in holder.texts)
    return {line for text in written for line in text.splitlines()}


def expected(axis: Axis, other: Axis, has_picture: bool, is_query: bool) -> set[str]:
    """What must be written of an axis; cells of a picture are drawn, not written."""
    match axis:
        case Grid():
            is_drawn = has_picture or not is_query or isinstance(other, Grid | Scales)
            return set() if is_drawn else {"[class]", "0,0", "1,2"}
        case Dates():
            return {*axis.labels, *(() if isinstance(other, Grid) and (has_picture or is_query) else axis.series)}
        case Steps() if has_picture and (is_query or not isinstance(other, Grid)):
            return {"1", "2", "cat", "dog"}
        case Objects() if has_picture and isinstance(other, Grid):
            return {"1 person", "2 bicycle"}
        case _:
            return set(axis.labels)


@pytest.mark.parametrize("queries", AXES)
def test_a_map_between_any_two_axes_shows_its_labels(queries):
    for keys, picture in itertools.product(AXES, (None, PICTURE)):
        written = texts(a_view(AXES[queries], AXES[keys], picture).figure())
        assert expected(AXES[queries], AXES[keys], picture is not None, True) <= written, keys
        assert expected(AXES[keys], AXES[queries], picture is not None, False) <= written, keys


@pytest.mark.slow
@pytest.mark.parametrize(("queries", "keys", "heads"), itertools.product(AXES, AXES, (1, 3)))
def test_a_map_between_any_two_axes_is_written_in_every_format(queries, keys, heads):
    for picture in (None, PICTURE):
        view = a_view(AXES[queries], AXES[keys], picture, heads)
        assert view.png().startswith(b"\x89PNG")
        assert view.pdf().startswith(b"%PDF")
        ElementTree.fromstring(view.svg())


def test_text_stays_text_in_svg_and_fonts_are_embedded_in_pdf():
    for kind, picture in zip(AXES, itertools.cycle((None, PICTURE))):
        view = a_view(AXES["dates"], AXES[kind], picture)
        written = set(ElementTree.fromstring(view.svg()).itertext())
        assert set(DAYS) <= written, kind
    document = view.pdf()
    assert document.startswith(b"%PDF")
    assert b"/FontFile2" in document
    assert view.png().startswith(b"\x89PNG")


@pytest.mark.parametrize("kind", AXES)
def test_an_axis_comes_back_from_json(kind):
    assert axis_from_dict(axis_to_dict(AXES[kind])) == AXES[kind]


def test_dates_have_ticks_by_month_where_days_would_not_fit_and_series_lie_along_the_edge():
    days = tuple(str(date(2020, 11, 3) + timedelta(5 * n)) for n in range(146))
    figure = a_view(Tokens(("maize",)), Dates(days, {"NDVI": tuple(np.sin(np.arange(146) / 9))})).figure()
    written = texts(figure)
    assert {"2021-01", "2021-07", "2022-05"} <= written
    assert len([text for text in written if text.startswith("202")]) < 30
    matrix, strip = figure.axes[0].get_position(), figure.axes[1].get_position()
    assert (strip.x0, strip.x1) == pytest.approx((matrix.x0, matrix.x1))
    assert strip.y0 >= matrix.y1


def test_scales_show_the_picture_once_each_under_its_weights():
    grid, scales = Grid(2, 3), Scales(("1", "1/2"))
    weights = np.zeros((1, 6, 2))
    weights[0, :, 1] = 1
    weights[0, 4] = (1, 0)
    white = np.full((16, 24, 3), 255, np.uint8)
    figure = View("scales", (AttentionMap("attention", weights, grid, scales),), picture=white).figure()
    fine, coarse = (axes.images[0].get_array() for axes in figure.axes[1:3])
    assert fine[-10, 180].mean() < 0.4 < fine[10, 10].mean()
    assert coarse[10, 10].mean() < 0.4 < coarse[-10, 180].mean()


def test_objects_are_framed_and_numbered_on_the_picture():
    figure = a_view(AXES["objects"], Grid(4, 6), PICTURE).figure()
    assert {"1 person", "2 bicycle"} <= texts(figure)
    assert figure.axes[1].patches[0].get_bbox().bounds == pytest.approx((0.1, 0.1, 0.3, 0.6))
