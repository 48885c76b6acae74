"""The page in a real browser. Debian: `apt-get install chromium`; nothing is downloaded by playwright itself."""

import io
import json
import re
from importlib.resources import files
from urllib.parse import quote, urljoin
from urllib.request import urlopen

import pytest
from PIL import Image

SENTENCE = "The cats sleep."


@pytest.fixture
def visit(browser, address):
    """Open the page at a width, and fail on any error, console message or request that leaves the server."""
    contexts, complaints, requests = [], [], []

    def open_page(link="", width=1200, **options):
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        tab = context.new_page()
        tab.set_default_timeout(60000)  # a busy machine is slow, not wrong
        tab.on("console", lambda message: complaints.append(message.text))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("request", lambda request: requests.append(request.url))
        tab.goto(f"{address}/{link}")
        tab.locator("#panels > *").first.wait_for(state="attached")
        return tab

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
    assert all(url.startswith((address, "data:", "blob:")) for url in requests)


def link(**state):
    return "#" + "&".join(f"{name}={quote(value)}" for name, value in state.items())


def translated(visit, run="words", text=SENTENCE, width=1200, more=None, **options):
    tab = visit(link(run=run, text=text, **(more or {})), width, **options)
    tab.locator(".matrix").first.wait_for()
    return tab


def numbers(tab, kind):
    return tab.locator(f"[data-kind={kind}] .number").all_inner_texts()


def cells(tab):
    return tab.locator("td.cell button").all_inner_texts()


def test_typing_a_sentence_shows_its_translation_with_probabilities_and_other_ones(visit, address):
    tab = visit(link(run="words"))
    tab.get_by_label("Sentence").fill(SENTENCE)
    tab.keyboard.press("Enter")
    tab.locator(".matrix").wait_for()
    answer = tab.request.post(f"{address}/api/predict", data={"run": "words", "text": SENTENCE, "best": 5}).json()
    shown = tab.get_by_role("group", name="Translation").locator("button")
    assert shown.count() >= 1
    assert re.match(r"probability (\d|<)", shown.first.get_attribute("title"))
    tab.get_by_text("Other translations").click()
    listed = tab.locator(".nbest button span:last-child").all_inner_texts()
    assert len(listed) == len(answer["translations"]) == 5
    tab.locator(".nbest button").nth(1).click()
    tab.locator(".nbest button[aria-current=true]").nth(0).wait_for()
    assert "text=The+cats+sleep." in tab.url


def test_hovering_on_either_side_lights_the_partners(visit, address):
    tab = translated(visit)
    tab.locator("[data-kind=query][data-index='0']").hover()
    assert "looks at:" in tab.get_by_role("status").inner_text()
    shown = [float(number or 0) for number in numbers(tab, "key")]
    row = [float(number or 0) for number in cells(tab)[: len(shown)]]
    assert shown == pytest.approx(row, abs=0.006)
    tab.locator("[data-kind=key][data-index='1']").hover()
    assert "is looked at by:" in tab.get_by_role("status").inner_text()
    assert any(numbers(tab, "query"))


def test_another_head_and_another_layer_change_the_numbers_and_the_link(visit):
    tab = translated(visit)
    average = cells(tab)
    tab.get_by_label(re.compile("^Head")).select_option("1")
    head = cells(tab)
    assert head != average
    tab.get_by_label(re.compile("^Attention")).select_option("decoder.layers.0.cross_attention")
    assert cells(tab) != head
    again = visit(tab.url.partition("/#")[1][1:] + tab.url.partition("/#")[2])
    again.locator(".matrix").wait_for()
    assert cells(again) == cells(tab)


@pytest.mark.slow
def test_the_models_own_tokens_are_one_choice_away(visit):
    tab = translated(visit)
    words = tab.locator("[data-kind=key]").count()
    with tab.expect_response("**/api/look"):
        tab.get_by_label("Shown as").select_option("pieces")
    tab.locator(f"[data-kind=key][data-index='{words}']").wait_for()


