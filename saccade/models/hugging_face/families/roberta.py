"""RoBERTa: a BERT that counts positions from the one after its padding token's id."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from saccade.models.hugging_face.families import bert
from saccade.models.hugging_face.folder import Names, Pretrained
from saccade.models.hugging_face.text_encoders import LAYERS, in_our_names, pretrained

_NAMES: Names = (
    *LAYERS,
    (r"^classifier\.dense\.", "classes.dense."),
    (r"^classifier\.out_proj\.", "classes.output."),
    (r"^lm_head\.dense\.", "words.dense."),
    (r"^lm_head\.layer_norm\.", "words.norm."),
    (r"^lm_head\.bias$", "words.output.bias"),
)


def read(directory: Path, settings: Mapping[str, Any], tensors: dict[str, Tensor]) -> Pretrained:
    ours = in_our_names(tensors, "roberta", _NAMES, r"position_ids$|^lm_head\.decoder\.|^pooler\.")
    config, first = bert.config_of(directory, settings), int(settings.get("pad_token_id", 1)) + 1
    ours["embed.positions.table"] = ours["embed.positions.table"][first:]
    config["max_length"] -= first
    return pretrained(directory, settings, config, ours)
