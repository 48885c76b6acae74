import pytest

from saccade.runs.train import train

STORY = "Ines walked to the boat house. Milo ran to the chapel."


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    pytest.importorskip("fastapi", reason="fastapi is not installed (pip install 'saccade[serve]')")
    from fastapi.testclient import TestClient

    from saccade.serve.app import create_app
    from saccade.serve.limits import Limits
    from saccade.serve.served import open_runs

    changes = ["data.examples=100", "train.steps=3", "train.warmup_steps=1", "model.hidden=8"]
    run = train("stories-memory", changes, tmp_path_factory.mktemp("served") / "run")
    limits = Limits()
    with TestClient(create_app(open_runs([run], limits), limits), base_url="http://127.0.0.1") as made:
        yield made


def test_a_question_is_answered_looked_at_and_asked_without_a_sentence(client):
    asked = {"question": "Where is Ines?", "context": STORY}
    (info,) = client.get("/api/runs").json()["runs"]
    assert (info["reads"], "without" in info["asks"], info["page"]) == ("question", True, True)
    assert '"question"' in info["examples"][0]
    answer = client.post("/api/predict", json={**asked, "best": 2}).json()
    assert len(answer["best"]) == 2
    view = client.post("/api/look", json=asked).json()
    assert len(view["places"]) == len(view["begins"]) == len(view["sentences"]) == 13
    without = client.post("/api/without", json={**asked, "hidden": [0]}).json()
    assert without["sentences"] == [[0, 30], [31, 54]]
    assert client.post("/api/figure", json=asked).content.startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"question": "Who?"}, "`context` is missing"),
        ({"question": " ", "context": "a"}, "the question is empty"),
        ({"question": "Who?", "context": "a" * 20_001}, "the context has 20,001 characters"),
        ({"question": "Who?" * 600, "context": "a"}, "the question has 2,400 characters"),
        ({"question": "Who?", "context": "a", "mistakes": "x"}, "Unknown field `mistakes`"),
    ],
)
def test_what_cannot_be_answered_is_said_in_a_sentence(client, body, said):
    refused = client.post("/api/predict", json=body)
    assert refused.status_code == 422
    assert said in refused.json()["error"]
