"""GPT-2: learned positions, biases, tied embeddings; its matrices stand transposed, and those of queries, keys and values in one.

A model of ours that is one in all but biases is written as one, too: theirs are 0 then.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from saccade.errors import UserError
from saccade.models import gpt
from saccade.models.hugging_face.folder import Names, Pretrained, renamed
from saccade.models.shapes import Shapes

NAMES: Names = (
    (r"^transformer\.", ""),
    (r"^wte\.", "embedding."),
    (r"^wpe\.weight$", "positions.table"),
    (r"^h\.", "layers."),
    (r"\.ln_1\.", ".attention_norm."),
    (r"\.ln_2\.", ".feed_forward_norm."),
    (r"\.attn\.c_proj\.", ".self_attention.output."),
    (r"\.mlp\.c_fc\.", ".feed_forward.expand."),
    (r"\.mlp\.c_proj\.", ".feed_forward.contract."),
    (r"^ln_f\.", "norm."),
    (r"^lm_head\.", "output."),
)
ACTIVATIONS = {"gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh", "gelu": "gelu", "relu": "relu"}
_MASK = re.compile(r"\.attn\.(masked_)?bias$")  # constants that old files have
_TRANSPOSED = re.compile(r"(self_attention\.output|feed_forward\.(expand|contract))\.weight$")


def read(directory: Path, settings: Mapping[str, Any], tensors: dict[str, Tensor]) -> Pretrained:
    for name, usual in (
        ("scale_attn_weights", True),
        ("scale_attn_by_inverse_layer_idx", False),
        ("add_cross_attention", False),
    ):
        if settings.get(name, usual) != usual:
            raise UserError(f"{directory} holds a GPT-2 with {name} = {settings[name]}: only {usual} can be read")
    activation = settings.get("activation_function", "gelu_new")
    if activation not in ACTIVATIONS:
        raise UserError(f"{directory} asks for the activation {activation!r}: {', '.join(ACTIVATIONS)} can be read")
    ours: dict[str, Tensor] = {}
    for name, tensor in renamed(
        {name: tensor for name, tensor in tensors.items() if not _MASK.search(name)}, NAMES
    ).items():
        joined = re.fullmatch(r"(layers\.\d+)\.attn\.c_attn\.(weight|bias)", name)
        if joined is None:
            ours[name] = tensor.mT.contiguous() if _TRANSPOSED.search(name) else tensor
            continue
        for part, own in zip(("query", "key", "value"), tensor.chunk(3, dim=-1), strict=True):
            ours[f"{joined[1]}.self_attention.{part}.{joined[2]}"] = own.mT.contiguous() if own.dim() > 1 else own
    tied = bool(settings.get("tie_word_embeddings", True))
    if tied:
        ours.pop("output.weight", None)
    width = settings.get("n_embd", 768)
    config = gpt.Config.model_validate(
        {
            "layers": settings.get("n_layer", 12),
            "width": width,
            "heads": settings.get("n_head", 12),
            "feed_forward": settings.get("n_inner") or 4 * width,
            "context": settings.get("n_positions", 1024),
            "positions": "learned",
            "activation": ACTIVATIONS[activation],
            "norm": "layer",
            "norm_epsilon": float(settings.get("layer_norm_epsilon", 1e-5)),
            "query_key_norm": False,
            "biases": True,
            "tied": tied,
            "dropout": float(settings.get("resid_pdrop", 0.1)),
            "initial": "small",
        }
    )
    words = len(ours["embedding.weight"])
    return Pretrained(directory, "gpt", config, Shapes(source_words=words, target_words=words), ours)


def why_not(config: gpt.Config) -> str:
    """What keeps a model of ours from being a GPT-2; nothing if it is one."""
    wanted = {"positions": "learned", "norm": "layer", "query_key_norm": False}
    differs = [
        f"model.{name} is {getattr(config, name)}" for name, value in wanted.items() if getattr(config, name) != value
    ]
    if config.activation not in ACTIVATIONS.values():
        differs.append(f"model.activation is {config.activation}")
    if config.key_heads not in (None, config.heads):
        differs.append(f"model.key_heads is {config.key_heads}")
    return ", ".join(differs)


def written(model: gpt.GPT) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Its config.json and its tensors, in their words."""
    config = model.config
    activations = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    settings = {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": model.embedding.num_embeddings,
        "n_positions": config.context,
        "n_embd": config.width,
        "n_layer": config.layers,
        "n_head": config.heads,
        "n_inner": config.hidden,
        "activation_function": activations[config.activation],
        "layer_norm_epsilon": config.norm_epsilon,
        "tie_word_embeddings": config.tied,
        **{f"{part}_pdrop": config.dropout for part in ("resid", "embd", "attn")},
    }
    ours = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    tensors = {}
    for theirs, name in _plain_names(config.layers, config.tied).items():
        tensor = ours[name] if name in ours else _zeros_for(name, ours)
        tensors[theirs] = tensor.T.contiguous() if _TRANSPOSED.search(name) else tensor
    for layer in range(config.layers):
        for kind in ("weight", "bias"):
            names = [f"layers.{layer}.self_attention.{part}.{kind}" for part in ("query", "key", "value")]
            parts = [ours[name] if name in ours else _zeros_for(name, ours) for name in names]
            joined = torch.cat([part.mT if part.dim() > 1 else part for part in parts], -1)
            tensors[f"transformer.h.{layer}.attn.c_attn.{kind}"] = joined.contiguous()
    return settings, tensors


def _plain_names(layers: int, tied: bool) -> dict[str, str]:
    """All tensors but those of queries, keys and values: their names, and ours."""
    inside = {
        "ln_1": "attention_norm",
        "ln_2": "feed_forward_norm",
        "attn.c_proj": "self_attention.output",
        "mlp.c_fc": "feed_forward.expand",
        "mlp.c_proj": "feed_forward.contract",
    }
    names = {"transformer.wte.weight": "embedding.weight", "transformer.wpe.weight": "positions.table"}
    for kind in ("weight", "bias"):
        names[f"transformer.ln_f.{kind}"] = f"norm.{kind}"
        for layer in range(layers):
            names |= {
                f"transformer.h.{layer}.{theirs}.{kind}": f"layers.{layer}.{own}.{kind}"
                for theirs, own in inside.items()
            }
    return names if tied else {**names, "lm_head.weight": "output.weight"}


def _zeros_for(bias: str, ours: Mapping[str, Tensor]) -> Tensor:
    weight = ours[f"{bias.removesuffix('bias')}weight"]
    return weight.new_zeros(len(weight))