def test_scrubbing_shows_one_step_after_another(visit):
    tab = translated(visit, "tiny", "1 2 3 4 5")
    tab.get_by_label("Step").focus()
    tab.keyboard.press("Home")
    assert tab.locator("tr.unwritten").count() == tab.locator(".matrix tbody tr").count() - 1
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("ArrowRight")
    assert tab.locator("tr.unwritten").count() == tab.locator(".matrix tbody tr").count() - 2
    assert tab.locator(".answer .unwritten").count() == tab.locator(".answer button").count() - 2
    tab.keyboard.press("End")
    assert tab.locator(".unwritten").count() == 0


def test_two_runs_stand_side_by_side_on_the_same_sentence(visit):
    tab = translated(visit)
    tab.get_by_label("beside").select_option("tiny")
    tab.locator(".matrix").nth(1).wait_for()
    left, right = (panel.bounding_box() for panel in tab.locator(".panel").all())
    assert left["y"] == right["y"]
    assert right["x"] > left["x"] + left["width"] - 1
    assert "with=tiny" in tab.url


def test_forcing_an_alternative_translates_the_rest_anew(visit):
    tab = translated(visit)
    tab.locator(".answer button").nth(0).click()
    offered = tab.get_by_role("dialog", name="Alternatives").locator("li button")
    offered.nth(2).wait_for()
    assert "%" in offered.nth(2).inner_text()
    word = offered.nth(2).locator("span").first.inner_text()
    with tab.expect_response("**/api/predict") as asked:
        offered.nth(2).click()
    assert asked.value.request.post_data_json["prefix"] == word
    assert all(each["text"].startswith(word) for each in asked.value.json()["translations"])
    tab.locator(".answer .forced").wait_for()
    assert "prefix=" in tab.url
    tab.locator(".answer button").nth(0).click()
    offered.first.wait_for()
    tab.keyboard.press("Escape")
    assert not tab.get_by_role("dialog", name="Alternatives").is_visible()


@pytest.mark.parametrize(
    ("run", "text", "equation"), [("words", SENTENCE, "sᵀ h / √n"), ("tiny", "1 2 3", "vᵀ tanh(W [s; h])")]
)
def test_a_cell_opens_the_calculation_of_its_weight(visit, run, text, equation):
    tab = translated(visit, run, text)
    if run == "words":
        tab.get_by_label(re.compile("^Head")).select_option("1")
    cell = tab.locator("td.cell[data-query='0'][data-key='1'] button")
    weight = float(cell.inner_text() or 0)
    cell.click()
    dialog = tab.get_by_role("dialog", name=re.compile("How .* came to look at"))
    dialog.wait_for()
    assert equation in dialog.inner_text()
    if run == "tiny":
        assert float(dialog.locator("tr.chosen td").nth(3).inner_text()) == pytest.approx(weight, abs=0.006)
    dialog.locator(".softmax tbody button").nth(0).click()
    dialog.locator(".softmax tbody tr:first-child.chosen").wait_for()
    tab.keyboard.press("Escape")
    assert not dialog.is_visible()


def test_a_dropped_picture_gets_classes_and_an_overlay(visit, tmp_path):
    tab = visit(link(run="pictures"))
    written = io.BytesIO()
    Image.linear_gradient("L").resize((8, 8)).save(written, "PNG")
    make = (
        "bytes => { const all = new DataTransfer(), file = new File([new Uint8Array(bytes)], 'a.png', {type: 'image/png'});"
        "all.items.add(file); return all; }"
    )
    transfer = tab.evaluate_handle(make, list(written.getvalue()))
    tab.dispatch_event("#drop", "drop", {"dataTransfer": transfer})
    tab.locator(".classes li").nth(9).wait_for()
    pixels, stage = "canvas => canvas.toDataURL()", tab.locator("canvas.stage")
    before = stage.evaluate(pixels)
    attention = tab.get_by_label(re.compile("^Attention"))
    attention.select_option(index=1)
    assert stage.evaluate(pixels) != before
    with tab.expect_response("**/api/look") as asked:
        stage.click(position={"x": 5, "y": 5})
    assert asked.value.request.post_data_json["pixel"] == [0, 0]
    tab.mouse.move(0, 0)
    tab.get_by_text("Where row 0 column 0 looks").wait_for()
    attention.select_option(index=0)  # all layers together, from the clicked place, too
    assert "Where row 0 column 0 looks" in tab.get_by_role("status").inner_text()
    chosen = attention.input_value()
    right = stage.bounding_box()["width"] - 6
    stage.click(position={"x": right, "y": 5})
    tab.mouse.move(0, 0)
    tab.get_by_text(re.compile("Where row 0 column [1-9]")).wait_for()
    assert attention.input_value() == chosen
    stage.click(position={"x": right, "y": 5})  # the same place again
    tab.mouse.move(0, 0)
    tab.get_by_text("Where [image] looks").wait_for()
    stage.hover(position={"x": 60, "y": 60})
    assert "is looked at by: [image]" in tab.get_by_role("status").inner_text()


