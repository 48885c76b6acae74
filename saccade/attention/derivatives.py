"""Gradients that have no gradients of their own."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch


def first_derivative_only(backward: Callable[..., Any]) -> Callable[..., Any]:
    """A way back that refuses to be differentiated again.

    Torch's `once_differentiable` says so only to `backward()`; `torch.autograd.grad` leaves out what goes through it without a word.
    """

    @wraps(backward)
    def guarded(ctx: Any, *gradients: Any) -> Any:
        if torch.is_grad_enabled():  # create_graph=True
            raise RuntimeError(
                "this is computed by a function that has a first derivative only, and create_graph=True asks for more: leave it out"
            )
        return backward(ctx, *gradients)

    return guarded
