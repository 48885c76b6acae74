"""Llama: rotary positions, RMS norms, a gated feed-forward layer, no biases, few heads of keys. SmolLM and TinyLlama are such."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from saccade.errors import UserError
from saccade.models import gpt
from saccade.models.hugging_face.folder import Names, Pretrained, renamed
from saccade.models.shapes import Shapes

NAMES: Names = (
    (r"^model\.", ""),
    (r"^embed_tokens\.", "embedding."),
    (r"\.input_layernorm\.", ".attention_norm."),
    (r"\.post_attention_layernorm\.", ".feed_forward_norm."),
    (r"\.self_attn\.q_proj\.", ".self_attention.query."),
    (r"\.self_attn\.k_proj\.", ".self_attention.key."),
    (r"\.self_attn\.v_proj\.", ".self_attention.value."),
    (r"\.self_attn\.o_proj\.", ".self_attention.output."),
    (r"\.mlp\.gate_proj\.", ".feed_forward.gate."),
    (r"\.mlp\.up_proj\.", ".feed_forward.expand."),
    (r"\.mlp\.down_proj\.", ".feed_forward.contract."),
    (r"^lm_head\.", "output."),
)
_PLAIN = {"attention_bias": False, "mlp_bias": False, "hidden_act": "silu"}


def read(directory: Path, settings: Mapping[str, Any], tensors: dict[str, Tensor]) -> Pretrained:
    for name, usual in _PLAIN.items():
        if settings.get(name, usual) != usual:
            raise UserError(f"{directory} holds a Llama with {name} = {settings[name]}: only {usual} can be read")
    rope = settings.get("rope_scaling") or settings.get("rope_parameters") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise UserError(
            f"{directory} holds a Llama whose rotary positions are scaled ({kind}): only plain ones can be read"
        )
    width, heads = settings["hidden_size"], settings["num_attention_heads"]
    if settings.get("head_dim", width // heads) != width // heads:
        raise UserError(
            f"{directory} holds a Llama with head_dim {settings['head_dim']}: only hidden_size / heads, {width // heads}, can be read"
        )
    ours = renamed(
        {name: tensor for name, tensor in tensors.items() if not name.endswith("rotary_emb.inv_freq")}, NAMES
    )
    tied = bool(settings.get("tie_word_embeddings", False))
    if tied:
        ours.pop("output.weight", None)
    config = gpt.Config.model_validate(
        {
            "layers": settings["num_hidden_layers"],
            "width": width,
            "heads": heads,
            "key_heads": settings.get("num_key_value_heads") or heads,
            "feed_forward": settings["intermediate_size"],
            "context": settings.get("max_position_embeddings", 2048),
            "positions": "rotary",
            "rotary_base": float(rope.get("rope_theta", settings.get("rope_theta", 10000.0))),
            "activation": "gated",
            "norm": "rms",
            "norm_epsilon": float(settings.get("rms_norm_eps", 1e-6)),
            "query_key_norm": False,
            "biases": False,
            "tied": tied,
            "initial": "small",
        }
    )
    words = len(ours["embedding.weight"])
    return Pretrained(directory, "gpt", config, Shapes(source_words=words, target_words=words), ours)
