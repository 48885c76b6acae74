"""Image classifiers in Hugging Face's format, as models of ours: config.json and model.safetensors of a ViT or Swin in a local folder.

    saccade.load("vit-base-patch16-224").predict(["photo.jpg"])      with everything that a run of ours can do
    model, labels = from_hugging_face("vit-base-patch16-224")        the bare model

The numbers are the same (see the tests); a class token and its position, which are only ever added, become one tensor. One thing differs
on purpose: where a Swin's grid is no multiple of its window, or one side of it fits into the window, theirs lets padding take weight and
drops the shift of both sides, and ours does not.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from saccade.data.image_shape import ImageShape
from saccade.errors import UserError
from saccade.files import read_text
from saccade.models import swin, vit
from saccade.models.shapes import Shapes

Names = tuple[tuple[str, str], ...]  # a pattern in their names, and what it is in ours; applied in order

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
_VIT: Names = ((r"^vit\.encoder\.layer\.", "layers."), *_LAYER)
_SWIN: Names = (
    (r"^swin\.encoder\.layers\.(\d+)\.blocks\.", r"stages.\1.layers."),
    (r"\.attention\.self\.relative_position_bias_table$", ".self_attention.offset_bias"),
    (r"^swin\.embeddings\.norm\.", "embed_norm."),
    *_LAYER,
)
_UNUSED = re.compile(r"relative_position_index$|mask_token$|\.pooler\.")


@dataclass(frozen=True)
class Pretrained:
    """What stands in such a folder, in our words."""

    directory: Path
    name: str  # of our model
    config: vit.Config | swin.Config
    image: ImageShape
    labels: tuple[str, ...]  # the names of the classes in order
    tensors: dict[str, Tensor]

    def fill(self, model: nn.Module) -> None:
        """Gives the weights to a model of this name, config, image and number of classes."""
        try:
            model.load_state_dict(_with_zero_biases(self.tensors, model.state_dict()))
        except RuntimeError as error:
            raise _does_not_fit(self.directory, error) from None


def is_hugging_face(directory: Path) -> bool:
    """Whether this is a folder of theirs, and no run of ours."""
    return (directory / "config.json").is_file() and not (directory / "config.yaml").exists()


def from_hugging_face(directory: str | Path) -> tuple[vit.VisionTransformer | swin.Swin, tuple[str, ...]]:
    """The model, ready to predict, and the names of its classes in order."""
    found = read(Path(directory))
    config, shapes = found.config, Shapes(image=found.image, classes=len(found.labels))
    if isinstance(config, vit.Config):
        model: vit.VisionTransformer | swin.Swin = vit.build(config, shapes)
    else:
        model = swin.build(config, shapes)
    found.fill(model)
    return model.eval(), found.labels


def read(directory: Path) -> Pretrained:
    settings = _settings(directory / "config.json")
    kind = settings.get("model_type")
    if kind not in ("vit", "swin"):
        raise UserError(
            f"{directory} is no run of `saccade train`, and its config.json describes a model of type {kind!r}: "
            "of Hugging Face's, only ViT and Swin classifiers can be read"
        )
    tensors = _tensors(directory / "model.safetensors")
    if "classifier.weight" not in tensors:
        raise UserError(
            f"{directory} holds no classifier, only the layers before it: choose a model trained on classes"
        )
    classes = len(tensors["classifier.weight"])
    try:
        image = _image(settings)
        config, ours = _vit(settings, tensors, image) if kind == "vit" else _swin(settings, tensors)
    except (RuntimeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise _does_not_fit(directory, error) from None
    given = settings.get("id2label")
    names = given if isinstance(given, dict) else {}
    labels = _told_apart([str(names.get(str(number)) or number) for number in range(classes)])
    return Pretrained(directory, kind, config, image, labels, ours)


def _told_apart(names: Sequence[str]) -> tuple[str, ...]:
    """A name that stands for two classes (ImageNet's crane is a bird and a machine) gets the number of each after the first."""
    return tuple(f"{name} ({number})" if name in names[:number] else name for number, name in enumerate(names))


def _does_not_fit(directory: Path, error: Exception) -> UserError:
    said = str(error).replace("\n", " ")
    return UserError(f"{directory / 'model.safetensors'} does not fit its config.json ({said}): copy both again")


def _vit(
    settings: Mapping[str, Any], tensors: dict[str, Tensor], image: ImageShape
) -> tuple[vit.Config, dict[str, Tensor]]:
    config = vit.Config.model_validate(
        {
            "patch": _side(settings, "patch_size", 16),
            "layers": settings.get("num_hidden_layers", 12),
            "width": settings.get("hidden_size", 768),
            "heads": settings.get("num_attention_heads", 12),
            "feed_forward": settings.get("intermediate_size", 3072),
            "dropout": float(settings.get("hidden_dropout_prob", 0)),
            "norm_epsilon": settings.get("layer_norm_eps", 1e-12),
        }
    )
    token, positions = tensors.pop("vit.embeddings.cls_token"), tensors.pop("vit.embeddings.position_embeddings")[0]
    ours = _renamed(tensors, _VIT)
    ours["pooling.token"] = token[0, 0] + positions[0]
    grid = image.rows // config.patch, image.columns // config.patch
    ours["positions.table"] = positions[1:].reshape(*grid, config.width)
    return config, ours


def _swin(settings: Mapping[str, Any], tensors: dict[str, Tensor]) -> tuple[swin.Config, dict[str, Tensor]]:
    if settings.get("use_absolute_embeddings"):
        raise UserError(
            "this Swin adds absolute positions (use_absolute_embeddings), which ours has not: choose another"
        )
    ratio, epsilon = settings.get("mlp_ratio", 4.0), settings.get("layer_norm_eps", swin.EPSILON)
    if ratio != int(ratio) or epsilon != swin.EPSILON:
        raise UserError(
            f"this Swin has mlp_ratio {ratio} and layer_norm_eps {epsilon}: only whole ratios and {swin.EPSILON} can be read"
        )
    config = swin.Config(
        patch=_side(settings, "patch_size", 4),
        width=settings.get("embed_dim", 96),
        layers=tuple(settings.get("depths", (2, 2, 6, 2))),
        heads=tuple(settings.get("num_heads", (3, 6, 12, 24))),
        window=settings.get("window_size", 7),
        expansion=int(ratio),
        dropout=float(settings.get("hidden_dropout_prob", 0)),
        stochastic_depth=float(settings.get("drop_path_rate", 0.1)),
    )
    ours = {}
    for name, tensor in _renamed(tensors, _SWIN).items():
        merge = re.fullmatch(r"swin\.encoder\.layers\.(\d+)\.downsample\.(norm|reduction)\.(.*)", name)
        if merge:  # theirs ends a stage, ours begins the next
            part = "norm" if merge[2] == "norm" else "reduce"
            name = f"stages.{int(merge[1]) + 1}.merge.{part}.{merge[3]}"
        ours[name] = tensor
    return config, ours


def _renamed(tensors: Mapping[str, Tensor], names: Names) -> dict[str, Tensor]:
    ours = {}
    for name, tensor in tensors.items():
        for pattern, ours_name in names:
            name = re.sub(pattern, ours_name, name)
        ours[name] = tensor.flatten(1) if name == "embed.project.weight" else tensor  # a convolution without overlap
    return ours


def _with_zero_biases(tensors: dict[str, Tensor], expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """With qkv_bias = false their projections have no bias: adding 0 is the same."""
    absent = [name for name in expected if re.search(r"self_attention\.(query|key|value)\.bias$", name)]
    return {name: torch.zeros_like(expected[name]) for name in absent} | tensors


def _image(settings: Mapping[str, Any]) -> ImageShape:
    size = settings.get("image_size", 224)
    rows, columns = (size, size) if isinstance(size, int) else size
    return ImageShape(settings.get("num_channels", 3), rows, columns)


def _side(settings: Mapping[str, Any], name: str, default: int) -> int:
    size = settings.get(name, default)
    sides = {size} if isinstance(size, int) else set(size)
    if len(sides) > 1:
        raise UserError(f"this model has {name} {size}: only square patches can be read")
    return int(sides.pop())


def _settings(path: Path) -> dict[str, Any]:
    try:
        settings = json.loads(read_text(path))
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): give the folder of a Hugging Face model") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON ({error}): copy the model again") from None
    if not isinstance(settings, dict):
        raise UserError(f"{path} is not the settings of a model but {str(settings)[:40]}: copy the model again")
    if settings.get("hidden_act", "gelu") != "gelu":
        raise UserError(f"{path} asks for the activation {settings['hidden_act']!r}: only gelu can be read")
    return settings


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        tensors = load_file(path)
    except FileNotFoundError:
        raise UserError(
            f"{path} is missing: only safetensors are read, in one file, never pickles such as pytorch_model.bin; convert them first"
        ) from None
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} cannot be read ({error}): copy the model again") from None
    return {name: tensor for name, tensor in tensors.items() if not _UNUSED.search(name)}
