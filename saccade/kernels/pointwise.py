"""Functions of single numbers or vectors with hand-written gradients: autograd's own take several passes over memory for each.

    squared_relu(x)              max(x, 0)²
    turned(x, cos, sin)          rotary positions: x cos + (x with its halves exchanged) sin, where sin is - sin in the left half
    rms_norm(x, gain, epsilon)   x / √(mean x² + ε) · gain

Reference: the same formulas, by torch (layers/feed_forward.py, attention/positions.py, nn.RMSNorm). Gain: 1.07 times in training a
GPT of 4 × 128 with all three (benchmarks/language.py).
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from saccade.kernels.derivatives import first_derivative_only


def can_compute(x: Tensor) -> bool:
    """Where autograd would record, outside of compilation, autocast and torch.func."""
    return (
        x.requires_grad
        and torch.is_grad_enabled()
        and not torch.compiler.is_compiling()
        and not torch.is_autocast_enabled(x.device.type)
        and not torch._C._are_functorch_transforms_active()
    )


def squared_relu(x: Tensor) -> Tensor:
    return _SquaredRelu.apply(x)


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x (..., N, D), cos and sin (N, D), whose halves are equal but for the sign of sin"""
    return _Turned.apply(x, cos, sin)


def rms_norm(x: Tensor, gain: Tensor, epsilon: float) -> Tensor:
    """x (..., D), gain (D,)"""
    return _RmsNorm.apply(x, gain, epsilon)


class _SquaredRelu(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        positive = x.clamp_min(0)
        ctx.save_for_backward(positive)
        return positive * positive

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (positive,) = ctx.saved_tensors
        return torch.mul(gradient, positive).mul_(2)


class _Turned(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _turn(x, cos, sin)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        cos, sin = ctx.saved_tensors
        return _Turned.apply(gradient, cos, sin.neg()), None, None  # turned back; linear, so it has all derivatives


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    left, right = x.chunk(2, dim=-1)
    half = cos.shape[-1] // 2
    output = x * cos
    output[..., :half].addcmul_(right, sin[..., :half])
    output[..., half:].addcmul_(left, sin[..., half:])
    return output


class _RmsNorm(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, epsilon: float) -> Tensor:
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        scale = length.square_().div_(x.shape[-1]).add_(epsilon).rsqrt_()
        normed = x * scale
        ctx.save_for_backward(normed, scale, gain)
        return normed * gain

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        normed, scale, gain = ctx.saved_tensors
        product = gradient * normed
        of_gain = product.sum(tuple(range(product.dim() - 1)))
        mean = torch.matmul(product, gain).unsqueeze(-1).div_(len(gain))
        return (gradient * gain).addcmul_(normed, mean, value=-1).mul_(scale), of_gain, None
