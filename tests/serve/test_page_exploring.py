"""On the page: words appear as they are written, the search unfolds, attention is turned and cut by hand, captions light their regions."""

import io
import json
import re

import pytest

from .test_page import SENTENCE, cells, link, translated, visit  # noqa: F401 (a fixture)


def words(tab):
    return tab.locator(".answer button").all_inner_texts()


def test_words_appear_as_they_are_written(visit, address):  # noqa: F811
    tab = visit(link(run="words"))
    tab.evaluate(
        "window.seen = []; new MutationObserver(() => { const now = document.querySelector('.answer .coming')?.textContent;"
        "if (now) window.seen.push(now); }).observe(document.querySelector('.answer'), {childList: true, subtree: true})"
    )
    tab.get_by_label("Sentence").fill(SENTENCE)
    tab.keyboard.press("Enter")
    tab.locator(".matrix").wait_for()
    lines = tab.request.post(f"{address}/api/stream", data={"run": "words", "text": SENTENCE}).text().splitlines()
    told = [json.loads(line)["text"] for line in lines]
    seen = tab.evaluate("window.seen")
    assert seen
    assert seen[-1] == told[-1]
    assert set(seen) <= set(told)
    assert tab.locator(".coming").count() == 0


def test_the_search_unfolds_and_what_was_given_up_is_revived(visit):  # noqa: F811
    tab = translated(visit)
    assert tab.locator(".tree .token").count() == 0
    with tab.expect_response("**/api/search") as asked:
        tab.get_by_text("The search").click()
    nodes = asked.value.json()["nodes"]
    tab.locator(".tree .token").first.wait_for()
    assert tab.locator(".tree .token").count() == len(nodes)
    best = [node["piece"].removeprefix("·") for node in nodes if node["fate"] == "best"]
    assert tab.locator(".tree .best .piece").all_inner_texts() == best
    assert tab.locator(".tree .best").first.is_visible()
    # Others stand in branches that are folded, and an end that was given up is no beginning to go on with.
    lost = tab.locator(".lost:visible").filter(has=tab.locator("button.token")).first
    assert not lost.locator("button.token").first.is_visible()
    lost.locator("button.fold").focus()
    tab.keyboard.press("Enter")
    branch = lost.locator("button.token").first
    branch.wait_for()
    prefix = re.search("“(.*)”", branch.get_attribute("aria-label"))[1]
    branch.focus()
    with tab.expect_response("**/api/predict") as predicted:
        tab.keyboard.press("Enter")
    assert predicted.value.request.post_data_json["prefix"] == prefix
    assert all(each["text"].startswith(prefix) for each in predicted.value.json()["translations"])
    tab.locator(".answer .forced").first.wait_for()
    assert "prefix=" in tab.url


def test_a_dragged_cell_makes_its_word_look_elsewhere_and_reset_undoes_it(visit):  # noqa: F811
    tab = translated(visit, "tiny", "1 2 3 4")
    before, matrix = words(tab), cells(tab)
    start, end = (tab.locator(f"td.cell[data-query='0'][data-key='{key}']") for key in (0, 2))
    start.scroll_into_view_if_needed()
    start.hover()
    tab.mouse.down()
    end.hover()
    assert "Let go" in tab.get_by_role("status").inner_text()
    with tab.expect_response("**/api/what-if") as asked:
        tab.mouse.up()
    assert asked.value.request.post_data_json["interventions"] == [{"step": 0, "onto": 2}]
    answer = asked.value.json()
    tab.get_by_role("region", name="What if").wait_for()
    assert words(tab) == [word["text"] for word in answer["after"]["words"]]
    assert cells(tab)[:5] == ["", "", "1.00", "", ""]
    changed = [word["text"] for word in answer["after"]["words"] if word["changed"]]
    assert tab.locator(".answer .changed").all_inner_texts() == changed
    tab.get_by_role("button", name="Reset").click()
    tab.get_by_role("region", name="What if").wait_for(state="hidden")
    tab.get_by_role("button", name="PNG").wait_for()  # the model's own weights are back
    assert words(tab) == before
    assert cells(tab) == matrix
    assert not tab.locator("dialog[open]").count()


def test_the_keyboard_pays_attention_too_and_a_head_can_be_cut(visit):  # noqa: F811
    tab = translated(visit)
    assert tab.get_by_role("button", name="Cut this head").is_disabled()
    tab.locator("td.cell[data-query='0'][data-key='2'] button").focus()
    tab.keyboard.press("Enter")
    button = tab.get_by_role("button", name="Pay attention here")
    button.wait_for()
    button.focus()
    with tab.expect_response("**/api/what-if"):
        tab.keyboard.press("Enter")
    region = tab.get_by_role("region", name="What if")
    region.wait_for()
    assert "look at" in region.inner_text()
    tab.wait_for_function("document.activeElement.parentElement.dataset.key === '2'")
    tab.get_by_label(re.compile("^Head")).select_option("1")
    with tab.expect_response("**/api/what-if") as asked:
        tab.get_by_role("button", name="Cut this head").click()
    made = asked.value.request.post_data_json["interventions"]
    assert made == [{"step": 0, "onto": 2}, {"map": "decoder.layers.1.cross_attention", "head": 1}]
    tab.get_by_role("button", name="This head is cut off").wait_for()
    assert set(cells(tab)) == {""}


def test_hovering_a_word_of_a_caption_lights_its_region(visit):  # noqa: F811
    tab = visit(link(run="captions"))
    tab.get_by_role("button", name="Example 1").click()
    caption = tab.get_by_role("group", name="Caption")
    caption.locator("button").first.wait_for()
    pixels, canvas = "canvas => canvas.toDataURL()", tab.locator("canvas.stage")
    tab.mouse.move(0, 0)
    plain = canvas.evaluate(pixels)
    caption.locator("button").first.hover()
    assert "looks at: row" in tab.get_by_role("status").inner_text()
    lit = canvas.evaluate(pixels)
    assert lit != plain
    tab.mouse.move(0, 0)
    assert canvas.evaluate(pixels) == plain
    caption.locator("button").first.focus()
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("ArrowLeft")
    assert canvas.evaluate(pixels) == lit
    tab.keyboard.press("Escape")
    assert canvas.evaluate(pixels) == plain


@pytest.mark.slow
def test_captions_stand_beside_classes_and_can_be_downloaded(visit):  # noqa: F811
    tab = visit(link(run="captions", **{"with": "pictures"}))
    tab.get_by_role("button", name="Example 2").click()
    tab.locator(".classes li").nth(9).wait_for()
    tab.get_by_role("group", name="Caption").locator("button").first.wait_for()
    for kind, start in (("PNG", b"\x89PNG"), ("SVG", b"<?xml"), ("JSON", b"{")):
        with tab.expect_download() as download:
            tab.get_by_role("button", name=kind).first.click()
        assert io.BytesIO(download.value.path().read_bytes()).read(len(start)) == start
    tab.get_by_text("Other captions").click()
    with tab.expect_response("**/api/look"):
        tab.locator(".nbest button").nth(1).click()
