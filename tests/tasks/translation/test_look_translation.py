"""Replaying what was decoded."""

import json
import math

import numpy as np
import pytest
import torch

import saccade as library
from saccade.data.text.tokenizer import UNK
from saccade.decoding import Hypothesis
from saccade.tasks.task import Example
from saccade.tasks.translation.look import look, replay
from saccade.tasks.translation.task import Translation
from saccade.views import AttentionMap, Tokens


def test_what_is_replayed_are_the_tokens_that_were_chosen_and_not_their_text(tiny_run, monkeypatch):
    """The text of an unknown word is "<unk>", which read again is no longer one token."""
    task = library.load(tiny_run).task
    one, two = task.vocabularies.target.encode("1 2")
    chosen = Hypothesis([one, UNK, two], 0.0, 0.0, True, [])
    monkeypatch.setattr(task, "translate", lambda sources: [Translation(sources[0], "1 <unk> 2", [chosen], [])])
    (attention,) = look(task, Example("1 2 3")).maps
    assert list(attention.queries.words) == ["1", "<unk>", "2", "<end>"]
    assert attention.weights.shape == (1, 4, 4)


def test_sentences_of_a_batch_are_replayed_as_each_alone(tiny_run):
    task = library.load(tiny_run).task
    pairs = [("1 2 3", "3 2 1"), ("4", "4"), ("5 6 7 8 9", "9 8")]
    for (together,), pair in zip(replay(task, pairs), pairs, strict=True):
        ((alone,),) = replay(task, [pair])
        torch.testing.assert_close(torch.from_numpy(together.weights), torch.from_numpy(alone.weights))


def test_a_view_says_what_was_written_and_how_probable_each_word_was(tiny_run):
    run = library.load(tiny_run)
    own, given = run.look("1 2 3"), run.look("1 2 3", target="3 2 1")
    assert own.text == run.predict(["1 2 3"])[0].text
    assert (own.title, given.title, given.text) == ("1 2 3", "1 2 3", "3 2 1")
    assert [word.text for word in given.words] == ["3", "2", "1", "<end>"]
    (scored,) = run.score([("1 2 3", "3 2 1")])
    product = math.prod(word.probability for word in given.words)
    assert product == pytest.approx(math.exp(scored.log_prob), rel=1e-4)
    assert (given.maps[0].query_title, given.maps[0].key_title) == ("translation", "source")


def some_maps(layers: int, heads: int) -> list[AttentionMap]:
    source, target = Tokens(("a", "dog")), Tokens(("ein", "hund", "<end>"))
    own = AttentionMap("encoder.layers.0.self_attention", np.full((heads, 2, 2), 0.5), source, source)
    crosses = [
        AttentionMap(
            f"decoder.layers.{n}.cross_attention", np.full((heads, 3, 2), 0.5), target, source, "translation", "source"
        )
        for n in range(layers)
    ]
    return [own, *crosses]


@pytest.mark.parametrize(
    ("layers", "only", "hint"),
    [(4, None, "shows 5 averages of 45 panels: --only '*' draws every layer and head"), (4, "*", ""), (1, None, "")],
)
def test_what_a_picture_of_many_layers_leaves_out_is_said(tiny_run, monkeypatch, layers, only, hint):
    heads = 8 if layers > 1 else 2
    monkeypatch.setattr("saccade.tasks.translation.look.replay_tokens", lambda *_: [some_maps(layers, heads)])
    view = library.load(tiny_run).look("1 2", **({} if only is None else {"only": only}))
    assert view.hint.startswith(hint)
    assert bool(view.hint) == bool(hint) == bool(view.summary)
    assert len(view.maps) == 1 + layers + bool(hint)  # the mean stands before all of them


def test_a_page_opens_on_the_mean_over_the_source_and_holds_every_map(tiny_run, monkeypatch):
    maps = some_maps(4, 8)
    monkeypatch.setattr("saccade.tasks.translation.look.replay_tokens", lambda *_: [maps])
    page = library.load(tiny_run).look("1 2").html()
    shown = [text.split('"')[0] for text in page.split('"label":"')[1:]]
    whole = [json.dumps(each.label).strip('"') for each in maps]
    assert shown[0] == "attention over the source, average of 4 layers"
    assert shown[1:] == whole
