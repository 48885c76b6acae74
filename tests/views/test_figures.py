import subprocess
import sys
import warnings
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO

import numpy as np
import pytest
from matplotlib.colors import LinearSegmentedColormap
from PIL import Image

from saccade.views import AttentionMap, View
from saccade.views.axes import Axis, Grid, Steps, Tokens
from saccade.views.figures.palette import COLOURS


def a_map(queries: Axis, keys: Axis, heads: int = 1, name: str = "decoder.attention", seed: int = 0) -> AttentionMap:
    scores = np.exp(2 * np.random.default_rng(seed).normal(size=(heads, len(queries), len(keys))))
    return AttentionMap(name, scores / scores.sum(axis=-1, keepdims=True), queries, keys)


def draw(maps, title: str = ""):
    return View(title, tuple(maps)).figure()


def png(maps, title: str = "") -> bytes:
    return View(title, tuple(maps)).png()


def svg(maps, title: str = "") -> bytes:
    return View(title, tuple(maps)).svg()


def tokens(count: int, word: str = "word") -> Tokens:
    return Tokens(tuple(f"{word}{index}" for index in range(count)))


def texts(figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts] + [text.get_text() for text in figure.texts]


def panels(figure) -> list:
    return [axes for axes in figure.axes if axes.get_ylabel() != "attention weight"]


def size(picture: bytes) -> tuple[int, int]:
    return Image.open(BytesIO(picture)).size


def test_the_alignment_matrix_has_sources_on_top_and_the_translation_on_the_left():
    attention = a_map(Tokens(("le", "chat")), Tokens(("the", "cat", ".")))
    figure = draw([attention.changed(query_title="translation", key_title="source")])
    axes = panels(figure)[0]
    place = {text.get_text(): text.get_window_extent().get_points().mean(axis=0) for text in axes.texts}
    inside = axes.get_window_extent()
    assert all(place[word][1] > inside.y1 for word in ("the", "cat", "source"))
    assert place["the"][0] < place["cat"][0] < place["."][0]
    assert all(place[word][0] < inside.x0 for word in ("le", "chat", "translation"))
    assert place["le"][1] > place["chat"][1]


def test_colours_and_numbers_stand_where_the_weights_are():
    weights = [[0.9, 0.1, 0.0], [0.25, 0.0, 0.75]]
    attention = AttentionMap("decoder.attention", weights, Tokens(("le", "chat")), Tokens(("the", "cat", ".")))
    axes = panels(draw([attention]))[0]
    np.testing.assert_allclose(axes.collections[0].get_array(), weights)
    numbers = {
        text.get_position(): text.get_text()
        for text in axes.texts
        if text.get_text().startswith(".") and len(text.get_text()) == 3
    }
    assert numbers == {(0.5, 0.5): ".90", (1.5, 0.5): ".10", (0.5, 1.5): ".25", (2.5, 1.5): ".75"}
    assert axes.get_ylim() == (2, 0)


@pytest.mark.parametrize(
    ("peak", "keys", "largest"), [(0.4, 100, 0.4), (0.011, 100, 0.06), (0.9, 100, 1.0), (0.4, 4, 1.0)]
)
def test_colours_reach_to_the_largest_weight_or_to_six_times_even_attention(peak, keys, largest):
    """Nearly even attention looks nearly even."""
    weights = np.full((1, keys), (1 - peak) / (keys - 1))
    weights[0, 0] = peak
    bar = draw([AttentionMap("decoder.attention", weights, tokens(1), tokens(keys))]).axes[-1]
    assert bar.get_ylabel() == "attention weight"
    assert bar.get_ylim() == pytest.approx((0, largest))


def test_the_sides_take_the_titles_they_are_given():
    attention = AttentionMap("mine", np.eye(2), ["a", "b"], ["x", "y"])
    assert {"query", "key", "a", "y"} <= set(texts(draw([attention])))
    said = texts(draw([attention.changed(query_title="French", key_title="English")], title="Now"))
    assert {"Now", "French", "English"} <= set(said)
    assert not {"translation", "source", "query", "key"} & set(said)


