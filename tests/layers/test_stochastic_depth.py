"""Branches that are skipped and scaled, against the layer without either and against numbers known on paper."""

import pytest
import torch

from saccade.attention import MultiHead
from saccade.layers.feed_forward import feed_forward
from saccade.layers.stochastic_depth import DeepEncoderLayer, LayerScale, StochasticDepth, depth_rates
from saccade.layers.transformer import EncoderLayer


def test_an_example_is_skipped_whole_or_scaled_whole():
    torch.manual_seed(0)
    out = StochasticDepth(0.25).train()(torch.ones(4000, 2, 3))
    assert all(len(example.unique()) == 1 for example in out)
    torch.testing.assert_close(out.unique(), torch.tensor([0.0, 4 / 3]))
    assert abs(out.mean() - 1) < 0.03  # five standard errors


def test_nothing_is_skipped_when_predicting_or_at_rate_0():
    x = torch.randn(5, 2)
    assert torch.equal(StochasticDepth(0.9).eval()(x), x)
    assert torch.equal(StochasticDepth(0.0).train()(x), x)


@pytest.mark.parametrize("rate", [-0.1, 1.0])
def test_a_rate_is_a_probability_below_1(rate):
    with pytest.raises(ValueError, match="less than 1"):
        StochasticDepth(rate)


def test_rates_rise_evenly_to_the_last():
    assert depth_rates(0.2, 5) == pytest.approx([0, 0.05, 0.1, 0.15, 0.2])
    assert depth_rates(0.2, 1) == [0.0]


def parts():
    torch.manual_seed(0)
    return MultiHead(8, 2), feed_forward(8, 16, "gelu", 0.0)


def test_without_scale_and_skipping_it_is_the_pre_norm_layer():
    plain, deep = EncoderLayer(*parts(), "pre", 0.0), DeepEncoderLayer(*parts(), 0.0, epsilon=1e-5)
    x = torch.randn(3, 5, 8)
    assert torch.equal(deep(x), plain(x))
    assert not torch.equal(DeepEncoderLayer(*parts(), 0.0, epsilon=1.0)(x), plain(x))


def test_layer_scale_scales_each_branch():
    layer, x = DeepEncoderLayer(*parts(), 0.0, layer_scale=0.5), torch.randn(3, 5, 8)
    normed = layer.around_self_attention.norm(x)
    middle = x + 0.5 * layer.self_attention(normed).context
    expected = middle + 0.5 * layer.feed_forward(layer.around_feed_forward.norm(middle))
    torch.testing.assert_close(layer(x), expected)


def test_layer_scale_is_learned_per_feature():
    scale = LayerScale(3, 0.1)
    scale(torch.tensor([[1.0, 2.0, 3.0]])).sum().backward()
    torch.testing.assert_close(scale.gamma.grad, torch.tensor([1.0, 2.0, 3.0]))


def test_a_layer_skipped_in_training_passes_its_input_on():
    torch.manual_seed(0)
    layer, x = DeepEncoderLayer(*parts(), 0.0, depth_rate=0.5).train(), torch.randn(64, 5, 8)
    untouched = (layer(x) == x).flatten(1).all(1).float().mean()
    assert 0.05 < untouched < 0.5  # both branches are skipped for a quarter of the examples
