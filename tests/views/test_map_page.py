"""Self-contained pages in a real browser. Debian: `apt-get install chromium`; nothing is downloaded by playwright itself."""

import json
import re
from html import escape
from pathlib import Path

import numpy as np
import pytest

from saccade.views import AttentionMap, save
from saccade.views.axes import Axis, Dates, Grid, Objects, Scales, Steps, Tokens, Variables, data_address
from saccade.views.page import document
from saccade.views.page.bundle import bundle, in_order, modules
from saccade.views.view import View, picture_to_dict

SOURCE, TARGET = Tokens(("the", "black", "cat", ".")), Tokens(("le", "chat", "noir"))
LOOKS = np.array(
    [
        [[0.8, 0.1, 0.1, 0.0], [0.0, 0.1, 0.9, 0.0], [0.0, 0.75, 0.25, 0.0]],
        [[0.4, 0.2, 0.2, 0.2], [0.2, 0.4, 0.3, 0.1], [0.1, 0.2, 0.3, 0.4]],
    ]
)
PICTURE = np.zeros((8, 8, 3), np.uint8)
PICTURE[:, :, 0] = 200
PALE = round(255 * 0.78 + 0.22 * 0.299 * 200)


def cross(layer: int = 0, queries: Axis = TARGET, keys: Axis = SOURCE, weights: np.ndarray = LOOKS) -> AttentionMap:
    return AttentionMap(f"decoder.layers.{layer}.cross_attention", weights, queries, keys, "translation", "source")


def long_map(words: int = 40) -> AttentionMap:
    side = Tokens(tuple(f"Wirtschaftsraum{index}" for index in range(words)))
    return cross(0, side, side, np.eye(words)[None] * 0.5 + 0.5 / words)


def page(maps: list[AttentionMap], title: str = "", seen_from: tuple = (), **values) -> str:
    starts = {attention.name: query for attention, query in zip(maps, seen_from, strict=False) if query is not None}
    return View(title or maps[0].label, tuple(maps), seen_from=starts, **values).html()


def a_view(attention: AttentionMap, picture: np.ndarray | None = None, **more) -> str:
    """The page of one map, with further values of its View."""
    shown = None if picture is None else picture_to_dict(picture)
    return document({"title": "a view", "picture": shown, "maps": [attention.to_dict(digits=5)], **more})


def embedded(text: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])


# The document


def test_modules_come_after_what_they_import_and_lose_their_imports_and_exports():
    sources = {
        "a": 'import {b, c} from "./b.js";\nexport const a = b + c;\n',
        "b": 'import {c} from "./c.js";\nexport function b() { return c; }\n',
        "c": "export const c = 1;\n",
    }
    assert in_order("a", sources) == ["c", "b", "a"]
    assert bundle("a", sources) == (
        '(() => {\n"use strict";\nconst c = 1;\n\nfunction b() { return c; }\n\nconst a = b + c;\n})();\n'
    )
    with pytest.raises(ValueError, match="in a circle: a -> a"):
        in_order("a", {"a": 'import {a} from "./a.js";\n'})


def test_every_module_is_in_the_file_and_no_two_share_a_name():
    sources = modules()
    assert sorted(in_order("file", sources)) == sorted(sources)
    names = [
        name
        for source in sources.values()
        for line in re.findall(r"^(?:export )?(?:const|let|class|(?:async )?function\*?) (.*)", source, re.MULTILINE)
        for name in re.findall(r"^(\w+)|, ([A-Z_]+) = ", line)
    ]
    assert len(names) > 50
    assert len(names) == len(set(names))


def test_imports_name_what_the_other_module_exports():
    sources = modules()
    for name, source in sources.items():
        for names, module in re.findall(r'^import \{([^}]*)\} from "\./(\w+)\.js";$', source, re.MULTILINE):
            for imported in names.split(", "):
                exported = rf"^export (?:const|class|(?:async )?function) {imported}\b"
                assert re.search(exported, sources[module], re.MULTILINE), (name, imported, module)
                assert len(re.findall(rf"\b{imported}\b", source)) > 1, f"{name}.js does not use {imported}"


