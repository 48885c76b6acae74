"""The page of a run of series, in a real browser: an example, the date that is taken out, the answer that changes."""

import threading
import time

import pytest

from saccade.runs.train import train
from saccade.serve.limits import Limits

SMALL = [
    "data.fields=80",
    "model.width=16",
    "model.heads=2",
    "model.output=8",
    "train.steps=20",
    "train.validate_every=20",
]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    pytest.importorskip("fastapi", reason="fastapi is not installed (pip install 'saccade[serve]')")
    import uvicorn

    from saccade.serve.app import create_app
    from saccade.serve.served import open_runs

    run = train("series", [*SMALL, "train.threads=1"], tmp_path_factory.mktemp("runs") / "seasons")
    limits = Limits()
    server = uvicorn.Server(uvicorn.Config(create_app(open_runs([run], limits), limits), port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


def test_a_date_is_clicked_and_taken_out_and_the_answer_is_said_again(browser, address):
    complaints = []
    tab = browser.new_context(viewport={"width": 1200, "height": 900}).new_page()
    tab.set_default_timeout(60000)
    tab.on("console", lambda message: complaints.append(message.text))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.goto(address)
    tab.locator("#examples button").first.click()
    charts = tab.locator("svg.series")
    charts.first.wait_for()
    assert charts.count() == 4
    assert charts.first.locator(".marks rect").count() > 0
    charts.first.click(position={"x": 200, "y": 30})
    button = tab.get_by_role("button", name="Take out")
    date = button.inner_text().removeprefix("Take out ")
    button.click()
    tab.get_by_text(f"Without {date}:").wait_for()
    tab.get_by_role("button", name=f"Put {date} back").click()
    tab.get_by_text(f"Without {date}:").wait_for(state="hidden")
    assert complaints == []
