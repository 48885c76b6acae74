"""The page of a language model in a real browser: it writes, tells what was expected, and follows temperature and cut heads."""

import threading
import time

import pytest

from saccade.runs.train import train
from saccade.serve.limits import Limits


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    pytest.importorskip("fastapi", reason="fastapi is not installed (pip install 'saccade[serve]')")
    import uvicorn

    from saccade.serve.app import create_app
    from saccade.serve.served import open_runs

    folder = tmp_path_factory.mktemp("pages")
    (folder / "cats.txt").write_text("the cat sat on the mat. a dog ran to the park!\n" * 40)
    text = [f"data.text={folder / 'cats.txt'}", "train.steps=3", "train.minutes=null", "train.threads=1"]
    sizes = ["model.layers=1", "model.width=16", "model.heads=2"]
    runs = [
        train("language", [*text, *sizes, "model.context=32", "data.tokenizer=characters"], folder / "writes"),
        train("language-masked", [*text, *sizes, "model.max_length=18", "data.vocab_size=300"], folder / "guesses"),
    ]
    limits = Limits()
    server = uvicorn.Server(uvicorn.Config(create_app(open_runs(runs, limits), limits), port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


@pytest.fixture
def tab(browser):
    complaints = []
    opened = browser.new_page()
    opened.set_default_timeout(60000)
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    yield opened
    opened.close()
    assert complaints == []


def test_it_writes_and_what_was_expected_follows_the_pointer_the_slider_and_a_cut_head(tab, address):
    tab.goto(f"{address}/#run=writes&text=the%20cat&tokens=4&temperature=1")
    tab.locator(".expected .pointed").wait_for()
    assert tab.locator(".expected button").count() == len("the cat") + 4
    assert tab.locator(".lens tr").count() == 2
    tab.locator(".expected button").nth(1).hover()
    tab.get_by_text("Expected after “h”").wait_for()
    tab.get_by_text("What comes next at temperature 1.00").wait_for()
    tab.locator("input[type=range]").first.fill("0.5")
    tab.get_by_text("What comes next at temperature 0.50").wait_for()
    tab.locator(".view select").nth(1).select_option("1")
    tab.get_by_text("Cut this head").click()
    tab.get_by_text("without head 1 of layers.0.self_attention").wait_for()


def test_masked_words_are_guessed_on_the_page(tab, address):
    tab.goto(f"{address}/#run=guesses&text=the%20[MASK]%20sat")
    tab.get_by_text("Expected at “").wait_for()
    assert tab.locator(".classes").count() == 2
    assert tab.get_by_text("Temperature").is_hidden()
