"""The page in a real browser. Debian: `apt-get install chromium`; nothing is downloaded by playwright itself."""

import json
import re
from html import escape
from pathlib import Path

import numpy as np
import pytest

from saccade.views import AttentionMap, View, save
from saccade.views.axes import Axis, Grid, Tokens

SOURCE, TARGET = Tokens(("the", "black", "cat", ".")), Tokens(("le", "chat", "noir"))
LOOKS = np.array(
    [
        [[0.8, 0.1, 0.1, 0.0], [0.0, 0.1, 0.9, 0.0], [0.0, 0.75, 0.25, 0.0]],
        [[0.4, 0.2, 0.2, 0.2], [0.2, 0.4, 0.3, 0.1], [0.1, 0.2, 0.3, 0.4]],
    ]
)


def cross(layer: int = 0, queries: Axis = TARGET, keys: Axis = SOURCE, weights: np.ndarray = LOOKS) -> AttentionMap:
    name = f"decoder.layers.{layer}.cross_attention"
    return AttentionMap(name, weights, queries, keys, "translation", "source")


def long_map(words: int = 40) -> AttentionMap:
    side = Tokens(tuple(f"Wirtschaftsraum{index}" for index in range(words)))
    return cross(0, side, side, np.eye(words)[None] * 0.5 + 0.5 / words)


def page(maps, title: str = "", **settings) -> str:
    return View(title, tuple(maps), **settings).html()


def embedded(document: str) -> list:
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', document, re.DOTALL)
    return json.loads(match[1])


def test_words_cannot_break_out_of_the_data():
    attack = "</script><script>alert(1)</script><!-- & \u2028"
    words = Tokens((attack, "b", "c"))
    document = page([cross(queries=words)], title=attack + '" onload="x')
    assert document.count("<script") == 2
    assert document.count("</script>") == 2
    assert embedded(document)["maps"][0]["queries"]["labels"][0].startswith("</script><script>alert(1)</script><!-- & ")
    assert f"<title>{escape(attack)}" in document


def test_words_that_look_like_the_templates_own_marks_stay_words():
    document = page([cross(queries=Tokens(("{{title}}", "{{data}}", "{{policy}}")))], title="{{data}}")
    assert embedded(document)["maps"][0]["queries"]["labels"] == ["{{title}}", "{{data}}", "{{policy}}"]
    assert "<title>{{data}}</title>" in document


def test_the_page_names_nothing_outside_itself():
    document = page([cross()])
    assert "default-src 'none'" in document
    assert not re.search(r"\b(src|href|action)=|@import|url\(", document)
    assert set(re.findall(r"https?://[^\s\"']+", document)) == {"http://www.w3.org/2000/svg"}


@pytest.fixture
def visit(browser, tmp_path):
    """Open saved maps at a width, and fail on any error, console message or request beyond the file itself."""
    contexts, complaints, requests = [], [], []

    def open_page(maps, width=1200, title="", path: Path | None = None, **options):
        path = path or tmp_path / f"maps{len(contexts)}.html"
        if maps:
            save(maps, path, title=title)
        context = browser.new_context(viewport={"width": width, "height": 800}, **options)
        contexts.append(context)
        tab = context.new_page()
        tab.set_default_timeout(5000)
        tab.on("console", lambda message: complaints.append(message.text))
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
    assert all(url.startswith(("file://", "about:srcdoc")) for url in requests)


def word(tab, kind: str, index: int):
    return tab.locator(f"[data-kind={kind}][data-index='{index}']")


def numbers(tab, kind: str) -> list[str]:
    return tab.locator(f"[data-kind={kind}] .number").all_inner_texts()


def table(tab) -> list[list[float]]:
    return [[float(cell) for cell in row.locator("td").all_inner_texts()] for row in tab.locator("tbody tr").all()]


def choose_head(tab, value: str) -> None:
    tab.get_by_label("Head").select_option(value)


def test_cells_lie_over_the_picture_and_over_nothing_where_they_hang_over_its_edge(visit, tmp_path):
    """A picture of 10 × 12 pixels under 2 × 2 cells of 8: the last ones end outside of it."""
    picture = np.zeros((10, 12, 3), np.uint8)
    picture[:, :, 0] = 200
    weights = np.array([[[0.1, 0.2, 0.3, 0.4]] * 4])
    grid = Grid(2, 2, cell=8)
    path = tmp_path / "picture.html"
    path.write_text(page([AttentionMap("layers.0.self_attention", weights, grid, grid)], picture=picture), "utf-8")
    tab = visit([], path=path)
    colours = tab.evaluate("""() => [...document.querySelectorAll("canvas")].map((canvas) => {
        const {data, width} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        const at = ([x, y]) => [...data.subarray(4 * (y * width + x), 4 * (y * width + x) + 4)];
        return [canvas.width, canvas.height, ...[[0, 0], [11, 9], [12, 9], [11, 10]].map(at)];
    })""")
    grey = round(255 * 0.35 + 0.65 * 0.299 * 200)
    assert colours[0] == [16, 16, [grey] * 3 + [255], [grey] * 3 + [255], [0] * 4, [0] * 4]  # looked at: pale
    assert colours[1] == [16, 16, [200, 0, 0, 255], [200, 0, 0, 255], [0] * 4, [0] * 4]
    word(tab, "query", 0).hover()
    assert "row 1 column 1 0.40" in tab.locator("#status").inner_text()
    boxes = [word(tab, "key", 3).bounding_box(), tab.locator("canvas").first.bounding_box()]
    assert boxes[0]["width"] == pytest.approx(boxes[1]["width"] / 2, abs=1)
    assert boxes[0]["x"] + boxes[0]["width"] == pytest.approx(boxes[1]["x"] + boxes[1]["width"], abs=1)