def test_words_cannot_break_out_of_the_data():
    attack = "</script><script>alert(1)</script><!-- & \u2028"
    text = page([cross(queries=Tokens((attack, "b", "c")))], title=attack + '" onload="x')
    assert text.count("<script") == 2
    assert text.count("</script>") == 2
    assert attack in json.dumps(embedded(text)["maps"][0]["queries"], ensure_ascii=False)
    assert f"<title>{escape(attack)}" in text


def test_words_that_look_like_the_shells_own_marks_stay_words():
    text = page([cross(queries=Tokens(("{{title}}", "{{data}}", "{{policy}}")))], title="{{data}}")
    assert "{{policy}}" in json.dumps(embedded(text)["maps"][0]["queries"])
    assert "<title>{{data}}</title>" in text


def test_the_page_names_nothing_outside_itself():
    text = page([cross()])
    assert "default-src 'none'" in text
    assert not re.search(r"\b(src|href|action)=|@import|url\(", text)
    assert set(re.findall(r"https?://[^\s\"']+", text)) == {"http://www.w3.org/2000/svg"}


# In a browser


@pytest.fixture
def visit(browser, tmp_path):
    """Open saved maps or a document at a width, and fail on any error, console message or request beyond the file itself."""
    contexts, complaints, requests = [], [], []

    def open_page(shown: str | list[AttentionMap], width=1200, title="", **options):
        path: Path = tmp_path / f"maps{len(contexts)}.html"
        if isinstance(shown, str):
            path.write_text(shown, "utf-8")
        else:
            save(shown, path, title=title)
        context = browser.new_context(viewport={"width": width, "height": 800}, **options)
        contexts.append(context)
        tab = context.new_page()
        tab.set_default_timeout(10000)
        # Reading pixels back is what these tests do, not what the page does.
        tab.on("console", lambda message: None if "getImageData" in message.text else complaints.append(message.text))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
        tab.on("request", lambda request: requests.append(request.url))
        tab.goto(path.as_uri())
        return tab

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
    assert len([url for url in requests if url.startswith("file://")]) == len(contexts)
    assert all(url.startswith(("file://", "about:srcdoc", "data:image/png")) for url in requests)


def word(tab, kind: str, index: int):
    return tab.locator(f"[data-kind={kind}][data-index='{index}']")


def numbers(tab, kind: str) -> list[str]:
    return tab.locator(f"[data-kind={kind}] .number").all_inner_texts()


def table(tab) -> list[list[float]]:
    """The matrix; blanks are zeros."""
    return [[float(cell or 0) for cell in row.locator("td").all_inner_texts()] for row in tab.locator("tbody tr").all()]


def status(tab) -> str:
    return tab.get_by_role("status").inner_text()


def choose_head(tab, value: str) -> None:
    tab.get_by_label(re.compile("^Head")).select_option(value)


def point(tab, stage: str, across: float, down: float, action: str = "hover") -> None:
    """Hover over or click a place of a picture, in shares of its size."""
    canvas = tab.locator(f"canvas[data-stage={stage}]").first
    box = canvas.bounding_box()
    getattr(canvas, action)(position={"x": across * box["width"], "y": down * box["height"]})


def colour(tab, across: float, down: float, stage: str = "key") -> list[int]:
    script = """(canvas, [x, y]) => [...canvas.getContext("2d")
        .getImageData(Math.floor(x * canvas.width), Math.floor(y * canvas.height), 1, 1).data].slice(0, 3)"""
    return tab.locator(f"canvas[data-stage={stage}]").first.evaluate(script, [across, down])


def test_hovering_over_a_word_shows_its_partners_with_their_weights(visit):
    tab = visit([cross()], title="le chat noir")
    assert tab.title() == "le chat noir"
    choose_head(tab, "0")
    word(tab, "query", 2).hover()
    assert numbers(tab, "key") == ["", "0.75", "0.25", ""]
    shaded = [("shaded" in (word(tab, "key", index).get_attribute("class") or "")) for index in range(4)]
    assert shaded == [False, True, True, False]
    assert status(tab) == "noir looks at: black 0.75, cat 0.25"
    word(tab, "key", 2).hover()
    assert numbers(tab, "query") == ["0.10", "0.90", "0.25"]
    assert status(tab) == "cat is looked at by: chat 0.90, noir 0.25, le 0.10"
    tab.mouse.move(5, 5)
    assert numbers(tab, "query") == ["", "", ""]


