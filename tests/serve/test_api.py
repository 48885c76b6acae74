import io
import json
import math
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

import saccade
from saccade.serve.app import create_app
from saccade.serve.guard import Access
from saccade.serve.limits import Limits
from saccade.serve.served import Served

from .conftest import picture

pytest.importorskip("fastapi", reason="fastapi is not installed (pip install 'saccade[serve]')")
from fastapi.testclient import TestClient

SENTENCE = "The cats sleep."


def ask(client, path, status=200, **question):
    answer = client.post(f"/api/{path}", json=question)
    assert answer.status_code == status, answer.text
    return answer.json()


def guarded(opened, limits=None, access=None, **options):
    app = create_app(opened, limits or Limits(), access)
    return TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False, **options)


def test_runs_say_what_they_read_and_offer_examples(client):
    runs = {run["name"]: run for run in client.get("/api/runs").json()["runs"]}
    assert {name: run["reads"] for name, run in runs.items()} == {
        "tiny": "text",
        "words": "text",
        "pictures": "image",
        "captions": "image",
    }
    assert {run["task"] for run in runs.values()} == {"translation", "image_classes", "captions"}
    assert 1 <= len(runs["words"]["examples"]) <= 6
    assert runs["pictures"]["examples"][0].startswith("data:image/png;base64,")
    for example in runs["words"]["examples"]:
        ask(client, "predict", run="words", text=example)
    for name in ("pictures", "captions"):
        ask(client, "predict", run=name, image=runs[name]["examples"][0])


def test_a_translation_is_what_the_library_says(client, word_run):
    mine = saccade.load(word_run).predict([SENTENCE], best=3)[0]
    answer = ask(client, "predict", run="words", text=SENTENCE, best=3)
    assert [translation["text"] for translation in answer["translations"]] == mine.lines()
    for translation in answer["translations"]:
        product = math.prod(word["probability"] for word in translation["words"])
        assert math.log(product) == pytest.approx(translation["log_prob"], rel=1e-4)


def test_many_at_once_get_the_answers_of_one_by_one(client):
    sentences = [f"The {word} sleep{end}" for word in ("cats", "dogs", "books") for end in (".", " and read.")]
    alone = [ask(client, "predict", run="words", text=text)["translations"][0]["text"] for text in sentences]
    with ThreadPoolExecutor(12) as pool:
        together = list(pool.map(lambda text: ask(client, "predict", run="words", text=text), sentences * 4))
    assert [answer["translations"][0]["text"] for answer in together] == alone * 4
    assert [answer["source"] for answer in together] == sentences * 4


def test_a_list_of_inputs_gets_a_list_of_answers(client):
    texts = ["The cats sleep.", "The dogs read.", "The cats sleep."]
    answer = ask(client, "predict", run="words", text=texts, best=2)
    assert set(answer) == {"run", "answers"}
    assert [one["source"] for one in answer["answers"]] == texts
    for text, one in zip(texts, answer["answers"], strict=True):
        alone = ask(client, "predict", run="words", text=text, best=2)
        assert [t["text"] for t in one["translations"]] == [t["text"] for t in alone["translations"]]
        assert one["translations"][1]["log_prob"] == pytest.approx(alone["translations"][1]["log_prob"], abs=1e-4)


def test_words_that_the_model_does_not_know_are_named(client):
    for path in ("predict", "look"):
        assert ask(client, path, run="tiny", text="1 fox 2 owl fox")["unknown"] == ["fox", "owl"]
        assert "unknown" not in ask(client, path, run="tiny", text="1 2 3")
    several = ask(client, "predict", run="tiny", text=["1 fox", "1 2", "owl"])["answers"]
    assert [answer.get("unknown") for answer in several] == [["fox"], None, ["owl"]]
    assert "unknown" not in ask(client, "predict", run="words", text="The fox sleeps.")  # it reads pieces of words


def test_a_look_is_what_the_library_says(client, word_run):
    view = saccade.load(word_run).look(SENTENCE, target="Les chats dorment.")
    answer = ask(client, "look", run="words", text=SENTENCE, target="Les chats dorment.")
    assert answer["text"] == view.text == "Les chats dorment."
    assert [shown["name"] for shown in answer["maps"]] == [attention.name for attention in view.maps]
    for shown, attention in zip(answer["maps"], view.maps, strict=True):
        np.testing.assert_allclose(shown["weights"], attention.weights, atol=6e-6)
    cross = answer["maps"][-1]
    assert [word["text"] for word in answer["words"]] == cross["queries"]["labels"]


def test_a_forced_beginning_is_kept_and_scored_like_any_other(client):
    answer = ask(client, "predict", run="words", text=SENTENCE, prefix="Les livres")
    assert answer["translations"][0]["text"].startswith("Les livres")


