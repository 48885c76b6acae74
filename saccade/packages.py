"""The packages of other engines are asked for when they are needed: nobody who does not export has to install them."""

from importlib import import_module
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