def test_arcs_that_stand_out_are_drawn_and_all_of_a_chosen_word(visit):
    tab = visit([cross()])
    choose_head(tab, "0")
    opacities = "lines => lines.map(line => Number(line.getAttribute('opacity')))"
    assert sorted(tab.locator(".lines path").evaluate_all(opacities)) == [0.75, 0.8, 0.9]
    word(tab, "query", 0).hover()
    assert tab.locator(".lines path").evaluate_all(opacities) == [0.8, 0.1, 0.1]


def test_even_attention_has_no_arcs_and_pale_cells(visit):
    words = Tokens(tuple("abcdefghij"))
    tab = visit([cross(0, words, words, np.full((10, 10), 0.1))])
    assert tab.locator(".lines path").count() == 0
    red = tab.locator("td").first.evaluate("cell => Number(getComputedStyle(cell).backgroundColor.match(/\\d+/)[0])")
    assert red > 140  # dark ink is 35, paper 247
    assert tab.locator(".legend .limit").inner_text() == "0.60"


def test_choosing_a_head_and_a_map_changes_the_numbers(visit):
    tab = visit([cross(0), cross(1, weights=LOOKS[:, ::-1])])
    np.testing.assert_allclose(table(tab), LOOKS.mean(axis=0), atol=0.0051)
    choose_head(tab, "1")
    np.testing.assert_allclose(table(tab), LOOKS[1], atol=0.0051)
    tab.get_by_label(re.compile("^Attention")).select_option(label="decoder · layer 1 · cross attention")
    choose_head(tab, "0")
    np.testing.assert_allclose(table(tab), LOOKS[0, ::-1], atol=0.0051)


def test_weights_that_round_to_nothing_are_blanks(visit):
    tab = visit([cross()])
    choose_head(tab, "0")
    cells = tab.locator("td").all_inner_texts()
    assert "0.00" not in cells
    assert [bool(text) for text in cells] == (LOOKS[0] > 0).ravel().tolist()


def test_a_thumbnail_of_layers_and_heads_chooses_them(visit):
    tab = visit([cross(0), cross(1, weights=LOOKS[:, ::-1])])
    tab.get_by_text("Choose from all 4 heads of 2 layers").click()
    tab.get_by_role("button", name="decoder · layer 1 · cross attention, head 1").click()
    np.testing.assert_allclose(table(tab), LOOKS[1, ::-1], atol=0.0051)
    pressed = tab.locator(".thumbnails [aria-pressed=true]")
    assert pressed.get_attribute("title") == "decoder · layer 1 · cross attention, head 1"


def test_a_chosen_word_stays_chosen_when_the_head_changes(visit):
    tab = visit([cross()])
    choose_head(tab, "0")
    word(tab, "query", 0).click()
    tab.mouse.move(5, 5)
    assert numbers(tab, "key") == ["0.80", "0.10", "0.10", ""]
    choose_head(tab, "1")
    assert numbers(tab, "key") == ["0.40", "0.20", "0.20", "0.20"]


def test_pointing_at_a_cell_names_the_pair_and_lights_its_headers(visit):
    tab = visit([cross()])
    choose_head(tab, "0")
    tab.locator("td[data-query='1'][data-key='2']").hover()
    assert status(tab) == "chat looks at cat with weight 0.90."
    background = "header => getComputedStyle(header).backgroundColor"
    for role, name in (("columnheader", "cat"), ("rowheader", "chat")):
        assert tab.get_by_role(role, name=name).evaluate(background) == "rgb(255, 227, 154)"