def test_alternatives_are_probable_words_in_that_place(client):
    target = "Les chats dorment."
    answer = ask(client, "alternatives", run="words", text=SENTENCE, target=target, word=1, best=5)
    shares = [word["probability"] for word in answer["alternatives"]]
    assert shares == sorted(shares, reverse=True)
    assert 0 < sum(shares) <= 1.0001
    looked = ask(client, "look", run="words", text=SENTENCE, target=answer["alternatives"][0]["prefix"] or "")
    assert looked["words"][1]["probability"] == pytest.approx(shares[0], rel=1e-3)
    end = ask(client, "alternatives", run="words", text=SENTENCE, target=target, word=4, best=20)["alternatives"]
    assert all(word["text"] for word in end)
    assert "there are" in ask(client, "alternatives", 422, run="words", text=SENTENCE, target=target, word=99)["error"]


def test_a_stream_ends_with_the_greedy_translation(client, word_run):
    lines = client.post("/api/stream", json={"run": "words", "text": SENTENCE}).text.splitlines()
    told = [json.loads(line) for line in lines]
    greedy = saccade.load(word_run).predict([SENTENCE], search="greedy")[0]
    assert told[-1]["done"]
    assert told[-1]["text"] == greedy.text
    assert told[-1]["log_prob"] == pytest.approx(greedy.hypotheses[0].log_prob, rel=1e-5)
    assert len(told) == len(greedy.hypotheses[0].tokens) + 1
    forced = client.post("/api/stream", json={"run": "words", "text": SENTENCE, "prefix": "Les livres"}).text
    assert json.loads(forced.splitlines()[-1])["text"].startswith("Les livres")


def test_a_stream_keeps_its_beginning_and_says_what_it_cannot_write(client):
    long = "Les chats " * 9
    lines = client.post("/api/stream", json={"run": "words", "text": "The cats.", "prefix": long}).text.splitlines()
    assert json.loads(lines[-1])["text"].startswith(long.strip())
    empty = client.post("/api/stream", json={"run": "words", "text": " "}).text.splitlines()
    assert [json.loads(line)["text"] for line in empty] == [""]


def test_a_stream_that_cannot_begin_has_the_status_of_its_reason(naughty, caplog):
    with guarded(naughty, Limits(seconds=0.5)) as client:
        assert "in time" in ask(client, "stream", 503, text="wait 5")["error"]
    with guarded(naughty) as client:
        assert "went wrong" in ask(client, "stream", 500, text="fail")["error"]
        first, last = client.post("/api/stream", json={"text": "later fail"}).text.splitlines()
        assert json.loads(first) == {"number": 0}
        assert "went wrong" in json.loads(last)["error"]
        assert "secret" not in last
    assert "the secret reason" in caplog.text


def test_a_picture_gets_classes_and_maps_over_its_cells(client, picture_run):
    image = Image.linear_gradient("L").resize((8, 8))
    mine = saccade.load(picture_run).predict([image], best=None)[0]
    answer = ask(client, "look", run="pictures", image=picture(), pixel=[3, 4])
    assert [share["class"] for share in answer["answer"]["classes"]] == list(mine.classes)
    assert answer["text"] == f"{mine.text} (probability {mine.probability:.2f})"
    assert answer["picture"]["rows"] == 8
    assert answer["maps"]
    for shown in answer["maps"]:
        cells = shown["keys"]["rows"] * shown["keys"]["columns"] + len(shown["keys"]["extra"])
        assert np.shape(shown["weights"])[1:] == (1, cells)
    assert "pixel 99,0" in ask(client, "look", 422, run="pictures", image=picture(), pixel=[99, 0])["error"]


def test_figures_are_files_of_their_kind(client):
    words = {"run": "words", "text": SENTENCE, "only": "decoder.layers.1.cross*", "head": 1, "format": "svg"}
    caption = {"run": "captions", "image": picture(40, 40), "target": "a red circle", "format": "pdf"}
    image = {"run": "pictures", "image": picture(), "only": "pool*"}
    svg, pdf, png = (client.post("/api/figure", json=question) for question in (words, caption, image))
    assert b"<svg" in svg.content, svg.text
    assert pdf.content.startswith(b"%PDF"), pdf.text
    assert Image.open(io.BytesIO(png.content)).format == "PNG"
    assert "`format` is wrong" in ask(client, "figure", 422, **{**words, "format": "exe"})["error"]


def test_a_path_is_never_opened(client, tmp_path):
    Image.new("L", (8, 8)).save(tmp_path / "secret.png")
    for path in (str(tmp_path / "secret.png"), "secret.png"):
        assert "base64" in ask(client, "predict", 422, run="pictures", image=path)["error"]
    assert (
        "Unknown field `text`"
        in ask(client, "predict", 422, run="pictures", text=str(tmp_path / "secret.png"))["error"]
    )
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static//etc/passwd", "/../../etc/passwd"):
        assert client.get(path).status_code == 404