@pytest.mark.slow
def test_an_example_picture_is_one_click(visit):
    tab = visit(link(run="pictures"))
    tab.get_by_role("button", name="Example 2").click()
    tab.locator(".classes li").nth(9).wait_for()
    assert "example=1" in tab.url
    tab.reload()
    tab.locator(".classes li").nth(9).wait_for()


def test_the_page_names_no_task():
    folder = files("saccade.serve").joinpath("static")
    tasks = [each.name for each in files("saccade.tasks").iterdir() if each.is_dir() and not each.name.startswith("_")]
    assert len(tasks) >= 3
    for file in folder.iterdir():
        if file.name.endswith((".js", ".html")):
            words = re.findall(r"\w+", file.read_text("utf-8"))
            assert not set(tasks) & set(words), file.name


def test_every_import_of_the_page_is_served_and_exported(address):
    """Also those that a browser meets only when somebody opens a run of that task."""
    waiting, sources = ["/static/main.js", "/static/docs.js"], {}
    waiting += [f"/static/tasks/{name}.js" for name in ("translation", "image_classes", "captions")]
    while waiting:
        path = waiting.pop()
        with urlopen(address + path) as answer:
            sources[path] = answer.read().decode()
        found = re.findall(r'^import \{([^}]*)\} from "([^"]+)";$', sources[path], re.MULTILINE)
        waiting += {urljoin(path, module) for _, module in found} - sources.keys() - set(waiting)
    for path, source in sources.items():
        for names, module in re.findall(r'^import \{([^}]*)\} from "([^"]+)";$', source, re.MULTILINE):
            for name in names.split(", "):
                imported, _, local = name.partition(" as ")
                exported = rf"^export (?:const|class|(?:async )?function\*?) {imported}\b"
                assert re.search(exported, sources[urljoin(path, module)], re.MULTILINE), (path, imported, module)
                assert len(re.findall(rf"\b{local or imported}\b", source)) > 1, f"{path} does not use {imported}"


def test_a_run_without_a_page_of_its_own_gets_the_general_panel(visit, address):
    tab = visit("")
    view = tab.evaluate("""async () => {
        const {Panel} = await import("/static/panel.js"), {runs} = await (await fetch("/api/runs")).json();
        const panel = new Panel(runs.find((run) => run.name === "tiny"), {}, () => {}, (error) => { throw error; });
        document.getElementById("panels").replaceChildren(panel.root);
        await panel.answer({text: "1 2 3"});
        return panel.view.text;
    }""")
    assert tab.locator(".panel .answer").inner_text() == view
    assert tab.locator(".matrix").is_visible()


def test_what_is_wrong_is_said_on_the_page(visit):
    tab = visit(link(run="words"))
    tab.get_by_role("button", name="Translate").click()
    assert tab.get_by_role("alert").inner_text() == "Type a sentence first."


def test_the_answer_to_another_question_fades(browser, address):
    tab = browser.new_page()
    tab.goto(f"{address}/{link(run='words', text=SENTENCE)}")
    tab.locator(".matrix").first.wait_for()
    panel = tab.locator(".panel").first
    assert "old" not in panel.get_attribute("class")
    for text, fades in (("word " * 500, True), (SENTENCE, False)):
        tab.get_by_label("Sentence").fill(text)
        tab.keyboard.press("Enter")
        if not fades:  # the next answer is not written over the arcs of the last one
            assert not tab.locator(".matrix").is_visible()
        tab.wait_for_function("(old) => document.querySelector('.panel').classList.contains('old') === old", arg=fades)
        assert tab.locator("#problem").is_visible() == fades
    tab.locator(".matrix").wait_for()
    tab.close()


