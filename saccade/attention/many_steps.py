"""A product that a loop takes at every step: the gradient of its matrix from all steps at once.

    yₜ = xₜ M + b          M: Σₜ xₜᵀ gₜ = [x₁; x₂; …]ᵀ [g₁; g₂; …]          b: Σₜ gₜ          xₜ: gₜ Mᵀ

Left alone, a recurrent network multiplies xₜᵀ gₜ and adds it to a sum as large as M at every step of its way back. Here a step only puts
xₜ and gₜ aside; one long product follows after the last of them. It is known when that is: each step takes a ticket that depends on M, and
the ticket's own gradient comes after those of all who hold it.

Axis legend: N rows of all steps, S rows of M, D columns of M.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from saccade.attention import row_kernel
from saccade.attention.derivatives import first_derivative_only

_Aside = dict[int, list[tuple[Tensor, Tensor]]]  # xₜ and gₜ of each backward pass that goes on


def over_many_steps(matrix: Tensor, bias: Tensor | None = None) -> Callable[[Tensor], Tensor]:
    """x (..., rows, S) → x @ matrix + bias, for a matrix (S, D), or without bias one per row (B, S, D); made once, called at every step.

    While learning on a CPU it has a first derivative only, and none of `torch.func`'s kinds; autocast must be as it was made under.
    """
    if not pays(matrix):
        return lambda x: _product(x, matrix, bias)
    aside: _Aside = {}
    ticket = _Ticket.apply(matrix, bias, aside)
    constants = matrix.detach(), None if bias is None else bias.detach()
    return lambda x: _Product.apply(x, *constants, ticket, aside)


def _product(x: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
    if bias is None and not torch.is_grad_enabled() and row_kernel.can_compute(x, matrix):
        return row_kernel.product(x, matrix)
    return x @ matrix if bias is None else F.linear(x, matrix.mT, bias)


def forget_after(now: int, kept: dict[int, Any]) -> None:
    """What a pass keeps goes at its end: one that asks for other gradients does not come to the ticket, which would take it."""

    def forget() -> None:
        kept.pop(now, None)

    torch.autograd.Variable._execution_engine.queue_callback(forget)


def pays(learned: Tensor) -> bool:
    """Whether to gather the gradient of what every step uses."""
    return torch.is_grad_enabled() and learned.requires_grad and is_plain(learned)


def is_plain(x: Tensor) -> bool:
    """On a CPU, and computed with as it stands here: neither compiled nor in another precision."""
    return x.device.type == "cpu" and not torch.is_autocast_enabled("cpu") and not torch.compiler.is_compiling()


class _Product(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Tensor, bias: Tensor | None, ticket: Tensor, aside: _Aside) -> Tensor:
        ctx.save_for_backward(x, matrix)
        ctx.aside = aside
        return _product(x, matrix, bias)

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, matrix = ctx.saved_tensors
        now = current_pass()
        if now not in ctx.aside:
            ctx.aside[now] = []
            forget_after(now, ctx.aside)
        ctx.aside[now].append((x.detach(), gradient))  # with its history it would hold itself
        of_x = None
        if ctx.needs_input_grad[0]:
            small = row_kernel.can_compute(gradient, matrix)
            of_x = row_kernel.product_turned(gradient, matrix) if small else gradient @ matrix.mT
        return of_x, None, None, gradient.new_zeros(()), None


class _Ticket(Function):
    @staticmethod
    def forward(ctx: Any, matrix: Tensor, bias: Tensor | None, aside: _Aside) -> Tensor:
        ctx.aside, ctx.axes = aside, matrix.dim()
        return matrix.new_zeros(())

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None]:
        taken = ctx.aside.pop(current_pass())
        x, g = (torch.cat([_rows(each, ctx.axes) for each in part], -2) for part in zip(*taken, strict=True))
        return x.mT @ g, g.sum(0) if ctx.needs_input_grad[1] else None, None  # (S, N) @ (N, D), (D,)


def _rows(x: Tensor, axes: int) -> Tensor:
    return x.flatten(0, -2) if axes == 2 else x


def current_pass() -> int:
    """The number of the backward pass that goes on."""
    return int(torch._C._current_graph_task_id())