@pytest.mark.parametrize(
    ("path", "question", "status", "sentence"),
    [
        ("predict", {"run": "nobody", "text": "a"}, 404, "choose one of tiny, words, pictures, captions"),
        ("predict", {"text": "a"}, 422, "name one of them in `run`"),
        ("predict", {"run": "words"}, 422, "`text` is missing"),
        ("predict", {"run": "words", "image": "aaaa"}, 422, "Unknown field `image`; did you mean `text`?"),
        ("predict", {"run": "words", "source": "a"}, 422, "Unknown field `source`; did you mean `text`?"),
        ("predict", {"run": "words", "text": "a", "image": "aaaa"}, 422, "Unknown field `image`; there are run, text,"),
        (
            "predict",
            {"run": "words", "text": "a", **{f"field{n}": n for n in range(60)}},
            422,
            "the body has 62 fields, and 60",
        ),
        ("predict", {"run": "words", "text": []}, 422, "`text` is a list of 0, and 1 to 32 are allowed"),
        ("predict", {"run": "words", "text": ["a", 5]}, 422, "`text` is wrong"),
        ("look", {"run": "words", "text": ["a", "b"]}, 422, "`text` is wrong"),
        ("predict", {"run": "words", "text": "a", "beam": 0}, 422, "`beam` is wrong"),
        ("predict", {"run": "words", "text": "a", "beem": 3}, 422, "Unknown field `beem`; did you mean `beam`?"),
        ("predict", {"run": "words", "text": 5}, 422, "`text` is wrong"),
        ("predict", {"run": "words", "text": "a " * 1001}, 422, "the text has 2,002 characters, and 2,000 are allowed"),
        ("predict", {"run": "words", "text": "cat " * 400}, 422, "split it into shorter sentences"),
        (
            "predict",
            {"run": "words", "text": "a", "prefix": "le " * 300},
            422,
            "tokens was given and this model writes at most",
        ),
        ("look", {"run": "words", "text": " "}, 422, "empty sentence"),
        ("look", {"run": "words", "text": "a", "only": "nothing"}, 422, "no attention of this model matches"),
        ("predict", {"run": "pictures", "image": "AAAA"}, 422, "not a picture that can be read"),
        ("stream", {"run": "words", "text": "cat " * 400}, 422, "split it into shorter sentences"),
        (
            "alternatives",
            {"run": "pictures", "text": "a", "target": "b", "word": 0},
            422,
            "does not answer /api/alternatives",
        ),
        ("alternatives", {"run": "words", "text": "", "target": "b", "word": 0}, 422, "word 0"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(client, path, question, status, sentence):
    assert sentence in ask(client, path, status, **question)["error"]


def test_a_picture_of_too_many_pixels_is_refused_before_it_is_decoded(opened):
    small = {name: Served(name, served.run, Limits(pixels=100)) for name, served in opened.items()}
    with guarded(small) as client:
        assert "20 × 20 pixels" in ask(client, "predict", 422, run="pictures", image=picture(20, 20))["error"]
        ask(client, "predict", run="pictures", image=picture(10, 10))


def test_bodies_are_limited_and_must_be_json(opened):
    with guarded(opened, Limits(body=500)) as client:
        assert "500 bytes" in ask(client, "predict", 413, run="words", text="a" * 600)["error"]
        parts = client.post(
            "/api/predict", content=(b"a" * 300 for _ in range(3)), headers={"content-type": "application/json"}
        )
        assert parts.status_code == 413
        assert client.post("/api/predict", content=b"{}", headers={"content-type": "text/plain"}).status_code == 415
        for body in (b"{", b"\xff\xfe", b"[" * 400, b"9" * 490):
            answer = client.post("/api/predict", content=body, headers={"content-type": "application/json"})
            assert answer.status_code in (400, 422), body
            assert set(answer.json()) == {"error"}


def test_other_sites_and_other_names_are_refused(client):
    question = {"json": {"run": "words", "text": "a"}}
    for headers in (
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"host": "evil.example"},
        {"host": "127.0.0.1.evil.example:8000"},
    ):
        answer = client.post("/api/predict", headers=headers, **question)
        assert answer.status_code == 403, headers
        assert "access-control-allow-origin" not in answer.headers
    assert client.post("/api/predict", headers={"origin": "http://127.0.0.1"}, **question).status_code == 200
    assert client.get("/healthz", headers={"host": "localhost:9000"}).status_code == 200


def test_a_token_opens_the_api_and_nothing_less_does(opened):
    with guarded(opened, access=Access(hosts=None, token="open-sesame")) as client:
        for headers in (
            {},
            {"authorization": "Bearer wrong"},
            {"authorization": "Bearer "},
            {"authorization": "Bearer é"},
        ):
            sent = {name: value.encode("latin-1") for name, value in headers.items()}
            for path in ("/api/runs", "/metrics"):
                answer = client.get(path, headers=sent)
                assert answer.status_code == 401
                assert "token" in answer.json()["error"]
        assert client.get("/api/runs", headers={"authorization": "Bearer open-sesame"}).status_code == 200
        assert client.get("/healthz", headers={"host": "any.example"}).status_code == 200
        assert client.get("/").status_code == 200


def test_every_answer_carries_the_headers_that_keep_a_page_to_itself(client):
    for answer in (client.get("/"), client.get("/nothing"), client.get("/api/runs"), client.post("/api/look")):
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"


def test_nothing_of_a_failure_but_a_sentence_reaches_the_client(naughty, caplog):
    with guarded(naughty) as client:
        answer = client.post("/api/predict", json={"text": "fail"})
        assert answer.status_code == 500
        assert answer.json() == {"error": "something went wrong here; the server's log says what"}
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert client.get("/healthz").json() == {"status": "ok", "runs": 1}
    assert "the secret reason" in caplog.text


def test_too_many_of_one_client_and_too_slow_an_answer_are_refused(naughty):
    limits = Limits(seconds=0.3, per_client=2, queue=1)
    with guarded(naughty, limits) as client, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: client.post("/api/predict", json={"text": f"wait 5.{n}"}), range(8)))
    statuses = {answer.status_code for answer in answers}
    assert statuses == {429, 503}
    assert all(answer.headers["retry-after"] == "1" for answer in answers)


