"""Decoder steps by the shortcut: the numbers of the modules for every kind of layer, and never while attention is recorded or changed."""

from itertools import product

import pytest
import torch

from saccade.attention import record_attention
from saccade.attention.intervening import change_attention, cut
from saccade.layers.decoder_steps import weights_stay
from saccade.models import transformer
from saccade.models.shapes import Shapes

EVERY_KIND = list(product(("pre", "post"), ("sinusoidal", "learned", "rotary"), ("relu", "gelu", "gated")))
BY_DEFAULT = [("pre", "sinusoidal", "relu"), ("post", "rotary", "gated"), ("pre", "learned", "gelu")]
KINDS = [
    pytest.param(*kind, marks=[] if kind in BY_DEFAULT else pytest.mark.slow, id="-".join(kind)) for kind in EVERY_KIND
]


def a_model(**settings):
    torch.manual_seed(0)
    config = transformer.Config(layers=2, width=16, heads=2, feed_forward=24, **settings)
    model = transformer.build(config, Shapes(source_words=11, target_words=13)).eval()
    for parameter in model.parameters():  # norms and biases that do something
        torch.nn.init.normal_(parameter, std=0.3)
    return model


@torch.no_grad()
def logits_of(model, steps=5, recorded=()):
    """All logits of a search that reorders, repeats and drops hypotheses; the steps in `recorded` go through the modules."""
    torch.manual_seed(1)
    state = model.start(model.encode(torch.randint(1, 11, (3, 6)), torch.tensor([6, 2, 4])))
    state, all_logits = model.select(state, torch.arange(3).repeat_interleave(2)), []
    for number in range(steps):
        token = torch.randint(1, 13, (6 if number < 3 else 4,))
        if number in recorded:
            with record_attention(model):
                logits, state = model.step(token, state)
        else:
            logits, state = model.step(token, state)
        all_logits.append(logits)
        rows = [1, 1, 3, 2, 5, 4] if number < 2 else [0, 1, 5, 4] if number == 2 else [3, 2, 0, 1]
        state = model.select(state, torch.tensor(rows))
    return torch.cat(all_logits)


@pytest.mark.parametrize(("norm", "positions", "activation"), KINDS)
def test_the_numbers_are_those_of_the_modules(norm, positions, activation):
    model = a_model(norm=norm, positions=positions, activation=activation)
    expected = logits_of(model, recorded=range(5))
    torch.testing.assert_close(logits_of(model), expected)
    torch.testing.assert_close(logits_of(model, recorded=(1, 3)), expected)  # both leave the same cache
    prepared = {}
    for _ in range(2):
        with weights_stay(prepared):
            torch.testing.assert_close(logits_of(model), expected)


def shortcut_of(model):
    return model.start(model.encode(torch.ones(1, 3, dtype=torch.long), torch.tensor([3]))).shortcut


def test_the_shortcut_is_for_published_layers_in_eval_mode():
    with torch.no_grad():
        shortcut = shortcut_of(model := a_model())
        assert shortcut.may_be_taken()
        with record_attention(model):
            assert not shortcut.may_be_taken()
        assert shortcut_of(a_model(score="general")) is None
        assert shortcut_of(a_model().train()) is None
        hooked, dropping = a_model(), a_model(dropout=0.2)
        hooked.decoder.layers[1].feed_forward.register_forward_hook(lambda module, inputs, output: 0 * output)
        dropping.decoder.layers[0].feed_forward.dropout.train()
        assert shortcut_of(hooked) is None
        assert shortcut_of(dropping) is None
    assert shortcut_of(a_model()) is None  # gradients are enabled


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
    torch.testing.assert_close(after, logits_of(model, recorded=range(5)))


@torch.no_grad()
def test_where_weights_stay_they_are_read_once_and_only_there():
    model, prepared = a_model(), {}
    before = logits_of(model)
    with weights_stay(prepared):
        first = shortcut_of(model)
        assert shortcut_of(model) is first
    assert shortcut_of(model) is not first
    model.decoder.layers[0].self_attention.query.weight.mul_(2)
    with weights_stay(prepared):
        torch.testing.assert_close(logits_of(model), before)  # what was promised to stay is not read again
    after = logits_of(model)
    assert not torch.allclose(before, after, atol=1e-3)
    with weights_stay({}):
        torch.testing.assert_close(logits_of(model), after)


@torch.no_grad()
def test_a_hook_on_the_output_layer_is_called_where_weights_stay():
    model = a_model()
    model.output.register_forward_hook(lambda module, inputs, output: 0 * output)
    with weights_stay({}):
        assert not logits_of(model).any()


@torch.no_grad()
def test_a_hook_on_the_last_norm_is_called():
    model = a_model(norm="pre")
    model.decoder.norm.register_forward_hook(lambda module, inputs, output: 0 * output)
    assert shortcut_of(model) is None
    assert torch.equal(logits_of(model), model.output.bias.expand_as(logits_of(model)))
