"""What stands in such a folder: settings, tensors, and both in our words."""

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

from saccade.config.recipe import Config
from saccade.errors import UserError
from saccade.files import read_text
from saccade.models.shapes import Shapes

Names = tuple[tuple[str, str], ...]  # a pattern in their names, and what it is in ours; applied in order
FOREIGN = (RuntimeError, KeyError, TypeError, ValueError, AttributeError)  # what a folder of other sizes raises


@dataclass(frozen=True)
class Pretrained:
    """What stands in such a folder, in our words."""

    directory: Path
    name: str  # of our model
    config: Config  # of our model
    shapes: Shapes
    tensors: dict[str, Tensor]
    labels: tuple[str, ...] = ()  # the names of the classes in order; none where it is no classifier

    def fill(self, model: nn.Module) -> None:
        """Gives the weights to a model of this name, config and shapes; what belongs to a head that it was built without is left out."""
        expected = model.state_dict()
        parts = {name.partition(".")[0] for name in expected}
        own = {name: tensor for name, tensor in self.tensors.items() if name.partition(".")[0] in parts}
        shared = {name: tensor for name, tensor in expected.items() if name not in _once(model)}  # tied weights
        try:
            model.load_state_dict({**shared, **_with_zero_biases(own, expected)})
        except RuntimeError as error:
            raise does_not_fit(self.directory, error) from None


def does_not_fit(directory: Path, error: Exception) -> UserError:
    said = str(error).replace("\n", " ")
    return UserError(f"{directory / 'model.safetensors'} does not fit its config.json ({said}): copy both again")


def renamed(tensors: Mapping[str, Tensor], names: Names) -> dict[str, Tensor]:
    ours = {}
    for name, tensor in tensors.items():
        for pattern, ours_name in names:
            name = re.sub(pattern, ours_name, name)
        ours[name] = tensor
    return ours


def class_names(settings: Mapping[str, Any], count: int) -> tuple[str, ...]:
    """In order; a name that stands for two classes (ImageNet's crane is a bird and a machine) gets the number of each after the first."""
    known = settings.get("id2label")
    names = known if isinstance(known, dict) else {}
    return _told_apart([str(names.get(str(number)) or number) for number in range(count)])


def require_gelu(directory: Path, activation: object) -> None:
    if activation != "gelu":
        raise UserError(f"{directory / 'config.json'} asks for the activation {activation!r}: only gelu can be read")


def read_settings(path: Path) -> dict[str, Any]:
    try:
        settings = json.loads(read_text(path))
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): give the folder of a Hugging Face model") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON ({error}): copy the model again") from None
    if not isinstance(settings, dict):
        raise UserError(f"{path} is not the settings of a model but {str(settings)[:40]}: copy the model again")
    return settings


def read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except FileNotFoundError:
        raise UserError(
            f"{path} is missing: only safetensors are read, in one file, never pickles such as pytorch_model.bin; convert them first"
        ) from None
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} cannot be read ({error}): copy the model again") from None


def _once(model: nn.Module) -> set[str]:
    """The names of parameters and buffers, of tied ones the first."""
    return {name for name, _ in (*model.named_parameters(), *model.named_buffers())}


def _told_apart(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{name} ({number})" if name in names[:number] else name for number, name in enumerate(names))


def _with_zero_biases(tensors: dict[str, Tensor], expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """With qkv_bias = false their projections have no bias: adding 0 is the same."""
    absent = [name for name in expected if re.search(r"self_attention\.(query|key|value)\.bias$", name)]
    return {name: torch.zeros_like(expected[name]) for name in absent} | tensors
