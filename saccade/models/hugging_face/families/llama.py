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


def why_not(config: gpt.Config) -> str:
    """What keeps a model of ours from being a Llama; nothing if it is one."""
    wanted = {"positions": "rotary", "norm": "rms", "activation": "gated", "query_key_norm": False, "biases": False}
    return ", ".join(
        f"model.{name} is {getattr(config, name)}" for name, value in wanted.items() if getattr(config, name) != value
    )


def written(model: gpt.GPT) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Its config.json and its tensors, in their words."""
    config = model.config
    settings = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": model.embedding.num_embeddings,
        "max_position_embeddings": config.context,
        "hidden_size": config.width,
        "intermediate_size": config.hidden,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.key_heads or config.heads,
        "head_dim": config.width // config.heads,
        "hidden_act": "silu",
        "rms_norm_eps": config.norm_epsilon,
        "rope_theta": config.rotary_base,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": config.tied,
    }
    ours = {
        name: tensor.detach()
        for name, tensor in model.state_dict().items()
        if not config.tied or name != "output.weight"
    }
    return settings, renamed(ours, _BACK)


_BACK: Names = (
    (r"^embedding\.", "model.embed_tokens."),
    (r"^norm\.", "model.norm."),
    (r"^layers\.", "model.layers."),
    (r"\.attention_norm\.", ".input_layernorm."),
    (r"\.feed_forward_norm\.", ".post_attention_layernorm."),
    (r"\.self_attention\.query\.", ".self_attn.q_proj."),
    (r"\.self_attention\.key\.", ".self_attn.k_proj."),
    (r"\.self_attention\.value\.", ".self_attn.v_proj."),
    (r"\.self_attention\.output\.", ".self_attn.o_proj."),
    (r"\.feed_forward\.gate\.", ".mlp.gate_proj."),
    (r"\.feed_forward\.expand\.", ".mlp.up_proj."),
    (r"\.feed_forward\.contract\.", ".mlp.down_proj."),
    (r"^output\.", "lm_head."),
)
