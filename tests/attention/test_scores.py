"""The eight scores, against loops that follow the papers and against what can be worked out on paper."""

import math

import pytest
import torch
from torch.autograd import gradcheck

from saccade.attention import (
    Additive,
    Attend,
    Concat,
    Cosine,
    Dot,
    General,
    Location,
    Perceptron,
    ScaledDot,
    all_scores,
)
from saccade.attention.scores import DotProductScore, HiddenLayerScore

from . import reference
from .cases import EXACT, HEADS, SCORES, draw, make_score, weights_of

# (query size, key size, options): sizes may differ where the score allows it
SIZES = {
    "additive": (3, 5, {"hidden": 4}),
    "perceptron": (5, 2, {"hidden": 3}),
    "general": (2, 4, {}),
    "concat": (4, 3, {}),
    "location": (3, 2, {"longest": 6}),
}


def test_the_eight_scores_have_their_names_of_the_lectures():
    assert set(SCORES) >= {"additive", "concat", "cosine", "dot", "general", "location", "perceptron", "scaled-dot"}


def made(name, heads, dtype=torch.float64):
    """A score, a query (B, [H,] 3, size) and a key (B, [H,] 4, size)."""
    query_size, key_size, options = SIZES.get(name, (3, 3, {}))
    score = all_scores()[name](query_size, key_size, heads=heads, **options).to(dtype)
    return score, draw(2, heads, 3, query_size, dtype), draw(2, heads, 4, key_size, dtype)


def parameters_of(score, head=None):
    return {
        name: (parameter if head is None else parameter[head]).detach().double().numpy()
        for name, parameter in score.named_parameters()
    }


