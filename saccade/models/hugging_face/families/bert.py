"""BERT, and MiniLM, which is one."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from saccade.errors import UserError
from saccade.models.hugging_face.folder import Names, Pretrained, require_gelu
from saccade.models.hugging_face.text_encoders import LAYERS, in_our_names, pretrained

_NAMES: Names = (
    *LAYERS,
    (r"^pooler\.dense\.", "classes.dense."),
    (r"^classifier\.", "classes.output."),
    (r"^cls\.predictions\.transform\.dense\.", "words.dense."),
    (r"^cls\.predictions\.transform\.LayerNorm\.", "words.norm."),
    (r"^cls\.predictions\.bias$", "words.output.bias"),
)
_UNUSED = r"position_ids$|^cls\.predictions\.decoder\.|^cls\.seq_relationship\."


def read(directory: Path, settings: Mapping[str, Any], tensors: dict[str, Tensor]) -> Pretrained:
    ours = in_our_names(tensors, "bert", _NAMES, _UNUSED)
    return pretrained(directory, settings, config_of(directory, settings), ours)


def config_of(directory: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The values of our config."""
    require_gelu(directory, settings.get("hidden_act", "gelu"))
    kind = settings.get("position_embedding_type", "absolute")
    if kind != "absolute" or settings.get("is_decoder"):
        what = "writes (is_decoder)" if kind == "absolute" else f"has positions of the kind {kind!r}"
        raise UserError(f"{directory} holds a model that {what}: only encoders with absolute positions can be read")
    return {
        "layers": settings.get("num_hidden_layers", 12),
        "width": settings.get("hidden_size", 768),
        "heads": settings.get("num_attention_heads", 12),
        "feed_forward": settings.get("intermediate_size", 3072),
        "max_length": settings.get("max_position_embeddings", 512),
        "segments": settings.get("type_vocab_size", 2),
        "dropout": float(settings.get("hidden_dropout_prob", 0.1)),
        "norm_epsilon": float(settings.get("layer_norm_eps", 1e-12)),
    }
