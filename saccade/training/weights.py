"""Tensors of a model and its optimisers, by name: out of them, into them, and in safetensors files with a checksum.

Nothing is ever unpickled. A file that is half-written or has a flipped bit is recognised by its checksum.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from saccade.errors import UserError
from saccade.files import open_regular, replacing
from saccade.layers.sketch import own_tensors, require_fit

Value = TypeVar("Value")

DAMAGE = (SafetensorError, ValueError, KeyError, TypeError, OSError, MemoryError)
"""What `read_tensors` raises for a damaged file."""

_DIGEST = "digest"
_LONGEST_REASON = 200  # letters
_FLOATS = torch.float32, torch.float64, torch.float16, torch.bfloat16
_DTYPES = frozenset((*_FLOATS, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool))
_ABOUT = "saccade"  # the one key of the file's metadata: several would stand in a random order


@torch.no_grad()
def put_tensors(model: nn.Module, tensors: Mapping[str, Tensor], origin: str) -> None:
    """Copies saved tensors into the model; names and shapes must be just the model's own."""
    own = own_tensors(model)
    require_fit(_shapes(tensors), _shapes(own), origin)
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
            parameter = by_name[name]
            if (tensor.shape, tensor.dtype) not in ((torch.Size(), torch.float32), (parameter.shape, parameter.dtype)):
                raise UserError(
                    f"the saved state has {full} of another shape or kind than its parameter: copy the run again"
                )
            optimizer.state[parameter][key] = tensor.to(parameter.device, copy=True)
    for group in optimizer.param_groups:
        remembered = {frozenset(optimizer.state[one]) for one in group["params"] if one in optimizer.state}
        if len(remembered) > 1:
            raise UserError("the saved state lacks a part of what the optimiser remembers: copy the run again")


def below(prefix: str, tensors: Mapping[str, Value]) -> dict[str, Value]:
    """Those whose name begins with the prefix, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def write_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Replaces the file, or leaves it as it was. `about` is written beside the tensors."""
    plain = {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}
    metadata = {_ABOUT: json.dumps({**about, _DIGEST: _digest(plain, about)})}
    with replacing(path) as aside:
        try:
            save_file(plain, aside, metadata)
        except SafetensorError as error:  # a full disk, most often
            raise OSError(str(error)) from error


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors, and what was written beside them."""
    with _opened(path) as file:
        about = _about(file)
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    if any(tensor.dtype not in _DTYPES for tensor in tensors.values()):
        raise ValueError("it holds numbers of a kind that no training writes")
    # The files of before they had a digest of all that they hold have one of their numbers.
    stored = about.pop(_DIGEST, None)
    is_whole = about.pop("checksum") == _checksum(tensors) if stored is None else stored == _digest(tensors, about)
    if not is_whole:
        raise ValueError("its checksum is wrong")
    return tensors, about


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of the tensors, which are not read."""
    with _opened(path) as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 (not a dict)


def _opened(path: Path) -> Any:
    open_regular(path).close()  # neither a pipe nor a device
    try:
        return safe_open(path, framework="pt")
    except SafetensorError as error:
        raise ValueError(str(error)[:_LONGEST_REASON]) from None  # it may repeat the whole header


def _about(file: Any) -> dict[str, Any]:
    try:
        about = json.loads((file.metadata() or {})[_ABOUT])
    except RecursionError:
        raise ValueError("its description is nested too deeply") from None
    if not isinstance(about, dict):
        raise ValueError("it has no description")
    return about


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def _digest(tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> str:
    """Of everything in the file: names, kinds and shapes of tensors, their numbers, and what was written beside them."""
    kinds = [(name, str(tensors[name].dtype), list(tensors[name].shape)) for name in sorted(tensors)]
    described = json.dumps([about, kinds], sort_keys=True)
    return hashlib.blake2b((described + _checksum(tensors)).encode(), digest_size=16).hexdigest()


def _checksum(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