def test_a_page_over_a_picture_opens_as_seen_from_what_was_asked_for(visit, tmp_path):
    """On the map that comes first, coloured up to the largest weight of a cell that is on show."""
    picture, grid = np.zeros((8, 8, 3), np.uint8), Grid(2, 2, extra=("[class]",))
    weights = np.full((1, 5, 5), 0.2)
    weights[0, 3] = [0.6, 0.0, 0.3, 0.1, 0.0]
    maps = [AttentionMap(f"layers.{layer}.self_attention", weights, grid, grid) for layer in range(2)]
    path = tmp_path / "picture.html"
    path.write_text(
        page(maps, "a cat", picture=picture, subtitle="cat.png", seen_from={maps[1].name: 3}, first=1), "utf-8"
    )
    tab = visit([], path=path)
    assert tab.locator("#subtitle").inner_text() == "cat.png"
    assert tab.get_by_label("Map").input_value() == "1"
    assert (
        tab.get_by_role("status").inner_text().startswith("row 1 column 0 looks at: [class] 0.60, row 0 column 1 0.30")
    )
    assert tab.locator("#limit").inner_text() == "0.30"
    tab.get_by_label("Map").select_option("0")
    assert tab.get_by_role("status").inner_text().startswith("Seen from all cells on average.")
    assert tab.locator("#limit").inner_text() == "0.36"  # twice the mean of what the cells get, which are nearly alike


def test_what_is_seen_from_no_place_stands_beside_the_picture(visit, tmp_path):
    picture = np.full((8, 8, 3), 90, np.uint8)
    pooled = AttentionMap("pooling.attention", np.full((1, 1, 4), 0.25), Tokens(("[image]",)), Grid(2, 2))
    path = tmp_path / "pooled.html"
    path.write_text(page([pooled], picture=picture), "utf-8")
    tab = visit([], path=path)
    box = tab.locator("#queries canvas.plain").bounding_box()
    assert box["width"] > 200
    assert box["height"] == pytest.approx(box["width"], abs=1)


def test_hovering_over_a_word_lights_its_partners_with_their_weights(visit):
    tab = visit([cross()], title="le chat noir")
    assert tab.title() == "le chat noir"
    choose_head(tab, "0")
    word(tab, "query", 2).hover()
    assert numbers(tab, "key") == ["", "0.75", "0.25", ""]
    shaded = [("shaded" in (word(tab, "key", index).get_attribute("class") or "")) for index in range(4)]
    assert shaded == [False, True, True, False]
    assert tab.get_by_role("status").inner_text() == "noir looks at: black 0.75, cat 0.25"
    word(tab, "key", 2).hover()
    assert numbers(tab, "query") == ["0.10", "0.90", "0.25"]
    assert tab.get_by_role("status").inner_text() == "cat is looked at by: chat 0.90, noir 0.25, le 0.10"
    tab.mouse.move(5, 5)
    assert numbers(tab, "query") == ["", "", ""]


def test_lines_are_as_strong_as_their_weights(visit):
    tab = visit([cross()])
    choose_head(tab, "0")
    opacities = tab.locator("#lines path").evaluate_all("lines => lines.map(line => Number(line.style.opacity))")
    assert sorted(opacities) == pytest.approx(sorted(LOOKS[0][LOOKS[0] > 0.02].tolist()), abs=1e-4)


def test_choosing_a_head_and_a_map_changes_the_numbers(visit):
    tab = visit([cross(0), cross(1, weights=LOOKS[:, ::-1])])
    np.testing.assert_allclose(table(tab), LOOKS.mean(axis=0), atol=0.0051)
    choose_head(tab, "1")
    np.testing.assert_allclose(table(tab), LOOKS[1], atol=0.0051)
    tab.get_by_label("Map").select_option(label="decoder · layer 1 · cross attention")
    choose_head(tab, "0")
    np.testing.assert_allclose(table(tab), LOOKS[0, ::-1], atol=0.0051)


def test_a_chosen_word_stays_chosen_when_the_head_changes(visit):
    tab = visit([cross()])
    choose_head(tab, "0")
    word(tab, "query", 0).click()
    tab.mouse.move(5, 5)
    assert numbers(tab, "key") == ["0.80", "0.10", "0.10", ""]
    choose_head(tab, "1")
    assert numbers(tab, "key") == ["0.40", "0.20", "0.20", "0.20"]


