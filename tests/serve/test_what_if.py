"""Attention changed by hand: the weights are those asked for, what stands before stays, and a cut head is a zero in its projection."""

import copy

import numpy as np
import pytest
import torch

from saccade.attention import MultiHead
from saccade.data.text.tokenizer import EOS
from saccade.errors import UserError
from saccade.tasks.translation.look import replay
from saccade.tasks.translation.what_if import Cut, Turn, what_if
from saccade.tasks.writing import looks_at

SENTENCES = {"words": ("The cats sleep today.", "Les chats dorment aujourd'hui."), "tiny": ("1 2 3 4 5", "5 4 3 2 1")}
CROSS = "decoder.layers.1.cross_attention"


@pytest.fixture(params=["words", "tiny"])
def pair(request, opened):
    """A task, and a sentence and its translation as tokens."""
    task, (source, target) = opened[request.param].run.task, SENTENCES[request.param]
    return task, task.encode([source])[0], task.vocabularies.target.encode(target)


@pytest.fixture
def words(opened):
    task, (source, target) = opened["words"].run.task, SENTENCES["words"]
    return task, task.encode([source])[0], task.vocabularies.target.encode(target)


def over_source(task):
    return looks_at(task.model, "target", "source")


def own_target(task, source):
    """The model's own translation, whose tokens a search finds again."""
    return what_if(task, source, [], []).hypothesis.tokens


def test_nothing_changed_is_the_models_own_translation(pair):
    task, source, _ = pair
    text = task.vocabularies.source.decode(source)
    (mine,) = task.translate([text])
    outcome = what_if(task, source, [], [], words=False)
    assert outcome.hypothesis == mine.hypotheses[0]
    plain = replay(task, [(text, mine.text)], words=False)[0]
    assert [attention.name for attention in outcome.maps] == [attention.name for attention in plain]
    if task.vocabularies.target.encode(mine.text) == outcome.hypothesis.tokens:
        for changed, attention in zip(outcome.maps, plain, strict=True):
            np.testing.assert_allclose(changed.weights, attention.weights, atol=1e-5)


def test_a_turned_step_looks_where_it_was_told_and_the_words_before_it_stay(pair):
    task, source, target = pair
    outcome = what_if(task, source, target, [Turn(2, (1, 3))], words=False)
    assert outcome.hypothesis.tokens[:2] == target[:2]
    assert outcome.kept == 2
    before = {
        attention.name: attention for attention in what_if(task, source, target, [Turn(2, (0,))], words=False).maps
    }
    asked = np.zeros(len(source) + 1)
    asked[[1, 3]] = 0.5
    assert over_source(task)
    for attention in outcome.maps:
        if attention.name in over_source(task):
            np.testing.assert_array_equal(attention.weights[:, 2], np.tile(asked, (attention.heads, 1)))
            np.testing.assert_array_equal(attention.weights[:, :2], before[attention.name].weights[:, :2])
            assert (attention.weights[:, 0].max(-1) < 1).all()


def test_one_head_of_one_layer_is_turned_alone(words):
    task, source, target = words
    outcome = what_if(task, source, target, [Turn(0, (1,), CROSS, 0)], words=False)
    turned = next(attention for attention in outcome.maps if attention.name == CROSS)
    assert turned.weights[0, 0].tolist() == [float(key == 1) for key in range(len(source) + 1)]
    assert turned.weights[1, 0].max() < 1
    other = next(attention for attention in outcome.maps if attention.name == "decoder.layers.0.cross_attention")
    assert (other.weights[:, 0].max(-1) < 1).all()


@pytest.mark.parametrize("name", [CROSS, "decoder.layers.0.self_attention", "encoder.layers.0.self_attention"])
def test_a_cut_head_is_a_zero_in_its_part_of_the_output_projection(words, name):
    task, source, _ = words
    outcome = what_if(task, source, [], [Cut(name, 1)], words=False)
    zeroed = copy.copy(task)
    zeroed.model = copy.deepcopy(task.model)
    module = zeroed.model.get_submodule(name)
    assert isinstance(module, MultiHead)
    with torch.no_grad():
        module.output.weight[:, module.size // module.heads :] = 0  # the second of two heads
    expected = what_if(zeroed, source, [], [])
    assert outcome.hypothesis.tokens == expected.hypothesis.tokens
    assert outcome.hypothesis.log_prob == pytest.approx(expected.hypothesis.log_prob, abs=1e-4)
    assert outcome.hypothesis.log_prob != pytest.approx(what_if(task, source, [], []).hypothesis.log_prob, abs=1e-6)
    cut = next(attention for attention in outcome.maps if attention.name == name)
    assert not cut.weights[1].any()
    assert cut.weights[0].any()


def test_a_cut_head_stays_cut_while_all_heads_are_turned(words):
    task, source, target = words
    outcome = what_if(task, source, target, [Cut(CROSS, 1), Turn(1, (2,))], words=False)
    attention = next(attention for attention in outcome.maps if attention.name == CROSS)
    assert not attention.weights[1].any()
    assert attention.weights[0, 1, 2] == 1
    assert outcome.hypothesis.tokens[:1] == target[:1]


def test_a_coverage_penalty_is_kept(pair):
    task, source, target = pair
    covering = copy.copy(task)
    covering.recipe = task.recipe.model_copy(
        update={"decode": task.recipe.decode.with_changes({"coverage_penalty": 0.2})}
    )
    text = task.vocabularies.source.decode(source)
    assert what_if(covering, source, [], []).hypothesis == covering.translate([text])[0].hypotheses[0]
    assert what_if(covering, source, target, [Turn(1, (0,))]).kept == 1


def test_the_model_is_as_before_afterwards(pair):
    task, source, target = pair
    text = task.vocabularies.source.decode(source)
    before = task.translate([text])
    what_if(task, source, target, [Turn(1, (0,)), Cut(over_source(task)[0], 0)])
    assert task.translate([text]) == before


@pytest.mark.parametrize(
    ("intervention", "sentence"),
    [
        (Cut("decoder.nothing", 0), "no attention called 'decoder.nothing'"),
        (Cut(CROSS, 2), "head 2 was asked for, and there are 2"),
        (Turn(0, (0,), "encoder.layers.0.self_attention"), "no attention to the source called"),
        (Turn(99, (0,)), "step 99 was asked for"),
        (Turn(0, (99,)), "count from 0"),
        (Turn(0, ()), "count from 0"),
    ],
)
def test_what_is_not_there_is_refused_in_a_sentence(words, intervention, sentence):
    with pytest.raises(UserError, match=sentence):
        what_if(*words, [intervention])


def test_the_end_can_be_turned_too(words):
    task, source, _ = words
    target = own_target(task, source)
    outcome = what_if(task, source, target, [Turn(len(target), (len(source),))], words=False)
    assert outcome.hypothesis.tokens[: len(target)] == target
    cross = next(attention for attention in outcome.maps if attention.name == CROSS)
    assert cross.weights[0, len(target)].tolist() == [0.0] * len(source) + [1.0]
    assert EOS not in outcome.hypothesis.tokens
