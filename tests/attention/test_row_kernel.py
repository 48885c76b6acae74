"""The product of a row with a matrix of its own, against torch's batched one in double precision."""

import pytest
import torch

from saccade.attention import compiled, row_kernel
from saccade.attention.many_steps import over_many_steps

pytestmark = pytest.mark.skipif(compiled.kernels() is None, reason="nothing was compiled here")


@pytest.mark.parametrize("batch", [0, 1, 3])
@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("columns", [8, 32, 40, 104])
def test_both_products_are_torchs(batch, rows, columns):
    matrix = torch.randn(batch, rows, columns)
    x, turned = torch.randn(batch, 1, rows), torch.randn(columns, batch, 1).movedim(0, 2)
    expected = x.double() @ matrix.double(), turned.double() @ matrix.double().mT
    found = row_kernel.product(x, matrix), row_kernel.product_turned(turned, matrix)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.shape == theirs.shape
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-5, atol=1e-5)


def test_what_does_not_fit_is_left_to_torch():
    matrix = torch.randn(2, 3, 8)
    assert row_kernel.can_compute(torch.randn(2, 1, 3), matrix)
    assert not row_kernel.can_compute(torch.randn(2, 2, 3), matrix)
    assert not row_kernel.can_compute(torch.randn(1, 1, 3), matrix)
    assert not row_kernel.can_compute(torch.randn(2, 3), matrix[0])
    assert not row_kernel.can_compute(torch.randn(2, 1, 3).double(), matrix.double())
    assert not row_kernel.can_compute(torch.randn(2, 1, 3), matrix[..., :4])
    assert not row_kernel.can_compute(torch.randn(2, 1, 8), matrix.mT.contiguous().mT)


def test_a_loop_over_the_same_matrices_has_torchs_gradients():
    torch.manual_seed(0)
    matrix, start = torch.randn(2, 3, 8, requires_grad=True), torch.randn(2, 1, 3, requires_grad=True)
    back = torch.randn(2, 8, 3)
    answers = []
    for multiply in (over_many_steps(matrix), lambda x: x @ matrix):
        x, seen = start, []
        for _ in range(4):
            seen.append(multiply(x))
            x = torch.tanh(seen[-1] @ back)
        total = torch.stack(seen).square().sum()
        answers.append((total, *torch.autograd.grad(total, (matrix, start))))
    for ours, theirs in zip(*answers, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
