"""Second derivatives are right, or refused: never silently left out."""

import pytest
import torch
from torch.autograd import grad

from saccade.attention import Additive, Attend, LocalSelfAttention2d, MultiHead, Perceptron, routes
from saccade.layers.cross_entropy import linear_cross_entropy


def second(function, x):
    """Of something that depends on x in another way as well, so that a missing part raises no error."""
    (first,) = grad((function(x) + x).pow(3).sum(), x, create_graph=True)
    return grad(first.square().sum(), x)[0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["chunks by torch", "C"])
@pytest.mark.parametrize("score", [Additive, Perceptron])
def test_hidden_layers_in_chunks_have_the_second_derivatives_of_the_whole(score, dtype):
    torch.manual_seed(0)
    chunked = Attend(score(16), route="chunked").to(dtype)
    whole = Attend(chunked.score, route="explicit")
    x, key = torch.randn(2, 7, 16, dtype=dtype, requires_grad=True), torch.randn(2, 9, 16, dtype=dtype)
    found, expected = (second(lambda x, a=attend: a(x, key).context, x) for attend in (chunked, whole))
    close = 1e-9 if dtype is torch.float64 else 1e-3
    torch.testing.assert_close(found, expected, rtol=close, atol=close * expected.abs().max().item())


def test_local_attention_has_the_second_derivatives_of_its_definition(monkeypatch):
    torch.manual_seed(0)
    layer = LocalSelfAttention2d(4, 4, kernel_size=3, heads=1).double()
    x = torch.randn(2, 4, 5, 6, dtype=torch.float64, requires_grad=True)
    found = second(layer, x)
    monkeypatch.setattr(routes, "HAS_KERNELS", False)
    torch.testing.assert_close(found, second(layer, x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("length", [70, 300])
def test_kernels_for_short_and_long_sequences_have_the_second_derivatives_of_the_explicit_route(length):
    torch.manual_seed(0)
    chosen = MultiHead(32, heads=2)
    explicit = MultiHead(32, heads=2, route="explicit")
    explicit.load_state_dict(chosen.state_dict())
    x = (0.3 * torch.randn(4, length, 32)).requires_grad_()
    found, expected = (second(lambda x, a=layer: a(x).context, x) for layer in (chosen, explicit))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3 * expected.abs().max().item())


def test_steps_over_a_memory_refuse_second_derivatives():
    attend = Attend(Additive(64))
    x, key = torch.randn(8, 1, 64, requires_grad=True), torch.randn(8, 200, 64, requires_grad=True)
    with pytest.raises(RuntimeError, match="first derivative only, and create_graph=True"):
        second(lambda x: attend.recall(x, attend.remember(key).over_steps()).context, x)


def test_the_loss_without_logits_refuses_them():
    output, x, targets = torch.nn.Linear(8, 11), torch.randn(6, 8, requires_grad=True), torch.randint(11, (6,))
    with pytest.raises(RuntimeError, match="first derivative only"):
        second(lambda x: linear_cross_entropy(x, output, targets, 0.1)[0], x)


def test_gradients_with_and_without_a_graph_are_the_same_where_an_input_is_made_of_another():
    layer = LocalSelfAttention2d(4, 4, kernel_size=3, heads=1).double()
    x = torch.randn(2, 4, 5, 6, dtype=torch.float64, requires_grad=True)
    with_graph, without = (grad(layer(x).square().sum(), x, create_graph=create)[0] for create in (True, False))
    torch.testing.assert_close(with_graph, without, rtol=1e-9, atol=1e-9)


def test_second_derivatives_of_hidden_layers_in_another_precision():
    attend, x = Attend(Additive(8), route="chunked"), torch.randn(2, 3, 8, requires_grad=True)
    with torch.autocast("cpu", torch.float16):
        total = attend(x, x).context.float().square().sum()
    (first,) = grad(total, x, create_graph=True)
    assert grad(first.square().sum(), x)[0].isfinite().all()
