"""The search as a tree and the what-if over HTTP: they say what the library says."""

import math

import numpy as np
import pytest

from .test_api import SENTENCE, ask


def leaves(nodes):
    return sorted((node for node in nodes if node["rank"] is not None), key=lambda node: node["rank"])


@pytest.mark.parametrize(("run", "text"), [("words", SENTENCE), ("tiny", "1 2 3")])
def test_the_ranked_leaves_of_the_search_are_the_translations(client, run, text):
    translations = ask(client, "predict", run=run, text=text, best=3)["translations"]
    nodes = ask(client, "search", run=run, text=text, best=3)["nodes"]
    ranked = leaves(nodes)
    assert [node["score"] for node in ranked] == pytest.approx(
        [translation["score"] for translation in translations], abs=1e-4
    )
    assert [node["total"] for node in ranked] == pytest.approx(
        [translation["log_prob"] for translation in translations], abs=1e-4
    )
    for node, translation in zip(ranked, translations, strict=True):
        whole = node if node["prefix"] is not None else nodes[node["parent"]]
        assert whole["prefix"] == translation["text"]
        assert (node["piece"] == "<end>") is translation["finished"]


def test_every_branch_goes_on_from_an_earlier_one_and_adds_its_own_probability(client):
    nodes = ask(client, "search", run="words", text=SENTENCE, beam=3)["nodes"]
    assert {"best", "followed", "given up"} <= {node["fate"] for node in nodes}
    for number, node in enumerate(nodes):
        before = nodes[node["parent"]] if node["parent"] is not None else {"total": 0.0, "step": 0}
        assert node["parent"] is None or node["parent"] < number
        assert node["step"] == before["step"] + 1
        assert node["total"] == pytest.approx(before["total"] + node["log_prob"], abs=1e-4)


def test_a_branch_that_was_given_up_can_be_revived(client):
    nodes = ask(client, "search", run="words", text=SENTENCE)["nodes"]
    pruned = [node for node in nodes if node["fate"] == "given up" and node["prefix"]]
    for node in pruned[:: max(1, len(pruned) // 4)]:
        revived = ask(client, "predict", run="words", text=SENTENCE, prefix=node["prefix"])["translations"][0]
        assert revived["text"].startswith(node["prefix"])
    again = ask(client, "search", run="words", text=SENTENCE, prefix=pruned[0]["prefix"])["nodes"]
    assert leaves(again)[0]["fate"] == "best"


def test_a_branch_has_a_prefix_only_if_that_leads_back_to_it(client, opened):
    nodes = ask(client, "search", run="words", text="The cats sleep.", best=3)["nodes"]
    task = opened["words"].run.task
    prefixes = {node["prefix"] for node in nodes if node["prefix"] is not None}
    assert prefixes
    for prefix in prefixes:
        tokens = task.encode_targets([prefix])[0]
        assert task.vocabularies.target.decode(tokens).strip() == prefix


def test_without_interventions_nothing_changes(client):
    answer = ask(client, "what-if", run="words", text=SENTENCE, interventions=[])
    own = ask(client, "predict", run="words", text=SENTENCE)["translations"][0]
    assert answer["before"]["text"] == answer["after"]["text"] == own["text"]
    assert answer["after"]["log_prob"] == pytest.approx(own["log_prob"], abs=1e-4)
    assert not any(word["changed"] for word in answer["before"]["words"] + answer["after"]["words"])


@pytest.mark.parametrize(
    ("run", "text", "target"), [("words", SENTENCE, "Les chats dorment."), ("tiny", "1 2 3", "3 2 1")]
)
def test_a_turned_word_keeps_the_words_before_it_and_changes_its_row(client, run, text, target):
    question = {"run": run, "text": text, "target": target}
    answer = ask(client, "what-if", interventions=[{"step": 1, "onto": 0}], **question)
    assert answer["before"]["text"] == target
    assert answer["after"]["words"][0] == answer["before"]["words"][0] | {
        "probability": answer["after"]["words"][0]["probability"]
    }
    changed = [word["text"] for word in answer["after"]["words"] if word["changed"]]
    assert bool(changed) == (answer["after"]["text"] != target)
    pieces = ask(client, "what-if", interventions=[{"step": 1, "onto": 0}], words=False, **question)
    cross = [attention for attention in pieces["maps"] if attention["query_title"] == "translation"]
    for attention in cross:
        assert all(head[1] == [1.0] + [0.0] * (len(head[1]) - 1) for head in attention["weights"])
    product = math.prod(word["probability"] for word in answer["after"]["words"])
    assert math.log(product) == pytest.approx(answer["after"]["log_prob"], rel=1e-3)


def test_a_word_of_several_pieces_is_looked_at_as_a_whole(client, opened):
    text, target = "The qqq zzz.", "Les chats."
    task = opened["words"].run.task
    assert len(task.encode(["qqq"])[0]) > 1  # letters that the vocabulary has no longer piece for
    question = {"run": "words", "text": text, "target": target, "interventions": [{"step": 0, "onto": 1}]}
    shown = ask(client, "what-if", **question)["maps"][-1]
    assert shown["keys"]["labels"][1] == "qqq"
    if len(task.vocabularies.target.encode("Les")) == 1:
        assert [head[0][1] for head in shown["weights"]] == [1.0, 1.0]


def test_a_cut_head_sees_nothing(client):
    name = "decoder.layers.0.cross_attention"
    answer = ask(client, "what-if", run="words", text=SENTENCE, interventions=[{"map": name, "head": 1}])
    cut = next(attention for attention in answer["maps"] if attention["name"] == name)
    assert not np.any(cut["weights"][1])
    np.testing.assert_allclose(np.sum(cut["weights"][0], axis=-1), 1, atol=1e-3)


@pytest.mark.parametrize(
    ("path", "question", "sentence"),
    [
        ("search", {"text": " "}, "empty sentence"),
        ("search", {"text": "a", "beam": 99}, "`beam` is wrong"),
        ("what-if", {"text": " ", "interventions": []}, "empty sentence"),
        ("what-if", {"text": "a", "target": "b", "interventions": [{"step": 9, "onto": 0}]}, "`step` is 9"),
        ("what-if", {"text": "a", "target": "b", "interventions": [{"step": 0, "onto": 9}]}, "`onto` is 9"),
        ("what-if", {"text": "a", "interventions": [{"map": "x", "head": 0}]}, "no attention called 'x'"),
        ("what-if", {"text": "a", "interventions": [{"step": 0}]}, "interventions"),
        ("what-if", {"text": "a", "interventions": [{"step": 0, "onto": 0}] * 51}, "`interventions` is wrong"),
        ("search", {"run": "pictures", "text": "a"}, "does not answer /api/search: it answers predict, look, figure"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(client, path, question, sentence):
    assert sentence in ask(client, path, 422, **{"run": "words", **question})["error"]
