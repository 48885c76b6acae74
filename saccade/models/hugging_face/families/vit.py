"""ViT. Its class token and that token's position, which are only ever added, become one tensor."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from saccade.models import vit
from saccade.models.hugging_face.folder import Names, Pretrained, class_names, require_gelu
from saccade.models.hugging_face.images import image_shape, in_our_names, require_classifier, side
from saccade.models.shapes import Shapes

_NAMES: Names = ((r"^vit\.encoder\.layer\.", "layers."),)


def read(directory: Path, settings: Mapping[str, Any], tensors: dict[str, Tensor]) -> Pretrained:
    require_gelu(directory, settings.get("hidden_act", "gelu"))
    classes, image = require_classifier(directory, tensors), image_shape(settings)
    config = vit.Config.model_validate(
        {
            "patch": side(settings, "patch_size", 16),
            "layers": settings.get("num_hidden_layers", 12),
            "width": settings.get("hidden_size", 768),
            "heads": settings.get("num_attention_heads", 12),
            "feed_forward": settings.get("intermediate_size", 3072),
            "dropout": float(settings.get("hidden_dropout_prob", 0)),
            "norm_epsilon": settings.get("layer_norm_eps", 1e-12),
        }
    )
    token, positions = tensors.pop("vit.embeddings.cls_token"), tensors.pop("vit.embeddings.position_embeddings")[0]
    ours = in_our_names(tensors, _NAMES)
    ours["pooling.token"] = token[0, 0] + positions[0]
    grid = image.rows // config.patch, image.columns // config.patch
    ours["positions.table"] = positions[1:].reshape(*grid, config.width)
    return Pretrained(
        directory, "vit", config, Shapes(image=image, classes=classes), ours, class_names(settings, classes)
    )
