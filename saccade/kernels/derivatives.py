"""Higher derivatives of hand-written autograd functions: computed by a reference in torch, or refused, never silently left out."""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import torch
from torch import Tensor


def first_derivative_only(backward: Callable[..., Any]) -> Callable[..., Any]:
    """A `backward` that raises when it is to be differentiated again.

    Torch's `once_differentiable` does so only for `backward()`; `torch.autograd.grad` silently drops the missing terms.
    """

    @wraps(backward)
    def guarded(ctx: Any, *gradients: Any) -> Any:
        if torch.is_grad_enabled():  # create_graph=True
            raise RuntimeError(
                "this function has a first derivative only, and create_graph=True asks for higher ones: leave it out"
            )
        return backward(ctx, *gradients)

    return guarded


def gradients_by_torch(
    reference: Callable[..., Tensor], inputs: Sequence[Tensor], gradient: Tensor, wanted: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """The gradients of a kernel by its reference in torch, so that they can be differentiated again."""
    with torch.enable_grad():
        # one may be computed from another: each gets its own partial derivative
        inputs = [x.view_as(x) for x in inputs]
        output = reference(*inputs)
    differentiated = [x for x, is_wanted in zip(inputs, wanted, strict=False) if is_wanted]
    gradients = iter(torch.autograd.grad(output, differentiated, gradient, create_graph=torch.is_grad_enabled()))
    return tuple(next(gradients) if is_wanted else None for _, is_wanted in zip(inputs, wanted, strict=False))