@pytest.mark.slow
def test_downloads_are_files_of_their_kind(visit):
    tab = translated(visit)
    for kind, start in (("PNG", b"\x89PNG"), ("SVG", b"<?xml"), ("JSON", b"{")):
        with tab.expect_download() as download:
            tab.get_by_role("button", name=kind).click()
        content = download.value.path().read_bytes()
        assert content.startswith(start)
        assert download.value.suggested_filename == f"attention-words.{kind.lower()}"
    assert json.loads(content)["source"] == SENTENCE


@pytest.mark.slow
@pytest.mark.parametrize(
    ("width", "layout", "along", "across"),
    [(1600, "rows", "ArrowRight", "ArrowDown"), (360, "columns", "ArrowDown", "ArrowRight")],
)
def test_the_keyboard_reaches_words_and_cells(visit, width, layout, along, across):
    tab = translated(visit, text="The farmers and the neighbours of the friends arrive often.", width=width)
    assert tab.locator(".looks").get_attribute("class") == f"looks {layout}"
    focused = "[document.activeElement.dataset.kind, document.activeElement.dataset.index]"
    tab.locator("[data-kind=key][data-index='0']").focus()
    tab.keyboard.press(along)
    assert tab.evaluate(focused) == ["key", "1"]
    tab.keyboard.press(across)
    assert tab.evaluate(focused) == ["query", "1"]
    tab.locator("td.cell button").first.focus()
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("ArrowDown")
    assert tab.evaluate("({...document.activeElement.parentElement.dataset})") == {"query": "1", "key": "1"}
    tab.keyboard.press("Enter")
    tab.get_by_role("dialog", name=re.compile("How .* came to look at")).wait_for()


@pytest.mark.slow
@pytest.mark.parametrize("width", [1200, 390, 320])
def test_the_page_itself_never_scrolls_sideways(visit, width):
    tab = translated(visit, width=width, more={"with": "tiny"})
    tab.locator(".matrix").nth(1).wait_for()
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    tab.get_by_text("The search").first.click()
    tab.locator(".tree .token").first.wait_for()
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    tab.locator("td.cell button").first.click()
    tab.locator("dialog[open]").wait_for()
    assert tab.evaluate("(box => box.scrollWidth <= box.clientWidth)(document.querySelector('dialog'))")
    wide = "[...document.querySelectorAll('dialog *')].filter(part => part.getBoundingClientRect().right > innerWidth)"
    assert tab.evaluate(f"{wide}.length") == 0


def test_dark_and_light_follow_the_reader_and_can_be_chosen(visit):
    colour = "getComputedStyle(document.body).backgroundColor"
    tab = visit(color_scheme="dark")
    assert tab.evaluate(colour) == "rgb(16, 20, 26)"
    tab.get_by_role("button", name="Theme: auto").click()
    assert tab.evaluate(colour) == "rgb(246, 248, 251)"
    tab.get_by_role("button", name="Theme: light").click()
    assert tab.evaluate(colour) == "rgb(16, 20, 26)"


@pytest.mark.slow
def test_hostile_words_are_shown_as_they_are(visit):
    attack = "<img src=x onerror=alert(1)> cats"
    tab = translated(visit, text=attack)
    assert tab.locator("#panels img").count() == 0
    assert tab.get_by_label("Sentence").input_value() == attack


def test_the_description_of_the_api_is_laid_out_without_help_from_outside(browser, address):
    tab = browser.new_page()
    said = []
    tab.on("console", lambda message: said.append(message.text))
    tab.goto(f"{address}/docs")
    tab.get_by_text("/api/predict").first.wait_for()
    assert tab.locator("section").count() >= 8
    assert said == []
    tab.close()
