"""GPT-2: learned positions, biases, tied embeddings; its matrices stand transposed, and those of queries, keys and values in one."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
