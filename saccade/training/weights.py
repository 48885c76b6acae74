"""Tensors of a model and its optimisers, by name: out of them, into them, and in safetensors files with a checksum.

Nothing is ever unpickled. A file that is half-written or has a flipped bit is recognised by its checksum.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from saccade.errors import UserError
from saccade.files import replacing

DAMAGE = (SafetensorError, ValueError, KeyError, TypeError, OSError)
"""What `read_tensors` raises for a damaged file."""

_ABOUT = "saccade"  # the one key of the file's metadata: several would stand in a random order


def own_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and saved buffers by name, each once: of tied weights only the first name."""
    saved = model.state_dict(keep_vars=True)
    named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {name: tensor for name, tensor in named.items() if name in saved}


@torch.no_grad()
def put_tensors(model: nn.Module, tensors: Mapping[str, Tensor], origin: str) -> None:
    """Copies saved tensors into the model; names and shapes must be just the model's own."""
    own = own_tensors(model)
    wrong = set(own) ^ set(tensors) or {name for name in own if own[name].shape != tensors[name].shape}
    if wrong:
        raise UserError(
            f"{origin} does not fit the model of its config.yaml: {', '.join(sorted(wrong)[:3])} differ; train it anew"
        )
    for name, tensor in own.items():
        tensor.copy_(tensors[name])


def optimizer_tensors(
    optimizer: torch.optim.Optimizer, names: Mapping[nn.Parameter, str]
) -> Iterator[tuple[str, Tensor]]:
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            yield f"{names[cast(nn.Parameter, parameter)]}.{key}", value


def put_optimizer_tensors(
    optimizer: torch.optim.Optimizer, names: Mapping[nn.Parameter, str], tensors: Mapping[str, Tensor]
) -> None:
    by_name = {name: parameter for parameter, name in names.items()}
    for full, tensor in tensors.items():
        name, key = full.rsplit(".", 1)
        if name in by_name:
            optimizer.state[by_name[name]][key] = tensor.to(by_name[name].device, copy=True)


def below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those whose name begins with the prefix, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def write_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Replaces the file, or leaves it as it was. `about` is written beside the tensors."""
    plain = {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}
    metadata = {_ABOUT: json.dumps({**about, "checksum": _checksum(plain)})}
    with replacing(path) as aside:
        try:
            save_file(plain, aside, metadata)
        except SafetensorError as error:  # a full disk, most often
            raise OSError(str(error)) from error


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors, and what was written beside them."""
    with safe_open(path, framework="pt") as file:
        about: dict[str, Any] = json.loads((file.metadata() or {})[_ABOUT])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    if about.pop("checksum") != _checksum(tensors):
        raise ValueError("its checksum is wrong")
    return tensors, about


def _checksum(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
