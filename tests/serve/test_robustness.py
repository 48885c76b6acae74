"""Requests made up from the API's own description: whatever is sent, the server answers with a sentence and never fails."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .conftest import picture

WORDS = st.one_of(
    st.text(max_size=30), st.sampled_from(["The cats sleep.", "Les chats", "\x00", "\ud800", "🦊 a", "a\n\tb", " "])
)
LOOSE = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=10), st.lists(st.integers(), max_size=3)
)
MAPS = st.sampled_from(
    ["decoder.layers.0.cross_attention", "decoder.layers.1.self_attention", "decoder.attention", "decoder"]
)
FIELDS = {
    "run": st.sampled_from(["words", "tiny", "pictures", "captions", "nobody", None]),
    "text": WORDS,
    "target": WORDS,
    "prefix": WORDS,
    "image": st.one_of(st.just(picture()), st.just(picture(3, 40, "JPEG")), st.text(max_size=20)),
    "best": st.integers(0, 21),
    "beam": st.integers(0, 5),
    "search": st.sampled_from(["greedy", "beam", "sample", "other"]),
    "temperature": st.floats(0, 10),
    "top_k": st.integers(0, 5),
    "top_p": st.floats(0, 1),
    "seed": st.integers(-1, 2**40),
    "words": st.booleans(),
    "subwords": st.booleans(),
    "only": st.sampled_from(["*", "decoder*", "[", "x"]),
    "pixel": st.tuples(st.integers(-2, 9), st.integers(-2, 9)),
    "map": MAPS,
    "head": st.integers(-1, 3),
    "query": st.integers(-1, 6),
    "key": st.integers(-1, 6),
    "word": st.integers(-1, 6),
    "format": st.just("svg"),
    "length_penalty": st.floats(-6, 6),
    "interventions": st.lists(
        st.one_of(
            st.fixed_dictionaries(
                {"step": st.integers(-1, 6), "onto": st.integers(-1, 6)},
                optional={"map": MAPS, "head": st.integers(-1, 3)},
            ),
            st.fixed_dictionaries({"map": MAPS, "head": st.integers(-1, 3)}),
        ),
        max_size=4,
    ),
}
BY_PATH = {
    "predict": "run text image best prefix search beam temperature top_k top_p seed",
    "stream": "run text prefix",
    "look": "run text image target subwords only pixel",
    "alternatives": "run text target word best",
    "calculation": "run text target map head query key words",
    "search": "run text prefix beam best length_penalty",
    "what-if": "run text interventions target words",
}


@st.composite
def requests(draw):
    path = draw(st.sampled_from(sorted(BY_PATH)))
    names = BY_PATH[path].split()
    kept = draw(st.sets(st.sampled_from(names))) | {"run", "text" if draw(st.booleans()) else names[2]}
    question = {name: draw(FIELDS[name]) for name in sorted(kept & set(names))}
    if draw(st.integers(0, 9)) == 0:
        question[draw(st.sampled_from(names))] = draw(LOOSE)
    return path, question


def send(client, path, question):
    body = json.dumps(question).encode()
    answer = client.post(f"/api/{path}", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (200, 400, 404, 422), (question, answer.text)
    if answer.status_code != 200:
        assert 10 < len(answer.json()["error"].strip()) < 600
        assert "Traceback" not in answer.text


def test_the_description_names_every_question(client):
    described = client.get("/openapi.json").json()
    asked = {path.removeprefix("/api/") for path, methods in described["paths"].items() if "post" in methods}
    assert asked == {*BY_PATH, "figure"}  # figures take seconds, and have the fields of a look
    for path, names in BY_PATH.items():
        schema = described["paths"][f"/api/{path}"]["post"]["requestBody"]["content"]["application/json"]["schema"]
        described_names = {name for of_run in schema["oneOf"] for name in of_run["properties"]}
        assert set(names.split()) <= described_names


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(requests())
def test_no_question_makes_the_server_fail(client, asked):
    send(client, *asked)


@pytest.mark.slow
@settings(max_examples=2000, deadline=None, suppress_health_check=list(HealthCheck))
@given(requests())
def test_no_question_of_two_thousand_makes_the_server_fail(client, asked):
    send(client, *asked)
