"""Models that forecast, beside implementations that nobody here wrote."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge as TheirRidge
from torch import nn

from saccade.models import dlinear, itransformer, patchtst, ridge, witnesses
from saccade.models.shapes import Shapes, WindowShape

WINDOW = WindowShape(variables=3, look_back=30, horizon=6)


def built(module, window=WINDOW, **settings):
    torch.manual_seed(0)
    return module.build(module.Config(**settings), Shapes(window=window)).eval()


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_patchtst_equals_hugging_faces_with_its_weights(norm):
    transformers = pytest.importorskip("transformers")
    theirs = transformers.PatchTSTForPrediction(
        transformers.PatchTSTConfig(
            num_input_channels=3, context_length=30, prediction_length=6, patch_length=8, patch_stride=4, num_hidden_layers=2,
            d_model=16, num_attention_heads=2, ffn_dim=32, pre_norm=norm == "pre", positional_encoding_type="random",
            pooling_type=None, scaling="std", norm_type="batchnorm", loss="mse",
        )
    )  # fmt: skip
    for module in theirs.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    theirs.eval()
    ours = built(patchtst, patch=8, stride=4, layers=2, width=16, heads=2, feed_forward=32, norm=norm)
    model, named = theirs.model, dict(theirs.model.named_modules())
    pairs = {ours.embed: named["encoder.embedder.input_embedding"], ours.output: theirs.head.projection}
    for place, layer in enumerate(ours.layers):
        other = named[f"encoder.layers.{place}"]
        own = layer.self_attention
        for name in ("query", "key", "value"):
            pairs[getattr(own, name)] = getattr(other.self_attn, f"{name[0]}_proj")
        pairs |= {
            own.output: other.self_attn.out_proj,
            layer.around_self_attention.norm: other.norm_sublayer1.batchnorm,
        }
        pairs |= {layer.feed_forward.expand: other.ff[0], layer.feed_forward.contract: other.ff[3]}
        pairs[layer.around_feed_forward.norm] = other.norm_sublayer3.batchnorm
    for own, other in pairs.items():
        own.load_state_dict(other.state_dict())
    ours.positions.data = model.encoder.positional_encoder.position_enc.data.clone()
    values = torch.randn(4, 30, 3) * 5 + 7
    with torch.no_grad():
        wanted = theirs(past_values=values).prediction_outputs
        torch.testing.assert_close(ours(values)[..., 0], wanted, atol=1e-4, rtol=1e-4)


def test_the_inverted_transformer_is_torchs_encoder_over_variables():
    ours = built(itransformer, layers=2, width=16, heads=2, feed_forward=32, dropout=0.0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, activation="gelu", batch_first=True)
    theirs = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    for own, other in zip(ours.layers, theirs.layers, strict=True):
        attention = own.self_attention
        parts = (attention.query, attention.key, attention.value)
        other.self_attn.in_proj_weight.data = torch.cat([part.weight for part in parts])
        other.self_attn.in_proj_bias.data = torch.cat([part.bias for part in parts])
        other.self_attn.out_proj.load_state_dict(attention.output.state_dict())
        other.linear1.load_state_dict(own.feed_forward.expand.state_dict())
        other.linear2.load_state_dict(own.feed_forward.contract.state_dict())
    values = torch.randn(2, 30, 3) * 4 - 1
    mean, deviation = values.mean(1, keepdim=True), (values.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt()
    with torch.no_grad():
        read = theirs(ours.embed(((values - mean) / deviation).transpose(1, 2)))
        wanted = ours.output(ours.norm(read)).transpose(1, 2) * deviation + mean
        torch.testing.assert_close(ours(values)[..., 0], wanted, atol=1e-5, rtol=1e-4)


def test_dlinear_adds_a_line_through_the_trend_and_one_through_the_rest():
    ours = built(dlinear, average=5)
    values = torch.randn(2, 30, 3)
    padded = np.pad(values.numpy(), ((0, 0), (2, 2), (0, 0)), mode="edge")
    trend = np.stack([padded[:, start : start + 30] for start in range(5)]).mean(0)
    with torch.no_grad():
        of_trend = torch.from_numpy(trend).transpose(1, 2) @ ours.trend.weight.T + ours.trend.bias
        of_rest = (values - torch.from_numpy(trend)).transpose(1, 2) @ ours.output.weight.T + ours.output.bias
        torch.testing.assert_close(ours(values)[..., 0], (of_trend + of_rest).transpose(1, 2), atol=1e-5, rtol=1e-4)


def windows_of(rows, look_back, steps):
    places = range(look_back, len(rows) - steps + 1)
    values = torch.tensor(np.stack([rows[place - look_back : place] for place in places]))
    return values, torch.tensor(np.stack([rows[place : place + steps] for place in places]))


def test_ridge_solves_what_scikit_learn_solves():
    rows = np.random.default_rng(0).normal(size=(60, 3)).cumsum(0).astype(np.float32)
    values, after = windows_of(rows, 8, 2)
    ours = built(ridge, WindowShape(3, 8, 2), penalty=3.0)
    ours.fit([(values[:20], after[:20]), (values[20:], after[20:])], [])
    differences = (values[:, :-1] - values[:, -1:]).transpose(1, 2).flatten(0, 1).numpy()
    wanted = (after - values[:, -1:]).transpose(1, 2).flatten(0, 1).numpy()
    theirs = TheirRidge(alpha=3.0, fit_intercept=False).fit(differences, wanted)
    np.testing.assert_allclose(ours.weight.T, theirs.coef_, atol=1e-4)


def test_ridge_of_the_same_day_never_sees_what_it_tells():
    rows = np.random.default_rng(0).normal(size=(80, 4)).astype(np.float32)
    values = torch.tensor(np.stack([rows[place : place + 2] for place in range(79)]))
    ours = built(ridge, WindowShape(4, 2, 1, same_day=True), penalty=2.0)
    ours.fit([(values, values[:, -1:])], [(values, values[:, -1:])])
    features = values.flatten(1).numpy()
    theirs = TheirRidge(alpha=2.0).fit(np.delete(features, 5, 1), features[:, 5])
    told = ours(values)[:, 0, 1, 0].numpy()
    np.testing.assert_allclose(told, theirs.predict(np.delete(features, 5, 1)), atol=1e-4)
    values[:, -1, 1] = 99.0
    np.testing.assert_allclose(ours(values)[:, 0, 1, 0].numpy(), told, atol=1e-5)


def test_a_witness_is_no_witness_of_itself_and_weights_are_what_they_seem():
    from saccade.attention import record_attention

    ours = built(witnesses, WindowShape(3, 1, 1, same_day=True), heads=1)
    values = torch.tensor([[[1.0, 2.0, 4.0]]])
    with record_attention(ours) as recorded, torch.no_grad():
        told = ours(values)[0, 0, :, 0]
    weights = recorded.joined("attention")[0, 0]
    assert torch.diagonal(weights).abs().max() == 0
    torch.testing.assert_close(told, (weights @ values[0, 0]) * ours.slope[:, 0, 0] + ours.offset[:, 0])


@pytest.mark.parametrize("module", [dlinear, itransformer, patchtst, ridge, witnesses])
def test_a_window_is_forecast_alone_as_in_a_batch(module):
    settings = {} if module is not patchtst else {"patch": 8, "stride": 4}
    ours, values = built(module, **settings), torch.randn(5, 30, 3)
    with torch.no_grad():
        together = ours(values)
        assert together.shape == (5, 6, 3, 1)
        torch.testing.assert_close(ours(values[2:3]), together[2:3], atol=1e-5, rtol=1e-4)
