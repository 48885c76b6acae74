"""One way in for every task: what is looked at is called by its name, and what a picture leaves out is said."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from sights import a_picture, a_task

from saccade.runs.looking import looked
from saccade.views.axes import Tokens
from saccade.views.maps import AttentionMap

SENTENCE = SimpleNamespace(recipe=SimpleNamespace(task="translation"))


@pytest.mark.parametrize(
    ("layers", "only", "hint"),
    [(4, None, "shows 5 averages of 36 panels: --only '*' draws"), (4, "*", ""), (1, None, "")],
)
def test_what_a_picture_of_many_layers_leaves_out_is_said(monkeypatch, layers, only, hint):
    words = Tokens(("a", "dog"))
    maps = [
        AttentionMap(f"decoder.layers.{index}.cross_attention", np.full((8, 2, 2), 0.5), words, words)
        for index in range(layers)
    ]
    monkeypatch.setattr("saccade.tasks.translation.look.look", lambda *_: maps)
    found = looked(SENTENCE, "a dog", only=only).hint
    assert found.startswith(hint)
    assert bool(found) == bool(hint)


def test_a_held_out_picture_has_a_name_and_a_truth(tmp_path):
    task = a_task(tmp_path, "vit")
    for name, truth, source in (("test:0", "frog", "test:0"), (None, None, "an image of 16 × 24")):
        looked(task, a_picture(), name=name, truth=truth).save(tmp_path / "a.json")
        values = json.loads((tmp_path / "a.json").read_text("utf-8"))
        assert (values["answer"]["source"], values["truth"]) == (source, truth)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("only", [None, "decoder*"])
def test_a_page_opens_on_the_mean_over_the_source_and_holds_every_map(monkeypatch, tmp_path, only, layers):
    source, target = Tokens(("a", "dog")), Tokens(("ein", "hund", "<end>"))
    maps = [AttentionMap("encoder.layers.0.self_attention", np.full((2, 2, 2), 0.5), source, source)]
    maps += [
        AttentionMap(f"decoder.layers.{index}.cross_attention", np.full((2, 3, 2), 0.5), target, source)
        for index in range(layers)
    ]
    monkeypatch.setattr("saccade.tasks.translation.look.look", lambda *_: maps)
    looked(SENTENCE, "a dog", only=only).save(tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text("utf-8")
    shown = [text.split('"')[0] for text in page.split('"label":"')[1:]]
    whole = [json.dumps(each.label).strip('"') for each in maps]
    if only:
        assert shown == whole
    else:
        mean = ["attention over the source, average of 2 layers", *whole]
        assert shown == (mean if layers == 2 else whole[::-1])
