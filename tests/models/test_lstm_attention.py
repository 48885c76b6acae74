"""The LSTM classifiers: against torch's own parts, and a text alone gives what it gives in a batch."""

import pytest
import torch
from torch.nn import functional as F

from saccade.attention import record_attention
from saccade.models import lstm_attention
from saccade.models.shapes import Shapes
from saccade.views.axes import Tokens

LENGTHS = torch.tensor([9, 4, 1])
TOKENS = torch.randint(1, 30, (3, 9), generator=torch.Generator().manual_seed(1))
VARIANTS = [
    {},
    {"directions": "forward", "layers": 2, "score": "additive"},
    {"attention": "structured", "looks": 3, "penalty": 0.5},
    {"attention": "none", "directions": "forward"},
]


def built(**more) -> lstm_attention.LstmAttention:
    torch.manual_seed(0)
    config = lstm_attention.Config(embedding=6, hidden=8, **more)
    return lstm_attention.build(config, Shapes(source_words=30, classes=3)).eval()


@pytest.mark.parametrize("more", VARIANTS, ids=str)
def test_a_text_alone_gives_what_it_gives_in_a_batch(more):
    model = built(**more)
    together = model(TOKENS, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        alone = model(TOKENS[row : row + 1, :length], LENGTHS[row : row + 1])
        torch.testing.assert_close(alone[0], together[row])
    other = TOKENS.clone()
    other[1, 4:] = 7
    torch.testing.assert_close(model(other, LENGTHS), together)


def test_the_lectures_layer_is_torchs_attention_and_a_mean():
    model = built(directions="forward")
    h, _ = model.lstm.network(model.embed(TOKENS[:1]))
    context = F.scaled_dot_product_attention(h, h, h)
    expected = model.output(torch.cat((h, context), -1).mean(1))
    torch.testing.assert_close(model(TOKENS[:1], LENGTHS[:1]), expected)


def test_structured_attention_is_lins_equation():
    model = built(attention="structured", looks=3)
    h, _ = model.lstm(model.embed(TOKENS[:1]), LENGTHS[:1])
    weights = torch.softmax(model.look.queries @ torch.tanh(h @ model.look.key.weight.T).mT, -1)
    torch.testing.assert_close(model(TOKENS[:1], LENGTHS[:1]), model.output((weights @ h).flatten(1)))


def test_words_are_chosen_by_as_many_features_as_are_asked_for():
    small, large = (built(attention="structured", looks=3, attention_hidden=size) for size in (5, 11))
    for model, size in ((small, 5), (large, 11)):
        h, _ = model.lstm(model.embed(TOKENS[:1]), LENGTHS[:1])
        hidden = torch.tanh(h @ model.look.key.weight.T)
        assert hidden.shape[-1] == model.look.queries.shape[-1] == size
        weights = torch.softmax(model.look.queries @ hidden.mT, -1)
        torch.testing.assert_close(model(TOKENS[:1], LENGTHS[:1]), model.output((weights @ h).flatten(1)))


def test_looks_at_the_same_words_cost_something():
    model = built(attention="structured", looks=2, penalty=2.0, dropout=0.0, embedding_dropout=0.0)
    with record_attention(model) as maps:
        model(TOKENS, LENGTHS)
    weights = maps.joined("look.attention")
    expected = 2 * (weights @ weights.mT - torch.eye(2)).square().sum((1, 2))
    model.train()
    torch.testing.assert_close(model.read(TOKENS, LENGTHS)[1], expected)
    assert model.eval().read(TOKENS, LENGTHS)[1] is None


def test_padding_is_never_looked_at():
    for more in VARIANTS[:3]:
        model = built(**more)
        with record_attention(model) as maps:
            model(TOKENS, LENGTHS)
        weights = maps.joined("look.attention")
        assert weights[1, ..., 4:].abs().max() == 0
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))


def test_what_stands_along_its_attention_is_said():
    text = Tokens(("a", "b"))
    assert built().attention_axes("look.attention", {"text": text}) == (text, text)
    queries, keys = built(attention="structured", looks=2).attention_axes("look.attention", {"text": text})
    assert (queries.words, keys) == (("[look 1]", "[look 2]"), text)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"hidden": 7}, "hidden 7 must be even"),
        ({"looks": 2}, "looks = 2 is for attention=structured"),
        ({"attention": "none", "score": "additive"}, 'score = "additive" is for attention=self'),
    ],
    ids=str,
)
def test_settings_that_fit_nothing_are_refused(settings, said):
    with pytest.raises(ValueError, match=said):
        lstm_attention.Config(**settings)