def test_the_keyboard_reaches_every_word(visit):
    tab = visit([cross(weights=LOOKS[:1])])
    tab.keyboard.press("Tab")
    focused = "[document.activeElement.dataset.kind, document.activeElement.dataset.index]"
    assert tab.evaluate(focused) == ["key", "0"]
    tab.keyboard.press("ArrowRight")
    assert tab.evaluate(focused) == ["key", "1"]
    assert numbers(tab, "query") == ["0.10", "0.10", "0.75"]
    tab.keyboard.press("ArrowDown")
    assert tab.evaluate(focused)[0] == "query"
    tab.keyboard.press("End")
    assert tab.evaluate(focused) == ["query", "2"]
    assert word(tab, "query", 2).get_attribute("aria-pressed") == "true"
    tab.keyboard.press("Escape")
    assert numbers(tab, "key") == [""] * 4
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.className") == "scroller"


def test_a_screen_reader_hears_what_everything_is(visit):
    tab = visit([cross()])
    assert tab.get_by_role("group", name="source").is_visible()
    assert tab.get_by_role("group", name="translation").is_visible()
    assert tab.get_by_role("img", name=re.compile("Colours: pale is weight 0, strong is")).is_visible()
    assert tab.get_by_role("region", name="Matrix of attention weights").is_visible()
    assert tab.get_by_role("columnheader", name="cat").is_visible()
    assert tab.get_by_role("rowheader", name="chat").is_visible()
    assert tab.get_by_role("status").get_attribute("aria-live") == "polite"


@pytest.mark.parametrize("maps", [[cross()], [long_map()], [cross(keys=Grid(2, 2))]], ids=["short", "long", "image"])
def test_the_page_itself_never_scrolls_sideways(visit, maps):
    tab = visit(maps, title="x" * 300)
    for width in (1200, 390, 320):
        tab.set_viewport_size({"width": width, "height": 800})
        word(tab, "query", 1).hover()
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_a_telephone_gets_two_columns_and_a_table_that_scrolls_by_itself(visit):
    tab = visit([long_map()], 390, has_touch=True, is_mobile=True)
    assert tab.locator(".looks").get_attribute("class") == "looks columns"
    assert tab.evaluate("(box => box.scrollWidth > box.clientWidth)(document.querySelector('.scroller'))")
    word(tab, "query", 3).tap()
    assert numbers(tab, "key")[3] == "0.51"
    word(tab, "query", 3).tap()
    assert set(numbers(tab, "key")) == {""}


def test_sentences_that_fit_on_a_line_are_two_rows_until_the_window_shrinks(visit):
    words = Tokens(tuple(f"word{index}" for index in range(10)))
    tab = visit([cross(0, words, words, np.eye(10))])
    assert tab.locator(".looks").get_attribute("class") == "looks rows"
    tab.set_viewport_size({"width": 390, "height": 800})
    tab.wait_for_function("document.querySelector('.looks').className === 'looks columns'")


@pytest.mark.parametrize("width", [390, 700])
def test_hovering_moves_nothing(visit, width):
    tab = visit([long_map(12)], width)
    place = "document.querySelector('.scroller').getBoundingClientRect().top"
    before = tab.evaluate(place)
    word(tab, "query", 2).hover()
    assert tab.evaluate(place) == before


# Over pictures


def test_a_word_colours_the_cells_it_looks_at_over_the_pale_picture(visit):
    weights = np.array([[0.75, 0.25, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]])
    words = [{"text": "a", "probability": 0.5}, {"text": "dog", "probability": 1}]
    tab = visit(a_view(cross(0, Tokens(("a", "dog")), Grid(2, 2), weights), PICTURE, words=words))
    assert colour(tab, 0.2, 0.2) == [200, 0, 0]  # nothing is chosen: the picture as it is
    word(tab, "query", 0).hover()
    assert np.abs(np.array(colour(tab, 0.2, 0.9)) - PALE * np.array([247, 251, 252]) / 255).max() <= 1
    assert colour(tab, 0.2, 0.2) != colour(tab, 0.8, 0.2) != [PALE] * 3
    assert status(tab) == "a looks at: row 0 column 0 0.75, row 0 column 1 0.25; even would be 0.25"
    assert word(tab, "query", 0).get_attribute("title") == "probability 50\u00a0%"
    word(tab, "query", 1).focus()
    tab.keyboard.press("ArrowLeft")
    assert word(tab, "query", 0).get_attribute("aria-pressed") == "true"
    tab.keyboard.press("Escape")
    tab.mouse.move(5, 5)
    assert colour(tab, 0.2, 0.2) == [200, 0, 0]