def test_colours_are_even_steps_of_lightness():
    rgb = LinearSegmentedColormap.from_list("ink", COLOURS)(np.linspace(0, 1, 65))[:, :3]
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    luminance = linear @ [0.2126, 0.7152, 0.0722]
    lightness = np.where(luminance > 0.008856, 116 * np.cbrt(luminance) - 16, 903.3 * luminance)  # CIE L*
    steps = -np.diff(lightness)
    assert (steps > 0).all()
    assert steps.max() < 2 * steps.mean()
    assert lightness[0] > 97
    assert lightness[-1] < 25


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 12), (12, 1), (60, 60), (200, 3)])
def test_pictures_grow_with_the_words(queries, keys):
    width, height = size(png([a_map(tokens(queries), tokens(keys))]))
    assert width > 20 * min(keys, 60)
    assert height > 20 * min(queries, 60)
    assert max(width, height) < 4000


def test_sixty_words_are_all_written_in_a_readable_size():
    figure = draw([a_map(tokens(60, "a"), tokens(60, "b"))])
    written = {text.get_text(): text.get_fontsize() for text in panels(figure)[0].texts}
    assert all(written[f"a{index}"] >= 8 and written[f"b{index}"] >= 8 for index in range(60))


def test_sixty_words_are_all_written_where_several_maps_stand_side_by_side():
    figure = draw([a_map(tokens(60, "a"), tokens(60, "b"))] * 2)
    written = {text.get_text() for text in panels(figure)[0].texts}
    assert {f"{side}{index}" for side in "ab" for index in range(60)} <= written


def test_titles_of_narrow_panels_do_not_run_into_each_other():
    names = [f"decoder.layers.{number}.cross_attention, average of 4 heads" for number in range(4)]
    figure = draw([a_map(tokens(20), tokens(5), name=name) for name in names])
    boxes = [text.get_window_extent() for axes in panels(figure) for text in axes.texts if "layer" in text.get_text()]
    assert len(boxes) == 4
    assert not any(a.overlaps(b) for place, a in enumerate(boxes) for b in boxes[place + 1 :])


def test_a_long_title_does_not_widen_the_picture():
    maps = [a_map(tokens(3), tokens(3))]
    short, long = (size(png(maps, title=title)) for title in ("a b", "a title of many words " * 12))
    assert long[0] < 1.3 * max(short[0], 6.0 * 160)
    assert long[1] > short[1]


def test_words_never_cover_each_other():
    figure = draw([a_map(tokens(20, "économique"), tokens(20, "Donaudampfschiff"))])
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in panels(figure)[0].texts if text.get_text().startswith("économique")]
    assert not any(a.overlaps(b) for place, a in enumerate(boxes) for b in boxes[place + 1 :])


def test_one_map_shows_its_average_with_words_and_every_head():
    figure = draw([a_map(tokens(4), tokens(5), heads=8, name="decoder.layers.3.cross_attention")])
    assert len(panels(figure)) == 9
    said = texts(figure)
    assert {"decoder · layer 3 · cross attention, average of 8 heads", "head 0", "head 7"} <= set(said)
    assert said.count("word0") == 2


def test_six_layers_of_eight_heads_share_their_words():
    maps = [a_map(tokens(9, "t"), tokens(10, "s"), 8, f"decoder.layers.{layer}.cross_attention") for layer in range(6)]
    figure = draw(maps, title="All")
    assert len(panels(figure)) == 6 * 9
    said = texts(figure)
    assert said.count("s0") == 9
    assert said.count("t0") == 6
    assert said.count("head 7") == 6
    assert {f"decoder · layer {layer} · cross attention" for layer in range(6)} <= set(said)
    boxes = [axes.get_position() for axes in panels(figure)]
    assert not any(a.overlaps(b) for place, a in enumerate(boxes) for b in boxes[place + 1 :])


def test_heads_of_a_single_query_become_rows_of_one_matrix():
    figure = draw([a_map(Tokens(("maize",)), Steps(("May", "June", "July")), heads=4)])
    assert len(panels(figure)) == 1
    assert {"maize: average", "head 0", "head 3", "May", "step"} <= set(texts(figure))


