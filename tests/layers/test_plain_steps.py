"""Steps by arithmetic alone: the numbers of the modules, for every kind of layer they are for, and never when somebody looks."""

from itertools import product

import pytest
import torch

from saccade.attention import record_attention
from saccade.attention.intervening import change_attention, cut
from saccade.layers.plain_steps import weights_stay
from saccade.models import transformer
from saccade.models.shapes import Shapes

KINDS = list(product(("pre", "post"), ("sinusoidal", "learned", "rotary"), ("relu", "gelu", "gated")))


def a_model(**settings):
    torch.manual_seed(0)
    config = transformer.Config(layers=2, width=16, heads=2, feed_forward=24, **settings)
    model = transformer.build(config, Shapes(source_words=11, target_words=13)).eval()
    for parameter in model.parameters():  # norms and biases that do something
        torch.nn.init.normal_(parameter, std=0.3)
    return model


@torch.no_grad()
def logits_of(model, steps=5, watched=()):
    """All logits of a search that reorders, repeats and drops hypotheses; of the steps `watched` the modules' way is taken."""
    torch.manual_seed(1)
    state = model.start(model.encode(torch.randint(1, 11, (3, 6)), torch.tensor([6, 2, 4])))
    state, found = model.select(state, torch.arange(3).repeat_interleave(2)), []
    for number in range(steps):
        token = torch.randint(1, 13, (6 if number < 3 else 4,))
        if number in watched:
            with record_attention(model):
                logits, state = model.step(token, state)
        else:
            logits, state = model.step(token, state)
        found.append(logits)
        rows = (
            torch.tensor([1, 1, 3, 2, 5, 4])
            if number < 2
            else torch.tensor([0, 1, 5, 4] if number == 2 else [3, 2, 0, 1])
        )
        state = model.select(state, rows)
    return torch.cat(found)


@pytest.mark.parametrize(("norm", "positions", "activation"), KINDS, ids=map("-".join, KINDS))
def test_the_numbers_are_those_of_the_modules(norm, positions, activation):
    model = a_model(norm=norm, positions=positions, activation=activation)
    expected = logits_of(model, watched=range(5))
    torch.testing.assert_close(logits_of(model), expected)
    torch.testing.assert_close(logits_of(model, watched=(1, 3)), expected)  # both leave the same state
    kept = {}
    for _ in range(2):
        with weights_stay(kept):
            torch.testing.assert_close(logits_of(model), expected)


def plain_steps_of(model):
    return model.start(model.encode(torch.ones(1, 3, dtype=torch.long), torch.tensor([3]))).plain


def test_it_is_taken_where_nothing_learns_and_everything_is_as_published():
    with torch.no_grad():
        plain = plain_steps_of(model := a_model())
        assert plain.may_be_taken()
        with record_attention(model):
            assert not plain.may_be_taken()
        assert plain_steps_of(a_model(score="general")) is None
        assert plain_steps_of(a_model().train()) is None
        listened, dropping = a_model(), a_model(dropout=0.2)
        listened.decoder.layers[1].feed_forward.register_forward_hook(lambda module, inputs, output: 0 * output)
        dropping.decoder.layers[0].feed_forward.dropout.train()
        assert plain_steps_of(listened) is None
        assert plain_steps_of(dropping) is None
    assert plain_steps_of(a_model()) is None  # somebody may want a gradient


@torch.no_grad()
def test_a_change_of_attention_is_obeyed_at_every_step():
    model = a_model()
    state = model.start(model.encode(torch.ones(1, 3, dtype=torch.long), torch.tensor([3])))
    before, _ = model.step(torch.tensor([1]), state)
    with change_attention(model, {"decoder.layers.1.cross_attention": cut([0])}):
        during, _ = model.step(torch.tensor([1]), state)
    after, _ = model.step(torch.tensor([1]), state)
    assert not torch.allclose(before, during, atol=1e-3)
    torch.testing.assert_close(before, after)


@torch.no_grad()
def test_weights_that_change_between_two_searches_are_read_again():
    model = a_model()
    before = logits_of(model)
    model.decoder.layers[0].self_attention.query.weight.mul_(2)
    after = logits_of(model)
    assert not torch.allclose(before, after, atol=1e-3)
    torch.testing.assert_close(after, logits_of(model, watched=range(5)))


@torch.no_grad()
def test_where_weights_stay_they_are_read_once_and_only_there():
    model, kept = a_model(), {}
    before = logits_of(model)
    with weights_stay(kept):
        first = plain_steps_of(model)
        assert plain_steps_of(model) is first
    assert plain_steps_of(model) is not first
    model.decoder.layers[0].self_attention.query.weight.mul_(2)
    with weights_stay(kept):
        torch.testing.assert_close(logits_of(model), before)  # what was promised not to change is not looked at again
    after = logits_of(model)
    assert not torch.allclose(before, after, atol=1e-3)
    with weights_stay({}):
        torch.testing.assert_close(logits_of(model), after)


@torch.no_grad()
def test_whoever_listens_to_the_output_layer_is_heard_where_weights_stay():
    model = a_model()
    model.output.register_forward_hook(lambda module, inputs, output: 0 * output)
    with weights_stay({}):
        assert not logits_of(model).any()


@torch.no_grad()
def test_whoever_listens_to_the_decoders_last_norm_is_heard():
    model = a_model(norm="pre")
    model.decoder.norm.register_forward_hook(lambda module, inputs, output: 0 * output)
    assert plain_steps_of(model) is None
    assert torch.equal(logits_of(model), model.output.bias.expand_as(logits_of(model)))