def by_loops(name, score, query, key):
    """(B, [H,] Q, K) from the reference, one example and head after the other."""
    assert name in reference.SCORES, f"write the equation of the {name} score into reference.py"
    expected = torch.empty(*query.shape[:-1], key.shape[-2], dtype=torch.float64)
    for b in range(query.shape[0]):
        for head in [None] if score.heads is None else range(score.heads):
            at = (b,) if head is None else (b, head)
            s, h = query[at].double().numpy(), key[at].double().numpy()
            expected[at] = torch.from_numpy(reference.scores(name, s, h, parameters_of(score, head)))
    return expected


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("name", SCORES)
def test_a_score_is_its_equation(name, heads):
    score, query, key = made(name, heads)
    scores = score(query, score.prepare(key))
    torch.testing.assert_close(scores, by_loops(name, score, query, key), **EXACT)


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("name", SCORES)
def test_a_score_is_its_equation_in_single_precision(name, heads):
    score, query, key = made(name, heads, torch.float32)
    scores = score(query, score.prepare(key))
    assert scores.dtype == torch.float32
    torch.testing.assert_close(scores.double(), by_loops(name, score, query, key), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", SCORES)
def test_the_gradient_of_attention_is_the_derivative_of_the_equations(name):
    score, query, key = made(name, None)
    query, key, value = query[0].requires_grad_(), key[0].requires_grad_(), draw(1, None, 4, 2)[0].requires_grad_()
    attend = Attend(score)
    mixture = torch.randn(3, 2, dtype=torch.float64)
    visible = torch.tensor([[1, 1, 0, 1], [1, 0, 1, 1], [0, 0, 0, 0]], dtype=torch.bool)
    loss = (attend(query, key, value, visible=visible).context * mixture).sum()

    tensors = {"query": query, "key": key, "value": value, **dict(score.named_parameters())}
    arrays = {which: tensor.detach().numpy() for which, tensor in tensors.items()}

    def by_equations(query, key, value, **parameters):
        _, context = reference.attend(name, query, key, value, parameters, visible.numpy())
        return (context * mixture.numpy()).sum()

    found = torch.autograd.grad(loss, list(tensors.values()), allow_unused=True)
    for (which, tensor), gradient in zip(tensors.items(), found, strict=True):
        expected = torch.from_numpy(reference.derivative(by_equations, arrays, which))
        gradient = torch.zeros_like(tensor) if gradient is None else gradient
        torch.testing.assert_close(gradient, expected, **EXACT, msg=lambda text, which=which: f"{which}: {text}")


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("name", SCORES)
def test_gradients_of_a_score_agree_with_differences(name, heads):
    score, query, key = made(name, heads)
    names = [n for n, _ in score.named_parameters()]
    parameters = [p.detach().clone().requires_grad_() for p in score.parameters()]

    def compute(query, key, *parameters):
        def both_steps(query, key):
            return score(query, score.prepare(key))

        return torch.func.functional_call(_Called(score, both_steps), _named(names, parameters), (query, key))

    assert gradcheck(compute, (query.requires_grad_(), key.requires_grad_(), *parameters))


class _Called(torch.nn.Module):
    """A module whose forward is a function over another module, so that the inner one's parameters can be put in."""

    def __init__(self, inner, function):
        super().__init__()
        self.inner = inner
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def _named(names, parameters):
    return {f"inner.{name}": parameter for name, parameter in zip(names, parameters, strict=True)}


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("name", [n for n in SCORES if issubclass(all_scores()[n], DotProductScore)])
def test_a_dot_product_score_is_the_scaled_product_that_it_promises(name, heads):
    score, query, key = made(name, heads)
    promised = score.scale * torch.einsum("...qd,...kd->...qk", score.project_query(query), score.prepare(key))
    torch.testing.assert_close(score(query, score.prepare(key)), promised, **EXACT)


@pytest.mark.parametrize("name", SCORES)
def test_each_head_has_a_score_of_its_own(name):
    many, query, key = made(name, 2)
    scores = many(query, many.prepare(key))
    for head in range(2):
        one, _, _ = made(name, None)
        with torch.no_grad():
            for own, shared in zip(one.parameters(), many.parameters(), strict=True):
                own.copy_(shared[head])
        torch.testing.assert_close(one(query[:, head], one.prepare(key[:, head])), scores[:, head], **EXACT)


def test_the_scaled_dot_product_keeps_its_variance_as_the_size_grows():
    for size in (16, 256):
        query, key = torch.randn(200, size), torch.randn(200, size)
        assert ScaledDot(size)(query, key).var().item() == pytest.approx(1.0, abs=0.1)
        assert Dot(size)(query, key).var().item() == pytest.approx(size, rel=0.1)


def test_additive_is_perceptron_with_its_matrix_split_in_two():
    additive, perceptron = Additive(3, 5, hidden=4), Perceptron(3, 5, hidden=4)
    with torch.no_grad():
        perceptron.query_weight.copy_(additive.weight[:3])
        perceptron.key_weight.copy_(additive.weight[3:])
        perceptron.v.copy_(additive.v)
    query, key = torch.randn(2, 6, 3), torch.randn(2, 7, 5)
    torch.testing.assert_close(additive(query, additive.prepare(key)), perceptron(query, perceptron.prepare(key)))


def test_the_cosine_score_depends_on_directions_and_stays_within_its_sharpness():
    score = Cosine(6).double()
    query, key = draw(2, None, 3, 6), draw(2, None, 5, 6)
    scores = score(query, score.prepare(key))
    torch.testing.assert_close(score(query * 40, score.prepare(key * 70)), scores, rtol=1e-6, atol=1e-6)
    cosine = torch.nn.functional.cosine_similarity(query[:, :, None], key[:, None], dim=-1)
    torch.testing.assert_close(scores, 10 * cosine, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_the_cosine_of_a_zero_vector_is_zero_with_a_finite_gradient(dtype):
    zero = torch.zeros(2, 4, dtype=dtype, requires_grad=True)
    unit = Cosine(4).to(dtype).prepare(zero)
    assert torch.equal(unit, torch.zeros(2, 4, dtype=dtype))
    (gradient,) = torch.autograd.grad(unit.sum(), zero)
    assert gradient.isfinite().all()


def test_weights_of_the_concat_score_do_not_depend_on_the_query():
    attend = Attend(Concat(4, 3)).double()
    key = draw(2, None, 5, 3)
    first, second = (weights_of(attend, draw(2, None, 6), key) for _ in range(2))
    torch.testing.assert_close(first, second, **EXACT)
    torch.testing.assert_close(first, first[:, :1].expand_as(first), **EXACT)


def test_the_location_score_does_not_look_at_the_keys():
    score = Location(4, 3, longest=9)
    query = torch.randn(2, 3, 4)
    assert torch.equal(score(query, torch.randn(2, 5, 3)), score(query, torch.randn(2, 5, 3)))


@pytest.mark.parametrize("name", ["dot", "scaled-dot", "cosine"])
def test_scores_that_multiply_query_and_key_directly_refuse_different_sizes(name):
    with pytest.raises(ValueError, match=rf"{name} score .*query size 4 and key size 6: .*general or additive"):
        all_scores()[name](4, 6)


def test_the_location_score_refuses_a_source_that_is_too_long():
    score = Location(4, longest=6)
    assert score(torch.randn(1, 2, 4), torch.randn(1, 6, 4)).shape == (1, 2, 6)
    with pytest.raises(ValueError, match="at most 6 positions; got 7: create it with longest=7"):
        score(torch.randn(1, 2, 4), torch.randn(1, 7, 4))


def test_sizes_default_to_the_query_size():
    assert General(4).weight.shape == (4, 4)
    assert Additive(4).weight.shape == (8, 4)
    assert Perceptron(4, heads=3).v.shape == (3, 4, 1)


@pytest.mark.parametrize("name", SCORES)
def test_parameters_start_small_and_the_printed_form_tells_the_sizes(name):
    score = make_score(name, 4, heads=2)
    assert "query_size=4, key_size=4, heads=2" in repr(score)
    for parameter_name, parameter in score.named_parameters():
        assert parameter.shape[0] == 2
        if parameter_name != "sharpness":
            assert parameter.abs().max() <= 1 / math.sqrt(parameter.shape[-2])
            assert parameter.std() > 0


def test_hidden_layer_scores_are_those_with_a_hidden_layer():
    assert {n for n, cls in all_scores().items() if issubclass(cls, HiddenLayerScore)} == {"additive", "perceptron"}