def test_pointing_at_a_cell_of_the_table_names_the_pair(visit):
    tab = visit([cross()])
    choose_head(tab, "0")
    tab.locator("td[data-query='1'][data-key='2']").hover()
    assert tab.get_by_role("status").inner_text() == "chat looks at cat with weight 0.90."


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
    assert tab.evaluate("document.activeElement.id") == "scroller"


def test_a_screen_reader_hears_what_everything_is(visit):
    tab = visit([cross()])
    assert tab.get_by_role("group", name="source").is_visible()
    assert tab.get_by_role("group", name="translation").is_visible()
    assert tab.get_by_role("img", name=re.compile("Attention weight: from pale, 0, to strong")).is_visible()
    assert tab.get_by_role("region", name="Table of attention weights").is_visible()
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
    assert tab.locator("#looks").get_attribute("class") == "columns"
    assert tab.evaluate("(box => box.scrollWidth > box.clientWidth)(document.getElementById('scroller'))")
    word(tab, "query", 3).tap()
    assert numbers(tab, "key")[3] == "0.51"
    word(tab, "query", 3).tap()
    assert set(numbers(tab, "key")) == {""}


def test_sentences_that_fit_on_a_line_are_two_rows_until_the_window_shrinks(visit):
    words = Tokens(tuple(f"word{index}" for index in range(10)))
    tab = visit([cross(0, words, words, np.eye(10))])
    assert tab.locator("#looks").get_attribute("class") == "rows"
    tab.set_viewport_size({"width": 390, "height": 800})
    tab.wait_for_function("document.getElementById('looks').className === 'columns'")


@pytest.mark.parametrize("width", [390, 700])
def test_hovering_moves_nothing(visit, width):
    tab = visit([long_map(12)], width)
    place = "document.getElementById('scroller').getBoundingClientRect().top"
    before = tab.evaluate(place)
    word(tab, "query", 2).hover()
    assert tab.evaluate(place) == before


def test_an_image_shows_where_a_word_looks(visit):
    grid = Grid(2, 3, ("[class]",))
    weights = np.array([[0.3, 0.0, 0.1, 0.0, 0.6, 0.0, 0.0], [0.1, 0.9, 0.0, 0.0, 0.0, 0.0, 0.0]])
    tab = visit([cross(0, Tokens(("a", "dog")), grid, weights)])
    word(tab, "query", 0).hover()
    shares = [word(tab, "key", index).evaluate("cell => cell.style.getPropertyValue('--share')") for index in range(7)]
    assert shares == ["30.0%", "0.0%", "10.0%", "0.0%", "60.0%", "0.0%", "0.0%"]
    assert "row 1 column 0 0.60, [class] 0.30, row 0 column 1 0.10" in tab.get_by_role("status").inner_text()
    assert word(tab, "key", 4).get_attribute("aria-label") == "row 1 column 0"
    assert tab.locator("table").count() == 0
    word(tab, "key", 1).focus()
    tab.keyboard.press("ArrowDown")
    assert tab.evaluate("document.activeElement.dataset.index") == "4"


def test_dark_and_light_follow_the_reader(visit):
    backgrounds = [
        visit([cross()], color_scheme=scheme).evaluate("getComputedStyle(document.body).backgroundColor")
        for scheme in ("light", "dark")
    ]
    assert backgrounds == ["rgb(255, 255, 255)", "rgb(18, 22, 29)"]


def test_hostile_words_are_shown_as_they_are(visit):
    attack = "</script><script>alert(1)</script>"
    tab = visit([cross(queries=Tokens((attack, "<img src=x onerror=alert(2)>", "&amp;")))], title=attack)
    assert tab.get_by_role("heading", level=1).inner_text() == attack
    shown = tab.locator("[data-kind=query] .word").all_inner_texts()
    assert shown == [attack, "<img src=x onerror=alert(2)>", "&amp;"]


def test_the_policy_stops_a_request_even_from_inside(browser, tmp_path):
    cross().save(tmp_path / "map.html")
    tab = browser.new_page()
    said = []
    tab.on("console", lambda message: said.append(message.text))
    tab.goto((tmp_path / "map.html").as_uri())
    assert tab.evaluate("fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'stopped')") == "stopped"
    assert any("Content Security Policy" in text for text in said)
    tab.close()


def test_a_notebooks_frame_works_on_its_own(visit, tmp_path):
    path = tmp_path / "notebook.html"
    path.write_text(f"<!DOCTYPE html><title>notebook</title>{cross()._repr_html_()}", encoding="utf-8")
    tab = visit([], path=path)
    frame = tab.frame_locator("iframe")
    frame.locator("[data-kind=query][data-index='1']").hover()
    assert frame.get_by_role("status").inner_text().startswith("chat looks at: cat 0.60")