def test_words_over_a_picture_share_one_scale(visit):
    weights = np.array([[0.5, 0.3, 0.1, 0.1], [0.26, 0.25, 0.25, 0.24]])
    tab = visit(a_view(cross(0, Tokens(("sharp", "even")), Grid(2, 2), weights), PICTURE))
    strongest = []
    for index in range(2):
        word(tab, "query", index).hover()
        assert tab.locator(".legend .limit").inner_text() == "1.00"
        strongest.append(colour(tab, 0.2, 0.2))
    assert strongest[0] != strongest[1]


def test_the_one_cell_of_hard_attention_is_uncovered(visit):
    weights = np.array([[0, 0, 0, 1.0]])
    tab = visit(a_view(cross(0, Tokens(("a",)), Grid(2, 2), weights), PICTURE))
    assert colour(tab, 0.75, 0.75) == [200, 0, 0]
    assert colour(tab, 0.25, 0.25) == [PALE] * 3


def test_cells_look_from_one_picture_at_another(visit):
    """On the map that comes first, from the query that was asked for."""
    grid = Grid(2, 2, extra=("[class]",))
    weights = np.full((1, 5, 5), 0.2)
    weights[0, 3] = [0.6, 0.0, 0.3, 0.1, 0.0]
    maps = [AttentionMap(f"layers.{layer}.self_attention", weights, grid, grid) for layer in range(2)]
    tab = visit(page(maps, "a cat", picture=PICTURE, subtitle="cat.png", seen_from=[None, 3], first=1))
    assert tab.locator(".subtitle").inner_text() == "cat.png"
    assert tab.get_by_label(re.compile("^Attention")).input_value() == maps[1].name
    assert status(tab).startswith("row 1 column 0 looks at: [class] 0.60, row 0 column 1 0.30")
    assert tab.locator(".legend .limit").inner_text() == "0.60"  # six times the mean of the cells
    point(tab, "query", 0.8, 0.2)
    assert status(tab).startswith("row 0 column 1 looks at: [class] 0.20")
    point(tab, "key", 0.8, 0.2)
    assert status(tab).startswith("row 0 column 1 is looked at by: row 1 column 0 0.30")
    tab.get_by_label(re.compile("^Attention")).select_option(maps[0].name)
    tab.mouse.move(5, 5)
    assert status(tab).startswith("Seen from all cells on average.")
    tab.locator("canvas[data-stage=query]").focus()
    tab.keyboard.press("ArrowDown")
    assert status(tab).startswith("row 1 column 0 looks at: [class] 0.60")


def test_cells_may_reach_over_the_edge_of_the_picture(visit):
    """A picture of 10 × 12 pixels under 2 × 2 cells of 8: the last ones end outside of it."""
    picture, grid = np.zeros((10, 12, 3), np.uint8), Grid(2, 2, cell=8)
    weights = np.array([[[0.1, 0.2, 0.3, 0.4]] * 4])
    tab = visit(page([AttentionMap("layers.0.self_attention", weights, grid, grid)], picture=picture))
    for across, down, cell in (
        (7.5, 7.5, "row 0 column 0"),
        (8.5, 7.5, "row 0 column 1"),
        (11.5, 8.5, "row 1 column 1"),
    ):
        point(tab, "query", across / 12, down / 10)
        assert status(tab).startswith(f"{cell} looks at: row 1 column 1 0.40")


def test_one_query_has_the_picture_itself_beside_it(visit):
    pooled = AttentionMap("pooling.attention", np.full((1, 1, 4), 0.25), Tokens(("[image]",)), Grid(2, 2))
    tab = visit(a_view(pooled, PICTURE))
    assert status(tab) == "Where [image] looks."
    left, right = (tab.locator(f"canvas.{name}").bounding_box() for name in ("plain", "stage"))
    assert left["width"] == pytest.approx(right["width"], abs=1)
    assert right["x"] > left["x"] + left["width"]


