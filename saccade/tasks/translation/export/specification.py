"""Our Transformer as CTranslate2 describes one.

ours                                       CTranslate2
query, key, value of self-attention        one linear layer, stacked in that order
key, value of cross-attention              one linear layer
gated feed-forward silu(V x) ∘ W₁ x         linear_0 = V, linear_0_noact = W₁
positions                                  our own table: its built-in sinusoids are laid out differently
rotary: features k and k + D/2 turn        rotary_interleave = False, in self-attention only
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from saccade.layers.feed_forward import FeedForward, GatedFeedForward
from saccade.layers.transformer import PostNorm
from saccade.models.transformer import Config, Transformer
from saccade.packages import require

POSITIONS = 1024  # rows of a table of sinusoids, or more where the recipe allows longer sentences


def specification(model: Transformer, config: Config, positions: int) -> Any:
    """The model as CTranslate2 describes one. Every tensor is a copy: quantising changes them in place."""
    specs = require("ctranslate2.specs")
    sizes = config.sizes
    activations = {"relu": "RELU", "gelu": "GELU", "gated": "SWISH"}
    options: dict[str, Any] = {
        "pre_norm": config.norm == "pre",
        "activation": specs.Activation[activations[config.activation]],
        "ffn_glu": config.activation == "gated",
    }
    if config.positions == "rotary":
        options |= {"rotary_dim": sizes.width // sizes.heads, "rotary_interleave": False}
    encoder = specs.TransformerEncoderSpec(sizes.layers, sizes.heads, **options)
    decoder = specs.TransformerDecoderSpec(sizes.layers, sizes.heads, **options)
    for spec, layer in zip(encoder.layer, model.encoder.layers, strict=True):
        _self_attention(spec.self_attention, layer)
        _feed_forward(spec.ffn, layer)
    for spec, layer in zip(decoder.layer, model.decoder.layers, strict=True):
        _self_attention(spec.self_attention, layer)
        _cross_attention(spec.attention, layer)
        _feed_forward(spec.ffn, layer)
    encoder.embeddings[0].weight = _copy(model.source_embedding.weight)
    decoder.embeddings.weight = _copy(model.target_embedding.weight)
    _linear(decoder.projection, model.output)
    for spec, stack, table in (
        (encoder, model.encoder, model.source_positions),
        (decoder, model.decoder, model.target_positions),
    ):
        if config.norm == "pre":
            _norm(spec.layer_norm, stack.norm)
        if table is not None:
            rows = config.max_length if config.positions == "learned" else max(positions, POSITIONS)
            spec.position_encodings.encodings = _copy(table(rows))
    whole = specs.TransformerSpec(encoder, decoder)
    whole.config.layer_norm_epsilon = _epsilon(model)
    return whole


def _self_attention(spec: Any, layer: Any) -> None:
    attention = layer.self_attention
    _around(spec, layer.around_self_attention)
    _linear(spec.linear[0], attention.query, attention.key, attention.value)
    _linear(spec.linear[1], attention.output)


def _cross_attention(spec: Any, layer: Any) -> None:
    attention = layer.cross_attention
    _around(spec, layer.around_cross_attention)
    _linear(spec.linear[0], attention.query)
    _linear(spec.linear[1], attention.key, attention.value)
    _linear(spec.linear[2], attention.output)


def _feed_forward(spec: Any, layer: Any) -> None:
    feed_forward: FeedForward = layer.feed_forward
    _around(spec, layer.around_feed_forward)
    if isinstance(feed_forward, GatedFeedForward):
        _linear(spec.linear_0, feed_forward.gate)
        _linear(spec.linear_0_noact, feed_forward.expand)
    else:
        _linear(spec.linear_0, feed_forward.expand)
    _linear(spec.linear_1, feed_forward.contract)


def _around(spec: Any, around: PostNorm) -> None:
    _norm(spec.layer_norm, around.norm)


def _norm(spec: Any, norm: Any) -> None:
    spec.gamma, spec.beta = _copy(norm.weight), _copy(norm.bias)


def _linear(spec: Any, *layers: nn.Linear) -> None:
    spec.weight = _copy(torch.cat([layer.weight for layer in layers]))
    spec.bias = _copy(torch.cat([layer.bias for layer in layers]))


def _copy(tensor: Tensor) -> np.ndarray[Any, Any]:
    copied: np.ndarray[Any, Any] = tensor.detach().float().cpu().clone().numpy()
    return copied


def _epsilon(model: nn.Module) -> float:
    (epsilon,) = {module.eps for module in model.modules() if isinstance(module, nn.LayerNorm)}
    return epsilon
