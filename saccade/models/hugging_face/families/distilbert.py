"""DistilBERT: a BERT without segments (they are 0 here) whose classes are read through a ReLU."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from saccade.errors import UserError
from saccade.models.hugging_face.folder import Names, Pretrained, require_gelu
from saccade.models.hugging_face.text_encoders import in_our_names, pretrained

_NAMES: Names = (
    (r"^transformer\.layer\.", "layers."),
    (r"\.attention\.q_lin\.", ".self_attention.query."),
    (r"\.attention\.k_lin\.", ".self_attention.key."),
    (r"\.attention\.v_lin\.", ".self_attention.value."),
    (r"\.attention\.out_lin\.", ".self_attention.output."),
    (r"\.sa_layer_norm\.", ".around_self_attention.norm."),
    (r"\.ffn\.lin1\.", ".feed_forward.expand."),
    (r"\.ffn\.lin2\.", ".feed_forward.contract."),
    (r"\.output_layer_norm\.", ".around_feed_forward.norm."),
    (r"^pre_classifier\.", "classes.dense."),
    (r"^classifier\.", "classes.output."),
    (r"^vocab_transform\.", "words.dense."),
    (r"^vocab_layer_norm\.", "words.norm."),
    (r"^vocab_projector\.bias$", "words.output.bias"),
)


def read(directory: Path, settings: Mapping[str, Any], tensors: dict[str, Tensor]) -> Pretrained:
    require_gelu(directory, settings.get("activation", "gelu"))
    if settings.get("sinusoidal_pos_embds"):
        raise UserError(f"{directory} holds a DistilBERT with sinusoidal positions: only learned ones can be read")
    ours = in_our_names(tensors, "distilbert", _NAMES, r"position_ids$|^vocab_projector\.weight$")
    width = settings.get("dim", 768)
    ours["embed.segments.weight"] = ours["embed.words.weight"].new_zeros(1, width)
    config = {
        "layers": settings.get("n_layers", 6),
        "width": width,
        "heads": settings.get("n_heads", 12),
        "feed_forward": settings.get("hidden_dim", 3072),
        "max_length": settings.get("max_position_embeddings", 512),
        "segments": 1,
        "dropout": float(settings.get("dropout", 0.1)),
        "pooler": "relu",
    }
    return pretrained(directory, settings, config, ours)