def test_a_grid_without_a_picture_is_drawn_in_ink(visit):
    grid = Grid(2, 3, ("[class]",))
    weights = np.array([[0.3, 0.0, 0.1, 0.0, 0.6, 0.0, 0.0], [0.1, 0.9, 0.0, 0.0, 0.0, 0.0, 0.0]])
    tab = visit([cross(0, Tokens(("a", "dog")), grid, weights)])
    word(tab, "query", 0).hover()
    assert status(tab).startswith("a looks at: row 1 column 0 0.60, [class] 0.30, row 0 column 1 0.10")
    assert colour(tab, 0.1, 0.1) == [247, 251, 252]
    assert sum(colour(tab, 0.1, 0.9)) < sum(colour(tab, 0.5, 0.1)) < 700
    assert tab.locator("table.matrix").count() == 0


# Other axes


def test_steps_are_played_with_numbered_windows_and_classes_in_one_order(visit):
    windows = (((0, 0, 2), (-1, -1, 4)), ((4, 4, 2), (3, 3, 4)))
    steps = Steps(("glimpse 1", "glimpse 2"), windows, ("cat", "dog"), ((0.7, 0.3), (0.2, 0.8)))
    attention = AttentionMap("glimpses", np.full((2, 64), 1 / 64), steps, Grid(8, 8, cell=1)).to_dict(digits=5)
    attention["queries"]["patches"] = [[data_address(PICTURE)] * 2] * 2
    tab = visit(document({"title": "dog", "picture": picture_to_dict(PICTURE), "maps": [attention]}))
    names, shares = tab.locator(".classes li > span:first-child"), tab.locator(".classes .number")
    assert tab.locator(".path text").all_text_contents() == ["1", "2"]
    assert names.all_inner_texts() == ["cat", "dog"]
    assert [text.replace("\u00a0", " ") for text in shares.all_inner_texts()] == ["20 %", "80 %"]
    assert colour(tab, 1 / 16, 1 / 16) == [200, 0, 0]
    assert colour(tab, 15 / 16, 1 / 16) == [60, 0, 0]  # dark, as in figures
    tab.get_by_role("button", name="glimpse 1").click()
    assert tab.locator(".path text").all_text_contents() == ["1"]
    assert [text.replace("\u00a0", " ") for text in shares.all_inner_texts()] == ["70 %", "30 %"]
    assert tab.locator(".patches img").count() == 2
    tab.keyboard.press("ArrowRight")
    assert tab.get_by_role("button", name="glimpse 2").get_attribute("aria-pressed") == "true"
    tab.get_by_role("button", name="Play").click()
    assert tab.locator(".path text").count() == 1
    tab.locator(".path text").nth(1).wait_for()


def test_objects_have_their_boxes_on_the_picture(visit):
    objects = Objects(("cat", "dog"), ((0.0, 0.0, 0.4, 0.4), (0.5, 0.5, 0.5, 0.5)))
    weights = np.array([[0.7, 0.1, 0.1, 0.1], [0.1, 0.1, 0.1, 0.7]])
    tab = visit(a_view(AttentionMap("cross_attention", weights, objects, Grid(2, 2)), PICTURE))
    assert colour(tab, 0.9, 0.9) == [200, 0, 0]
    tab.locator(".boxes rect").nth(1).hover()
    assert status(tab).startswith("dog looks at: row 1 column 1 0.70")
    assert colour(tab, 0.9, 0.9) != [200, 0, 0]
    assert "faded" in tab.locator(".boxes rect").nth(0).get_attribute("class")