def test_words_that_look_at_an_image_are_small_heat_grids():
    grid = Grid(3, 5, ("[class]",))
    attention = a_map(Tokens(("a", "dog")), grid, heads=2)
    figure = draw([attention])
    shown = [axes.collections[0].get_array() for axes in panels(figure)]
    for word, cells in enumerate(shown):
        np.testing.assert_allclose(cells, attention.averaged().weights[0, word, 1:].reshape(3, 5))
    assert any(text.startswith("dog\n→ [class] .") for text in texts(figure))


def test_a_class_token_is_shown_head_by_head_and_cells_alone_as_a_matrix():
    with_class, cells = Grid(2, 2, ("[class]",)), Grid(2, 2)
    assert len(panels(draw([a_map(with_class, with_class, heads=3)]))) == 4
    assert len(panels(draw([a_map(cells, cells)]))) == 1


def test_maps_of_different_kinds_share_one_picture():
    words = tokens(3)
    maps = [
        a_map(words, words, 2, "decoder.layers.0.self_attention"),
        a_map(words, Grid(2, 2), 2),
        a_map(words, tokens(4)),
    ]
    assert size(png(maps, title="Mixed"))[0] > 300


def test_strange_words_are_drawn_without_a_warning(recwarn, caplog, capsys):
    strange = (
        "",
        " ",
        "$5",
        "$x$",
        "a_b^c",
        "猫が好き",
        "العربية",
        "שלום",
        "हिन्दी",
        "😀",
        "\ud800",
        "a\nb",
        "\\frac",
        "%",
        "x" * 300,
    )
    attention = a_map(Tokens(strange), Tokens(strange), name="$a$")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        picture = png([attention], title="$ 猫 \ud800")
        drawing = svg([attention], title="$ 猫")
        View("$ 猫", (attention,)).pdf()
    assert size(picture)[0] < 3000
    assert "猫が好き" in "".join(ElementTree.fromstring(drawing).itertext())
    assert not caplog.records
    assert capsys.readouterr().err == ""
    figure = draw([attention])
    assert {"∅", "␣", "$5", "$x$"} <= set(texts(figure))
    assert not any(text.get_parse_math() for text in panels(figure)[0].texts)


def test_weights_of_zero_do_not_divide_by_zero():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        png([AttentionMap("decoder.attention", np.zeros((1, 2, 2)), tokens(2), tokens(2))])


def test_a_small_svg_has_pixels_only_in_its_colour_bar_and_a_large_one_stays_light():
    assert svg([a_map(tokens(5), tokens(5))]).count(b"<image") == 1
    maps = [a_map(tokens(40), tokens(40), 8, f"layers.{layer}") for layer in range(2)]
    assert len(svg(maps)) < 3_000_000


def test_threads_draw_the_same_pictures_as_one_after_the_other():
    maps = [a_map(tokens(2 + index), tokens(3), seed=index) for index in range(6)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda each: png([each]), maps)) == [png([each]) for each in maps]


def test_matplotlib_is_loaded_when_something_is_drawn_and_pyplot_never():
    code = """
import sys
import numpy as np
from saccade.views import AttentionMap, Grid, Tokens, View, confusion, figures, view
words = AttentionMap("a", [[1.0]], Tokens(("x",)), Tokens(("y",)))
grid = Grid(2, 2)
image = View("x", (AttentionMap("x", np.eye(4), grid, grid),), picture=np.zeros((8, 8, 1), np.uint8))
assert "matplotlib" not in sys.modules
words._repr_png_()
image.png()
assert "matplotlib" in sys.modules
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("heads", [1, 4])
def test_a_layer_that_is_drawn_alone_is_named(heads):
    def texts(name: str, title: str) -> str:
        words = Tokens(("a", "dog"))
        figure = draw([AttentionMap(name, np.full((heads, 2, 2), 0.5), words, words)], title)
        return " / ".join(text.get_text() for axes in figure.axes for text in axes.texts)

    layer = "decoder · layer 3 · cross attention"
    assert layer in texts("decoder.layers.3.cross_attention", "a dog")
    assert layer not in texts("decoder.layers.3.cross_attention", layer)  # it is the title already
    assert "decoder" not in texts("decoder.attention", "a dog")  # there is no other
