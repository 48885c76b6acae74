"""A product that a loop takes at every step: the gradient of its matrix from all steps at once.

    yₜ = xₜ M + b          M: Σₜ xₜᵀ gₜ = [x₁; x₂; …]ᵀ [g₁; g₂; …]          b: Σₜ gₜ          xₜ: gₜ Mᵀ

Autograd multiplies xₜᵀ gₜ and adds it to a sum of the size of M at every step. Here the backward of a step only saves xₜ and gₜ; one long
product follows after the last of them. When that is, a ticket tells: each step depends on it and it depends on M, so its own backward
runs after those of all steps.

Reference: x @ M + b.
Gain of `over_many_steps`: lost in noise (0.99 and 1.04 times in training, two looks, multi30k-de-en-rnn); hidden_layer.py needs the rest.

Axis legend: N rows of all steps, S rows of M, D columns of M.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from saccade.kernels.derivatives import first_derivative_only

_Saved = dict[int, list[tuple[Tensor, Tensor]]]  # xₜ and gₜ by the number of the backward pass


def over_many_steps(matrix: Tensor, bias: Tensor | None = None) -> Callable[[Tensor], Tensor]:
    """x (..., rows, S) → x @ matrix + bias, for a matrix (S, D), or without bias one per row (B, S, D); made once, called at every step.

    In training on a CPU it has first derivatives only, none of `torch.func`; autocast must be as when it was made.
    """
    if not pays(matrix):
        return lambda x: _product(x, matrix, bias)
    saved: _Saved = {}
    ticket = _Ticket.apply(matrix, bias, saved)
    constants = matrix.detach(), None if bias is None else bias.detach()
    return lambda x: _Product.apply(x, *constants, ticket, saved)


def pays(learned: Tensor) -> bool:
    """Whether to gather the gradient of a tensor that every step uses."""
    return torch.is_grad_enabled() and learned.requires_grad and is_plain(learned)


def is_plain(x: Tensor) -> bool:
    """On a CPU, not being compiled, and not under autocast."""
    return x.device.type == "cpu" and not torch.is_autocast_enabled("cpu") and not torch.compiler.is_compiling()


def current_pass() -> int:
    """The number of the backward pass that is running."""
    return int(torch._C._current_graph_task_id())


def drop_after_pass(number: int, saved: dict[int, Any]) -> None:
    """Drop what a pass saved at its end: a pass for other gradients never reaches the ticket, which would take it."""

    def drop() -> None:
        saved.pop(number, None)

    torch.autograd.Variable._execution_engine.queue_callback(drop)


class _Product(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Tensor, bias: Tensor | None, ticket: Tensor, saved: _Saved) -> Tensor:
        ctx.save_for_backward(x, matrix)
        ctx.saved = saved
        return _product(x, matrix, bias)

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, matrix = ctx.saved_tensors
        number = current_pass()
        if number not in ctx.saved:
            ctx.saved[number] = []
            drop_after_pass(number, ctx.saved)
        ctx.saved[number].append((x.detach(), gradient))  # with its history it would be a reference cycle
        x_gradient = gradient @ matrix.mT if ctx.needs_input_grad[0] else None
        return x_gradient, None, None, gradient.new_zeros(()), None


class _Ticket(Function):
    @staticmethod
    def forward(ctx: Any, matrix: Tensor, bias: Tensor | None, saved: _Saved) -> Tensor:
        ctx.saved, ctx.axes = saved, matrix.dim()
        return matrix.new_zeros(())

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None]:
        steps = zip(*ctx.saved.pop(current_pass()), strict=True)
        x, g = (torch.cat([_rows(part, ctx.axes) for part in parts], -2) for parts in steps)
        return x.mT @ g, g.sum(0) if ctx.needs_input_grad[1] else None, None  # (S, N) @ (N, D), (D,)


def _product(x: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
    return x @ matrix if bias is None else F.linear(x, matrix.mT, bias)


def _rows(x: Tensor, axes: int) -> Tensor:
    return x.flatten(0, -2) if axes == 2 else x