def test_a_series_stands_under_its_dates_with_gaps_where_values_are_missing(visit):
    dates = Dates(("2024-01-01", "2024-02-01", "2024-03-01"), {"NDVI": (0.2, None, 0.6)})
    weights = np.array([[0.1, 0.2, 0.7], [0.6, 0.3, 0.1]])
    tab = visit([AttentionMap("selection", weights, Variables(("red", "near infrared")), dates)])
    tab.mouse.move(5, 5)
    strip = tab.locator("canvas.strip-of-dates")
    box = strip.bounding_box()
    strip.hover(position={"x": 0.9 * box["width"], "y": 0.2 * box["height"]})
    assert status(tab) == "red looks at 2024-03-01 with weight 0.70."
    assert tab.locator(".series path").get_attribute("d").count("M") == 2
    heights = tab.locator(".series rect").evaluate_all("bars => bars.map(bar => Number(bar.getAttribute('height')))")
    assert heights == sorted(heights)
    tab.locator(".series").hover(position={"x": 5, "y": 5})
    assert status(tab) == "2024-01-01 is looked at by: near infrared 0.60, red 0.10"
    strip.focus()
    tab.keyboard.press("ArrowDown")
    assert status(tab) == "near infrared looks at 2024-01-01 with weight 0.60."


def test_every_scale_has_a_picture_of_its_own(visit):
    weights = np.array([[0.9, 0.1], [0.1, 0.9], [0.5, 0.5], [0.5, 0.5]])
    tab = visit(a_view(AttentionMap("scales", weights, Grid(2, 2), Scales(("1", "1/2"))), PICTURE))
    assert tab.locator(".multiples canvas").count() == 2
    word(tab, "key", 1).hover()
    assert status(tab).startswith("1/2 is looked at by: row 0 column 1 0.90")
    tab.locator(".multiples canvas").nth(1).focus()
    tab.keyboard.press("ArrowRight")
    tab.mouse.move(5, 5)
    assert status(tab).startswith("row 0 column 1 looks at: 1/2 0.90, 1 0.10")


def test_answers_in_classes_and_the_reference_are_said(visit):
    answer = {"classes": [{"class": "dog", "probability": 0.2}, {"class": "cat", "probability": 0.8}]}
    tab = visit(a_view(cross(), text="le chat", answer=answer, truth="ein Hund"))
    assert tab.locator(".answer-line").inner_text() == "le chat"
    assert tab.locator(".truth").inner_text() == "reference: ein Hund"
    assert tab.locator(".classes li").first.inner_text().startswith("cat")


# The file as a document


def test_dark_and_light_follow_the_reader(visit):
    backgrounds = [
        visit([cross()], color_scheme=scheme).evaluate("getComputedStyle(document.body).backgroundColor")
        for scheme in ("light", "dark")
    ]
    assert backgrounds == ["rgb(246, 248, 251)", "rgb(16, 20, 26)"]


def test_hostile_words_are_shown_as_they_are(visit):
    attack = "</script><script>alert(1)</script>"
    tab = visit([cross(queries=Tokens((attack, "<img src=x onerror=alert(2)>", "&amp;")))], title=attack)
    assert tab.get_by_role("heading", level=1).inner_text() == attack
    shown = tab.locator("[data-kind=query] .word").all_inner_texts()
    assert shown == [attack, "<img src=x onerror=alert(2)>", "&amp;"]


def test_spaces_and_empty_words_can_be_seen(visit):
    tab = visit([cross(queries=Tokens((" a", "", "b\n")))])
    assert tab.locator("[data-kind=query] .word").all_inner_texts() == ["␣a", "∅", "b⏎"]


def test_the_policy_stops_a_request_even_from_inside(browser, tmp_path):
    cross().save(tmp_path / "map.html")
    tab = browser.new_page()
    messages = []
    tab.on("console", lambda message: messages.append(message.text))
    tab.goto((tmp_path / "map.html").as_uri())
    assert tab.evaluate("fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'stopped')") == "stopped"
    assert any("Content Security Policy" in text for text in messages)
    tab.close()


def test_a_notebooks_frame_works_on_its_own(visit):
    tab = visit(f"<!DOCTYPE html><title>notebook</title>{cross()._repr_html_()}")
    frame = tab.frame_locator("iframe")
    frame.locator("[data-kind=query][data-index='1']").hover()
    assert frame.get_by_role("status").inner_text().startswith("chat looks at: cat 0.60")
