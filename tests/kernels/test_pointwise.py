"""Functions with hand-written gradients, beside torch's own."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from saccade.attention import Rotary
from saccade.attention.routes import RMSNorm
from saccade.kernels import pointwise


def inputs(*shape: int) -> torch.Tensor:
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return made.requires_grad_()


def test_gradients_are_right():
    cos, sin = (torch.randn(5, 2, dtype=torch.float64) for _ in range(2))
    cos, sin = torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)
    gain = inputs(4)
    assert torch.autograd.gradcheck(pointwise.squared_relu, inputs(3, 5))
    assert torch.autograd.gradcheck(lambda x: pointwise.turned(x, cos, sin), inputs(2, 3, 5, 4))
    assert torch.autograd.gradgradcheck(lambda x: pointwise.turned(x, cos, sin), inputs(1, 5, 4))
    assert torch.autograd.gradcheck(lambda x, g: pointwise.rms_norm(x, g, 1e-5), (inputs(3, 5, 4), gain))


def test_values_are_those_of_torch():
    x = inputs(2, 3, 5, 8)
    torch.testing.assert_close(pointwise.squared_relu(x), F.relu(x).square())
    norm, theirs = RMSNorm(8, eps=1e-5).double(), nn.RMSNorm(8, eps=1e-5).double()
    torch.testing.assert_close(norm(x), theirs(x))
    assert pointwise.can_compute(x)
    assert not pointwise.can_compute(x.detach())
    rotary = Rotary(8)
    torch.testing.assert_close(rotary(x, 3), rotary(x.detach(), 3))


def test_a_second_derivative_is_refused_where_there_is_none():
    x = inputs(3)
    with pytest.raises(RuntimeError, match="first derivative only"):
        torch.autograd.grad(pointwise.squared_relu(x).sum(), x, create_graph=True)
