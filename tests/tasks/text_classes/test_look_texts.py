"""What a text class run shows: [class] over the words of the text, and every attention; in pictures, files and over the API."""

import numpy as np
import pytest
import torch

import saccade as library
from saccade.attention import record_attention
from saccade.data.text.spelling import words_of
from saccade.errors import UserError

TEXT = "I thought the service wasn't friendly, at all!"


def test_the_mean_over_words_is_what_the_class_is_read_from(text_run):
    run = library.load(text_run)
    view = run.look(TEXT)
    first, whole = view.maps
    words = tuple(TEXT[start:end] for start, end in words_of(TEXT))
    assert (first.name, first.queries.words, first.keys.words) == ("[class], look.attention", ("[class]",), words)
    assert whole.queries == whole.keys == first.keys
    task = run.task
    with record_attention(task.model) as maps:
        task.model(*task.padded([task.tokenizer.encode(TEXT)]))
    expected = maps.joined("look.attention")[0].mean(0)
    np.testing.assert_allclose(first.weights[0, 0], expected.numpy(), atol=1e-6)
    assert view.summary == (first,)


def test_an_encoder_shows_its_class_token_and_the_rollout(bert_run):
    view = library.load(bert_run).look(TEXT)
    names = [attention.name for attention in view.maps]
    assert names[:3] == [
        "[class], rollout of 2 layers",
        "[class], layers.1.self_attention",
        "[class], layers.0.self_attention",
    ]
    assert names[3:] == ["layers.0.self_attention", "layers.1.self_attention"]
    words = tuple(TEXT[start:end] for start, end in words_of(TEXT))
    assert view.maps[0].keys.words == ("[class]", *words, "[end]")
    for attention in view.maps:
        np.testing.assert_allclose(attention.weights.sum(-1), 1, atol=1e-5)
    last = next(attention for attention in view.maps if attention.name == "layers.1.self_attention")
    np.testing.assert_allclose(view.maps[1].weights[0, 0], last.weights.mean(0)[0], atol=1e-6)


def test_subwords_are_shown_where_asked_for(bert_run, tmp_path):
    run = library.load(bert_run)
    words, tokens = run.look("xyzzy friendly"), run.look("xyzzy friendly", tokens=True)
    assert len(tokens.maps[0].keys) >= len(words.maps[0].keys)
    with pytest.raises(UserError, match="no attention of this model matches 'look"):
        run.look(TEXT, only="look.*")
    assert len(run.look(TEXT, only="layers.1.*").maps) == 2


@pytest.mark.parametrize("text", ["", "  ", "😀", "a" * 200])
def test_odd_texts_can_be_looked_at(text_run, bert_run, text):
    for path in (text_run, bert_run):
        view = library.load(path).look(text)
        assert view.maps[0].weights.sum() == pytest.approx(1, abs=1e-4)


def test_running_text_is_drawn_in_every_form(text_run, tmp_path):
    view = library.load(text_run).look(" ".join([TEXT] * 4))
    for ending in ("png", "svg", "pdf", "html", "json"):
        view.save(tmp_path / f"view.{ending}")
        assert (tmp_path / f"view.{ending}").stat().st_size > 500
    svg = (tmp_path / "view.svg").read_text()
    assert all(word in svg for word in ("thought", "service", "friendly"))
    assert "isRunning" in (tmp_path / "view.html").read_text()


def test_darker_words_have_more_weight():
    from saccade.views.figures.running import is_running
    from saccade.views.maps import AttentionMap
    from saccade.views.view import View

    attention = AttentionMap("mine", torch.tensor([[0.7, 0.1, 0.2]]), ["[class]"], ["Not", "bad", "!"])
    assert is_running(attention)
    assert not is_running(AttentionMap("two", torch.full((2, 3), 0.3), ["a", "b"], ["x", "y", "z"]))
    figure = View("mine", (attention,)).figure()
    patches = [patch for axes in figure.axes[:1] for patch in axes.patches]
    shades = [sum(patch.get_facecolor()[:3]) for patch in patches]
    assert shades[0] < shades[2] < shades[1]
    assert patches[1].get_x() < patches[2].get_x() < patches[1].get_x() + patches[1].get_width() + 0.02


def test_it_is_served(text_run):
    pytest.importorskip("fastapi", reason="fastapi is not installed (pip install 'saccade[serve]')")
    from fastapi.testclient import TestClient

    from saccade.serve.app import create_app
    from saccade.serve.limits import Limits
    from saccade.serve.served import open_runs

    limits = Limits(seconds=120)
    with TestClient(create_app(open_runs([text_run], limits), limits), base_url="http://127.0.0.1") as client:
        assert {
            row["class"] for row in client.post("/api/predict", json={"text": TEXT, "best": 2}).json()["classes"]
        } == {"good", "bad"}
        view = client.post("/api/look", json={"text": TEXT}).json()
        assert view["maps"][0]["queries"]["labels"] == ["[class]"]
        assert client.post("/api/figure", json={"text": TEXT}).content.startswith(b"\x89PNG")
        refused = client.post("/api/predict", json={"text": "a" * (limits.characters + 1)})
        assert refused.status_code in (413, 422)


def test_a_run_without_attention_says_so(tiny, tmp_path):
    from saccade.runs.train import train

    run = library.load(train("reviews-lstm", [*tiny, "model.attention=none"], tmp_path / "none"))
    view = run.look(TEXT)
    assert (view.maps, run.task.attends) == ((), False)
    with pytest.raises(UserError, match="no attention to look at"):
        view.save(tmp_path / "view.png")
    assert run.evaluate("test").rationales is None
