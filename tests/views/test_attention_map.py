import json
import os
import stat
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from saccade.errors import UserError
from saccade.views import AttentionMap, save
from saccade.views.axes import Grid, Steps, Tokens, labels

CROSS = "decoder.layers.3.cross_attention"


def soft(*shape: int, seed: int = 0) -> np.ndarray:
    scores = np.random.default_rng(seed).normal(size=shape)
    weights = np.exp(scores)
    return weights / weights.sum(axis=-1, keepdims=True)


def a_map(heads: int = 2) -> AttentionMap:
    return AttentionMap(CROSS, soft(heads, 2, 3), Tokens(("le", "chat")), Tokens(("the", "cat", ".")))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_tensor_with_gradients_becomes_a_read_only_float32_array(dtype):
    tensor = torch.full((1, 2, 3), 0.25, dtype=dtype, requires_grad=True)
    attention = AttentionMap(CROSS, tensor, Tokens(("a", "b")), Tokens(("x", "y", "z")))
    assert attention.weights.dtype == np.float32
    assert attention.weights.tolist() == [[[0.25] * 3] * 2]
    with pytest.raises(ValueError, match="read-only"):
        attention.weights[0, 0, 0] = 1


def test_changing_the_given_array_later_does_not_change_the_map():
    given = np.full((1, 1), 0.5, dtype=np.float32)
    attention = AttentionMap(CROSS, given, Tokens(("a",)), Tokens(("b",)))
    given[:] = 9
    assert attention.weights.item() == 0.5


def test_a_single_head_may_be_given_without_its_axis():
    assert AttentionMap(CROSS, soft(2, 3), Tokens(("a", "b")), Tokens(("x", "y", "z"))).weights.shape == (1, 2, 3)


@pytest.mark.parametrize(
    ("weights", "sentence"),
    [
        (soft(1, 3, 3), "3 queries, but its queries axis names 2"),
        (soft(1, 2, 4), "4 keys, but its keys axis names 3"),
        (soft(1, 1, 2, 3), "take one example out of the batch"),
        (np.full((2, 3), np.nan), "negative or non-finite"),
        (np.full((2, 3), -0.1), "negative or non-finite"),
    ],
)
def test_weights_that_do_not_fit_their_axes_are_refused_in_a_sentence(weights, sentence):
    with pytest.raises(UserError, match=sentence):
        AttentionMap(CROSS, weights, Tokens(("a", "b")), Tokens(("x", "y", "z")))


def test_a_map_of_no_words_is_refused():
    with pytest.raises(UserError, match="nothing to look at"):
        AttentionMap(CROSS, np.zeros((1, 0, 1)), Tokens(()), Tokens(("x",)))


def test_averaged_is_the_mean_over_heads_and_head_is_one_of_them():
    attention = a_map(heads=3)
    np.testing.assert_allclose(attention.averaged().weights[0], attention.weights.mean(axis=0))
    np.testing.assert_array_equal(attention.head(2).weights[0], attention.weights[2])
    assert attention.averaged().heads == attention.head(0).heads == 1


@pytest.mark.parametrize("index", [-1, 2])
def test_a_head_that_does_not_exist_names_those_that_do(index):
    with pytest.raises(UserError, match="heads 0 to 1"):
        a_map(heads=2).head(index)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        (CROSS, "decoder · layer 3 · cross attention"),
        ("encoder.blocks.10.attention", "encoder · block 10 · attention"),
        ("stages.2.0.second", "stage 2 · block 0 · second"),
        ("attention", "attention"),
    ],
)
def test_the_label_reads_like_words(name, label):
    assert AttentionMap(name, [[1.0]], Tokens(("a",)), Tokens(("b",))).label == label


def test_sides_are_named_by_what_they_are_unless_told():
    def titles(queries, keys, *told):
        attention = AttentionMap("encoder.layers.0.self_attention", [[1.0]], queries, keys, *told)
        return attention.query_title, attention.key_title

    word, steps, grid = Tokens(("a",)), Steps(("May",)), Grid(1, 1)
    assert titles(["a"], ["b"]) == ("query", "key")
    assert titles(word, grid) == ("query", "image")
    assert titles(steps, steps) == ("step (query)", "step (key)")
    assert titles(word, word, "translation", "source") == ("translation", "source")


