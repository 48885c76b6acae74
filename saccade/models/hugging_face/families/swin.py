"""Swin. One thing differs on purpose: where its grid is no multiple of its window, or one side of it fits into the window, theirs lets
padding take weight and drops the shift of both sides, and ours does not."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from saccade.errors import UserError
from saccade.models import swin
from saccade.models.hugging_face.folder import Names, Pretrained, class_names, require_gelu
from saccade.models.hugging_face.images import image_shape, in_our_names, require_classifier, side
from saccade.models.shapes import Shapes

_NAMES: Names = (
    (r"^swin\.encoder\.layers\.(\d+)\.blocks\.", r"stages.\1.layers."),
    (r"\.attention\.self\.relative_position_bias_table$", ".self_attention.offset_bias"),
    (r"^swin\.embeddings\.norm\.", "embed_norm."),
)


def read(directory: Path, settings: Mapping[str, Any], tensors: dict[str, Tensor]) -> Pretrained:
    require_gelu(directory, settings.get("hidden_act", "gelu"))
    classes, image = require_classifier(directory, tensors), image_shape(settings)
    config = _config(settings)
    ours = {}
    for name, tensor in in_our_names(tensors, _NAMES).items():
        merge = re.fullmatch(r"swin\.encoder\.layers\.(\d+)\.downsample\.(norm|reduction)\.(.*)", name)
        if merge:  # theirs ends a stage, ours begins the next
            part = "norm" if merge[2] == "norm" else "reduce"
            name = f"stages.{int(merge[1]) + 1}.merge.{part}.{merge[3]}"
        ours[name] = tensor
    return Pretrained(
        directory, "swin", config, Shapes(image=image, classes=classes), ours, class_names(settings, classes)
    )


def _config(settings: Mapping[str, Any]) -> swin.Config:
    if settings.get("use_absolute_embeddings"):
        raise UserError(
            "this Swin adds absolute positions (use_absolute_embeddings), which ours has not: choose another"
        )
    ratio, epsilon = settings.get("mlp_ratio", 4.0), settings.get("layer_norm_eps", swin.EPSILON)
    if ratio != int(ratio) or epsilon != swin.EPSILON:
        raise UserError(
            f"this Swin has mlp_ratio {ratio} and layer_norm_eps {epsilon}: only whole ratios and {swin.EPSILON} can be read"
        )
    return swin.Config(
        patch=side(settings, "patch_size", 4),
        width=settings.get("embed_dim", 96),
        layers=tuple(settings.get("depths", (2, 2, 6, 2))),
        heads=tuple(settings.get("num_heads", (3, 6, 12, 24))),
        window=settings.get("window_size", 7),
        expansion=int(ratio),
        dropout=float(settings.get("hidden_dropout_prob", 0)),
        stochastic_depth=float(settings.get("drop_path_rate", 0.1)),
    )
