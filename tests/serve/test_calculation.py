"""The numbers of a calculation add up by hand, to the weight that the map shows."""

import numpy as np
import pytest
import torch
from torch import nn

from saccade.attention import MultiHead, all_scores
from saccade.tasks.translation.calculation import _equation, _listening


def asked(client, run, **more):
    text = {"words": "The cats sleep.", "tiny": "1 2 3 4 5"}[run]
    target = {"words": "Les chats dorment.", "tiny": "5 4 3 2 1"}[run]
    looked = client.post("/api/look", json={"run": run, "text": text, "target": target, "subwords": True}).json()
    question = {"run": run, "text": text, "target": target, "words": False, "query": 1, "key": 2, **more}
    question.setdefault("map", looked["maps"][-1]["name"])
    answer = client.post("/api/calculation", json=question)
    assert answer.status_code == 200, answer.text
    return looked, answer.json()


@pytest.mark.parametrize(("run", "head"), [("words", 1), ("tiny", 0)])
def test_from_query_and_key_to_the_weight_by_hand(client, run, head):
    looked, answer = asked(client, run, head=head)
    score = answer["score"]
    product = sum(a * b for a, b in zip(score["left"], score["right"], strict=True))
    assert product * score["scale"] == pytest.approx(score["value"], abs=1e-4)
    assert answer["scores"][2] == pytest.approx(score["value"] + score["bias"], abs=1e-5)
    exponentials = np.exp(answer["scores"]) * answer["visible"]
    np.testing.assert_allclose(exponentials / exponentials.sum(), answer["weights"], atol=1e-5)
    shown = next(attention for attention in looked["maps"] if attention["name"] == answer["map"])
    np.testing.assert_allclose(shown["weights"][head][1], answer["weights"], atol=2e-5)
    assert answer["keys"] == shown["keys"]["labels"]
    assert answer["queries"] == shown["queries"]["labels"]


def test_the_context_is_the_weighted_sum_of_the_values(client):
    _, first = asked(client, "words", head=1, key=0)
    every = [asked(client, "words", head=1, key=key)[1] for key in range(len(first["weights"]))]
    summed = sum(answer["weight"] * np.array(answer["value"]) for answer in every)
    np.testing.assert_allclose(summed, every[0]["context"], atol=1e-5)


def test_a_pair_of_words_is_shown_by_its_strongest_pair_of_pieces(client):
    _, pieces = asked(client, "words", head=0)
    _, words = asked(client, "words", head=0, words=True, query=0, key=1)
    inside = [place for place, group in enumerate(pieces["key_groups"]) if group == 1]
    assert words["key"] in inside
    assert words["query_groups"][words["query"]] == 0
    others = [asked(client, "words", head=0, query=words["query"], key=key)[1]["weight"] for key in inside]
    assert words["weight"] == pytest.approx(max(others), abs=1e-6)


def test_what_is_heard_is_what_torch_computes():
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    ours = MultiHead.from_torch(theirs)
    query, key = torch.randn(1, 3, 8), torch.randn(1, 5, 8)
    with torch.no_grad(), _listening(ours) as heard:
        ours(query, key)
        _, weights = theirs(query, key, key, average_attn_weights=False)
    torch.testing.assert_close(heard.weights[0], weights[0])
    assert heard.raw[0].shape == (2, 3, 5)
    assert not ours.score._forward_hooks
    assert ours.route is None


def test_every_score_has_an_equation():
    equations = [_equation(score(4)) for score in all_scores().values()]
    assert "sᵀ h / √n" in equations
    assert "β cos(s, h)" in equations
    assert all(0 < len(equation) <= 40 for equation in equations)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"map": "decoder.nothing"}, "no attention called"),
        ({"head": 7}, "head 7 was asked for"),
        ({"query": 999}, "query 999 was asked for"),
        ({"key": 999}, "key 999 was asked for"),
        ({"key": 999, "words": True}, "key 999 was asked for"),
    ],
)
def test_what_is_not_there_is_refused_in_a_sentence(client, wrong, sentence):
    question = {"run": "words", "text": "The cats.", "target": "Les chats.", "map": "decoder.layers.0.cross_attention"}
    question |= {"query": 0, "key": 0, "words": False, **wrong}
    answer = client.post("/api/calculation", json=question)
    assert answer.status_code == 422
    assert sentence in answer.json()["error"]
