"""What a GRU does with its gates, compiled and by torch, against torch.nn.GRUCell."""

from unittest.mock import patch

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from saccade.attention import compiled
from saccade.layers import gru
from saccade.layers.recurrent import GRUCell

needs_kernel = pytest.mark.skipif(compiled.kernels() is None, reason="nothing was compiled here")


def parts(cell, x, state):
    return nn.functional.linear(x, cell.weight_ih, cell.bias_ih), nn.functional.linear(
        state, cell.weight_hh, cell.bias_hh
    )


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
@pytest.mark.parametrize("size", [5, 8, 24])
def test_the_next_state_and_its_gradients_are_those_of_torchs_cell(size, dtype, error):
    torch.manual_seed(0)
    cell = nn.GRUCell(3, size).to(dtype)
    x, state = (3 * torch.randn(4, n, dtype=dtype) for n in (3, size))
    x.requires_grad_()
    state.requires_grad_()
    gradient = torch.randn(4, size, dtype=dtype)
    found, expected = gru.next_state(*parts(cell, x, state), state), cell(x, state)
    torch.testing.assert_close(found, expected, atol=error, rtol=error)
    wanted = [x, state, *cell.parameters()]
    for ours, theirs in zip(
        torch.autograd.grad(found, wanted, gradient), torch.autograd.grad(expected, wanted, gradient), strict=True
    ):
        torch.testing.assert_close(ours, theirs, atol=error, rtol=error)


@needs_kernel
def test_gates_far_open_or_shut_are_what_torch_says():
    far = torch.tensor(
        [-1e4, -100.0, -90.0, -20.0, -1e-3, 0.0, 1e-3, 20.0, 90.0, 100.0, 1e4, -3e38, 3e38, 1e-30, -1e-30, 0.5]
    )
    from_input = torch.cat((far, far.flip(0), far))[None].requires_grad_()
    from_state, state = torch.randn(1, 48, requires_grad=True), torch.randn(1, 16, requires_grad=True)
    given = (from_input, from_state, state)
    found, expected = gru._Gates.apply(*given), gru._by_torch(*given)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)
    for ours, theirs in zip(
        torch.autograd.grad(found.sum(), given), torch.autograd.grad(expected.sum(), given), strict=True
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)


@needs_kernel
@pytest.mark.parametrize("where", [0, 1, 2])
def test_what_is_no_number_is_not_hidden(where):
    given = [torch.randn(2, 24), torch.randn(2, 24), torch.randn(2, 8)]
    given[where][1, 5] = torch.nan
    assert gru.next_state(*given).isnan().nonzero().tolist() == [[1, 5]]


@needs_kernel
def test_rows_may_stand_apart():
    wide, state = torch.randn(3, 60), torch.randn(3, 8)
    from_input, from_state = wide[:, :24], wide[:, 30:54]
    expected = gru.next_state(from_input.contiguous(), from_state.contiguous(), state)
    assert torch.equal(gru.next_state(from_input, from_state, state), expected)
    assert torch.equal(
        gru.next_state(from_input, from_state, state.t().contiguous().t()), gru._by_torch(from_input, from_state, state)
    )


def test_where_nothing_was_compiled_torch_does_it():
    given = torch.randn(2, 24), torch.randn(2, 24), torch.randn(2, 8)
    with patch.object(compiled, "kernels", lambda: None):
        assert torch.equal(gru.next_state(*given), gru._by_torch(*given))


@needs_kernel
def test_small_arguments_keep_their_digits():
    small = torch.logspace(-8, 0, 24)[None]
    closed, none = torch.full((1, 24), -100.0), torch.zeros(1, 24)  # nothing of the old state stays: h' = tanh(x)
    from_input = torch.cat((none, closed, small), 1)
    found = gru.next_state(from_input, torch.zeros(1, 72), none)
    torch.testing.assert_close(found, torch.tanh(small), rtol=1e-6, atol=0)


@needs_kernel
def test_what_is_saved_may_be_put_elsewhere_or_computed_again_and_differentiated_again():
    given = [torch.randn(2, n, requires_grad=True) for n in (24, 24, 8)]
    expected = torch.autograd.grad(gru._by_torch(*given).square().sum(), given, create_graph=True)
    again = torch.autograd.grad(checkpoint(gru.next_state, *given, use_reentrant=False).square().sum(), given)
    with torch.autograd.graph.saved_tensors_hooks(torch.clone, torch.clone):
        after = gru.next_state(*given).square().sum()
    for found in (again, torch.autograd.grad(after, given)):
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    mine = torch.autograd.grad(gru.next_state(*given).sum(), given, create_graph=True)
    plain = torch.autograd.grad(gru._by_torch(*given).sum(), given, create_graph=True)
    for ours, theirs in zip(
        torch.autograd.grad(sum(each.sum() for each in mine), given),
        torch.autograd.grad(sum(each.sum() for each in plain), given),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


@needs_kernel
def test_a_cell_can_be_compiled_by_torch_as_a_whole():
    cell = GRUCell(3, 8)
    graphs = []
    compiled_cell = torch.compile(cell, backend=lambda graph, _: graphs.append(graph) or graph, fullgraph=True)
    state = torch.randn(2, 8)
    gates = cell.gates(torch.randn(2, 3))
    torch.testing.assert_close(compiled_cell(gates, state), cell(gates, state))
    assert len(graphs) == 1
