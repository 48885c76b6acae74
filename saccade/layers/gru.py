"""What a GRU does with its gates (Cho 2014), given the input's and the state's part of them: compiled (gru_kernel.c), or by torch.

    r = σ(x_r + h_r)        z = σ(x_z + h_z)        n = tanh(x_n + r ∘ h_n)        h' = (1 - z) ∘ n + z ∘ h

Axis legend: B batch, D features.
"""

import ctypes
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from saccade.attention import compiled

LANES = 8  # floats that the kernel computes with at once


def next_state(from_input: Tensor, from_state: Tensor, state: Tensor) -> Tensor:
    """Both parts of the gates (..., 3 D), the state (..., D) → the state after it (..., D)."""
    given = (from_input, from_state, state)
    if _is_plain(*given) and compiled.can_compute(*given):
        return _Gates.apply(*given)
    return _by_torch(*given)


def _by_torch(from_input: Tensor, from_state: Tensor, state: Tensor) -> Tensor:
    reset_x, update_x, new_x = from_input.chunk(3, dim=-1)
    reset_h, update_h, new_h = from_state.chunk(3, dim=-1)
    reset = torch.sigmoid(reset_x + reset_h)
    update = torch.sigmoid(update_x + update_h)
    new = torch.tanh(new_x + reset * new_h)
    return torch.lerp(new, state, update)  # (1 - z) n + z h


def _is_plain(from_input: Tensor, from_state: Tensor, state: Tensor) -> bool:
    """Rows of as many gates as the state asks for, each in one piece."""
    rows = all(x.dim() == 2 and x.stride(1) == 1 and len(x) == len(state) for x in (from_input, from_state, state))
    return rows and state.shape[1] % LANES == 0 and from_input.shape[1] == from_state.shape[1] == 3 * state.shape[1]


class _Description(ctypes.Structure):
    """`Gates` of gru_kernel.c."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("from_input", "from_state", "state")),
        *((name, ctypes.c_int64) for name in ("input_row", "state_gates_row", "state_row")),
        *((name, ctypes.c_void_p) for name in ("opened", "next", "next_gradient")),
        *((name, ctypes.c_void_p) for name in ("input_gradient", "gates_gradient", "state_gradient")),
        *((name, ctypes.c_int64) for name in ("rows", "features", "backward")),
    )


def _describe(from_input: Tensor, from_state: Tensor, state: Tensor, opened: Tensor) -> _Description:
    given = (from_input, from_state, state)
    described = _Description(*(x.data_ptr() for x in given), *(x.stride(0) for x in given), opened.data_ptr())
    described.rows, described.features = state.shape
    return described


class _Gates(Function):
    @staticmethod
    def forward(ctx: Any, from_input: Tensor, from_state: Tensor, state: Tensor) -> Tensor:
        opened, after = state.new_empty(from_input.shape), state.new_empty(state.shape)
        described = _describe(from_input, from_state, state, opened)
        described.next = after.data_ptr()
        compiled.run("saccade_gru", described)
        ctx.save_for_backward(from_input, from_state, state, opened)
        return after

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        from_input, from_state, state, opened = ctx.saved_tensors
        given = from_input, from_state, state
        if torch.is_grad_enabled() or not compiled.can_compute(gradient):  # to be differentiated again, or many at once
            return compiled.gradients_by_torch(_by_torch, given, gradient, ctx.needs_input_grad)
        gradient = gradient.contiguous()
        gradients = [x.new_empty(x.shape) for x in given]
        described = _describe(from_input, from_state, state, opened)
        described.next_gradient, described.backward = gradient.data_ptr(), 1
        described.input_gradient, described.gates_gradient, described.state_gradient = (x.data_ptr() for x in gradients)
        compiled.run("saccade_gru", described)
        return tuple(gradients)