def test_metrics_count_requests_and_batches(opened):
    with guarded(opened) as client:
        ask(client, "predict", run="words", text="a")
        ask(client, "predict", 404, run="none", text="a")
        client.get("/made/up/path")
        text = client.get("/metrics").text
    assert 'saccade_requests_total{path="/api/predict",status="200"} 1' in text
    assert 'saccade_requests_total{path="/api/predict",status="404"} 1' in text
    assert 'saccade_requests_total{path="other",status="404"} 1' in text
    assert 'saccade_batch_size_bucket{le="1"} 1' in text
    assert "saccade_request_seconds_count 3" in text
    assert "saccade_waiting 0" in text


def test_the_description_of_the_api_needs_nobody_else(client):
    described = client.get("/openapi.json").json()
    assert {"/api/runs", "/api/predict", "/api/look", "/healthz"} <= set(described["paths"])
    assert "Error" in described["components"]["schemas"]
    for reference in re.findall(r'"\$ref": "#/components/schemas/([^"]+)"', json.dumps(described)):
        assert reference in described["components"]["schemas"]
    assert "#/$defs" not in json.dumps(described)
    assert "http" not in client.get("/docs").text.replace("http-equiv", "")


def bodies(client):
    """By endpoint: the schema of every run that answers it, and an example for each."""
    for path, methods in client.get("/openapi.json").json()["paths"].items():
        if "post" in methods:
            content = methods["post"]["requestBody"]["content"]["application/json"]
            schema, examples = content["schema"], content["examples"]
            schemas = {one["title"]: one for one in schema.get("oneOf", [schema])}
            assert {run: one["examples"] for run, one in schemas.items()} == {
                run: [example["value"]] for run, example in examples.items()
            }
            yield path, schemas, {run: example["value"] for run, example in examples.items()}


def test_every_field_of_every_run_has_a_meaning(client):
    schemas = [(path, schema) for path, by_run, _ in bodies(client) for schema in by_run.values()]
    assert {path for path, _ in schemas} >= {"/api/predict", "/api/look", "/api/figure", "/api/stream", "/api/what-if"}
    for path, schema in schemas:
        for name, field in schema["properties"].items():
            assert len(field.get("description", "")) > 5, (path, name)
        assert "run" in schema["required"]
        assert not {"engine_path", "data", "reference", "confusion"} & set(
            schema["properties"]
        )  # a request names no file


def test_every_example_of_the_description_works(client, opened):
    answered = 0
    for path, _, examples in bodies(client):
        if path == "/api/figure":  # the body of a look, and seconds to draw
            continue
        for run, body in examples.items():
            assert body["run"] == run
            answer = client.post(path, json=body)
            assert answer.status_code == 200, (path, body, answer.text)
            answered += 1
    assert answered == sum(len(served.bodies) - 1 for served in opened.values())


def test_one_run_alone_need_not_be_named(opened):
    with guarded({"tiny": opened["tiny"]}) as client:
        for path, schemas, examples in bodies(client):
            assert "run" not in schemas["tiny"].get("required", ())
            assert "run" not in examples["tiny"]
            assert client.post(path, json=examples["tiny"]).status_code == 200, path
