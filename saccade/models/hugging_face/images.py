"""What the families of image classifiers share."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from saccade.data.image_shape import ImageShape
from saccade.errors import UserError
from saccade.models.hugging_face.folder import Names, renamed

_LAYER: Names = (
    (r"\.attention\.(?:attention|self)\.(query|key|value)\.", r".self_attention.\1."),
    (r"\.attention\.output\.dense\.", ".self_attention.output."),
    (r"\.intermediate\.dense\.", ".feed_forward.expand."),
    (r"\.output\.dense\.", ".feed_forward.contract."),
    (r"\.layernorm_before\.", ".around_self_attention.norm."),
    (r"\.layernorm_after\.", ".around_feed_forward.norm."),
    (r"^classifier\.", "output."),
    (r"^\w+\.layernorm\.", "norm."),
    (r"^\w+\.embeddings\.patch_embeddings\.projection\.", "embed.project."),
)
_UNUSED = re.compile(r"relative_position_index$|mask_token$|\.pooler\.")


def require_classifier(directory: Path, tensors: Mapping[str, Tensor]) -> int:
    """How many classes it has."""
    if "classifier.weight" not in tensors:
        raise UserError(
            f"{directory} holds no classifier, only the layers before it: choose a model trained on classes"
        )
    return len(tensors["classifier.weight"])


def in_our_names(tensors: Mapping[str, Tensor], names: Names) -> dict[str, Tensor]:
    ours = renamed({name: tensor for name, tensor in tensors.items() if not _UNUSED.search(name)}, (*names, *_LAYER))
    ours["embed.project.weight"] = ours["embed.project.weight"].flatten(1)  # a convolution without overlap
    return ours


def image_shape(settings: Mapping[str, Any]) -> ImageShape:
    size = settings.get("image_size", 224)
    rows, columns = (size, size) if isinstance(size, int) else size
    return ImageShape(settings.get("num_channels", 3), rows, columns)


def side(settings: Mapping[str, Any], name: str, default: int) -> int:
    size = settings.get(name, default)
    sides = {size} if isinstance(size, int) else set(size)
    if len(sides) > 1:
        raise UserError(f"this model has {name} {size}: only square patches can be read")
    return int(sides.pop())