@pytest.mark.parametrize(
    ("word", "shown"),
    [("", "∅"), (" ", "␣"), (" cat", "␣cat"), ("a  ", "a␣␣"), ("12 May", "12 May"), ("a\nb", "a⏎b"), ("\x00", "�")],
)
def test_what_cannot_be_seen_is_shown_as_a_mark(word, shown):
    assert labels(Tokens((word,))) == [shown]


@given(st.lists(st.text(), min_size=1, max_size=4))
def test_no_label_is_empty(words):
    assert all(label.strip() for label in labels(Steps(tuple(words))))


@pytest.mark.parametrize("keys", [Tokens(("é", '"', "</script>")), Steps(("a", "b", "c")), Grid(1, 2, ("[class]",))])
def test_json_gives_back_the_same_map_bit_for_bit(keys):
    attention = AttentionMap(CROSS, soft(2, 2, 3), Tokens(("", " ")), keys)
    again = AttentionMap.from_dict(json.loads(json.dumps(attention.to_dict())))
    assert (again.name, again.queries, again.keys) == (attention.name, attention.queries, attention.keys)
    np.testing.assert_array_equal(again.weights, attention.weights)


@pytest.mark.parametrize(
    "values", [{}, {"name": "x", "queries": {"kind": "words"}, "keys": {}, "weights": []}, {"queries": 3}]
)
def test_json_that_is_no_map_is_refused_in_a_sentence(values):
    with pytest.raises(UserError, match="not an attention map"):
        AttentionMap.from_dict(values)


def test_the_ending_decides_what_is_written(tmp_path):
    for ending in ("png", "PNG", "svg", "html", "json"):
        a_map().save(tmp_path / f"map.{ending}", title="le chat")
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "map.PNG").read_bytes().startswith(b"\x89PNG")
    assert ElementTree.parse(tmp_path / "map.svg").getroot().tag.endswith("svg")
    assert (tmp_path / "map.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    written = json.loads((tmp_path / "map.json").read_text(encoding="utf-8"))
    assert written["title"] == "le chat"
    assert AttentionMap.from_dict(written["maps"][0]).name == CROSS


@pytest.mark.parametrize("name", ["map.gif", "map", "map.png.txt"])
def test_another_ending_is_refused_with_those_allowed(tmp_path, name):
    with pytest.raises(UserError, match=r"\.png, \.svg, \.pdf, \.html or \.json"):
        a_map().save(tmp_path / name)


def test_several_maps_go_into_one_file(tmp_path):
    save([a_map(), a_map(1)], tmp_path / "maps.json")
    assert len(json.loads((tmp_path / "maps.json").read_text(encoding="utf-8"))["maps"]) == 2


def test_no_maps_at_all_are_refused(tmp_path):
    with pytest.raises(UserError, match="no attention map to write"):
        save([], tmp_path / "maps.png")


def test_missing_directories_are_made_and_nothing_is_left_beside_the_file(tmp_path):
    a_map().save(tmp_path / "new" / "deep" / "map.json")
    assert os.listdir(tmp_path / "new" / "deep") == ["map.json"]


def test_a_saved_file_may_be_read_by_whom_the_umask_allows(tmp_path):
    (tmp_path / "plain").write_text("")
    a_map().save(tmp_path / "map.json")
    assert stat.S_IMODE((tmp_path / "map.json").stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


def test_a_place_that_cannot_be_written_is_a_sentence_and_leaves_nothing(tmp_path):
    (tmp_path / "map.json").mkdir()
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "map.json", tmp_path / "file" / "map.json", "/proc/map.json"):
        with pytest.raises(UserError, match="cannot be written"):
            a_map().save(path)
    assert sorted(os.listdir(tmp_path)) == ["file", "map.json"]


def test_a_write_that_fails_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "map.json"
    path.write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(UserError, match="No space left on device"):
        a_map().save(path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["map.json"]


def test_a_notebook_shows_a_map_by_itself():
    attention = a_map()
    assert attention._repr_png_().startswith(b"\x89PNG")
    assert attention._repr_html_().startswith("<iframe srcdoc=")
    assert repr(attention) == f"AttentionMap({CROSS!r}, heads=2, queries=2, keys=3)"
