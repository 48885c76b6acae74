"""A product taken at many steps against torch's own gradient of the same loop."""

import gc
import weakref

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from saccade.kernels.many_steps import over_many_steps

STEPS = 4
MATRICES = {"a matrix": (5, 5), "one per row": (3, 5, 5)}


def leaves(shape: tuple[int, ...], with_bias: bool) -> list[torch.Tensor]:
    torch.manual_seed(0)
    shapes = [(3, 2, 5), shape, *([(5,)] if with_bias else [])]
    return [torch.randn(each, dtype=torch.float64).requires_grad_() for each in shapes]


def loop(product, start: torch.Tensor) -> torch.Tensor:
    """A recurrence: every step depends on the one before."""
    states = [start]
    for _ in range(STEPS):
        states.append(torch.tanh(product(states[-1])))
    return torch.stack(states[1:])


def plain(start, matrix, bias=None) -> torch.Tensor:
    return loop(lambda x: x @ matrix + (0 if bias is None else bias), start)


def at_once(start, matrix, bias=None) -> torch.Tensor:
    return loop(over_many_steps(matrix, bias), start)


def equal(got, expected) -> None:
    for mine, other in zip(got, expected, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-12, rtol=0)


CASES = pytest.mark.parametrize(
    ("shape", "with_bias"), [(MATRICES["a matrix"], True), *((shape, False) for shape in MATRICES.values())]
)


@CASES
def test_equals_torchs_own_gradient(shape, with_bias):
    inputs = leaves(shape, with_bias)
    weights = torch.randn(STEPS, 3, 2, 5, dtype=torch.float64)
    ours, theirs = at_once(*inputs), plain(*inputs)
    assert torch.equal(ours, theirs) or torch.allclose(ours, theirs, atol=1e-14)
    equal(torch.autograd.grad(ours, inputs, weights), torch.autograd.grad(theirs, inputs, weights))


@CASES
def test_gradcheck(shape, with_bias):
    assert torch.autograd.gradcheck(at_once, leaves(shape, with_bias))


def test_a_pass_that_asks_for_other_gradients_leaves_nothing_behind():
    inputs = leaves((5, 5), True)
    ours, theirs = at_once(*inputs).sum(), plain(*inputs).sum()
    equal(
        torch.autograd.grad(ours, inputs[:1], retain_graph=True),
        torch.autograd.grad(theirs, inputs[:1], retain_graph=True),
    )
    for again in (True, False):
        equal(
            torch.autograd.grad(ours, inputs, retain_graph=again),
            torch.autograd.grad(theirs, inputs, retain_graph=again),
        )


@pytest.mark.parametrize("ends", ["early", "in an error"])
def test_a_pass_that_does_not_come_to_the_matrix_holds_no_memory(ends):
    held: list[weakref.ref] = []

    class Mark(torch.autograd.Function):
        """Leaves in the graph what can be seen to be gone."""

        @staticmethod
        def forward(ctx, x):
            ctx.mark = type("Marker", (), {})()
            held.append(weakref.ref(ctx.mark))
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    start, matrix = leaves((5, 5), False)
    states = (lambda product: loop(lambda x: Mark.apply(product(x)), start))(over_many_steps(matrix))
    if ends == "early":
        torch.autograd.grad(states.sum(), [start])
    else:
        start.register_hook(lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            torch.autograd.grad(states.sum(), [start])
    del states
    gc.collect()
    assert not any(each() for each in held)


def test_passes_inside_of_each_other_are_told_apart():
    """A reentrant checkpoint runs a backward pass of its own in the middle of the outer one."""
    inputs = leaves((5, 5), True)

    def by(make) -> list[torch.Tensor]:
        product = make(*inputs[1:])
        first = product(inputs[0])
        second = checkpoint(product, torch.tanh(first), use_reentrant=True)
        for each in inputs:
            each.grad = None
        product(torch.tanh(second)).sum().backward()
        return [each.grad.clone() for each in inputs]

    equal(by(over_many_steps), by(lambda matrix, bias: lambda x: x @ matrix + bias))


def test_steps_that_the_loss_does_not_see_do_not_count():
    inputs = leaves((5, 5), False)
    got, expected = (torch.autograd.grad(way(*inputs)[1].sum(), inputs) for way in (at_once, plain))
    equal(got, expected)


def test_frozen_parts_stay_out():
    start, matrix, bias = leaves((5, 5), True)
    bias = bias.detach()
    equal(
        torch.autograd.grad(at_once(start.detach(), matrix, bias).sum(), [matrix]),
        torch.autograd.grad(plain(start.detach(), matrix, bias).sum(), [matrix]),
    )
    frozen = at_once(start, matrix.detach(), bias).sum()
    equal(torch.autograd.grad(frozen, [start]), torch.autograd.grad(plain(start, matrix.detach(), bias).sum(), [start]))


def test_without_gradients_it_is_the_product():
    inputs = leaves((5, 5), True)
    with torch.no_grad():
        product = at_once(*inputs)
    assert not product.requires_grad
    torch.testing.assert_close(product, plain(*inputs).detach())
