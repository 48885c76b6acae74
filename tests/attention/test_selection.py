"""From scores to weights: soft, sampled and local selections, by hand, by loops and by counting samples."""

import math

import pytest
import torch
from torch.autograd import gradcheck

from saccade.attention import Hard, LocalMonotonic, LocalPredictive, Soft, StraightThrough
from saccade.attention.selection import masked_softmax

from . import reference
from .cases import EXACT, SELECTIONS, make_selection, some_visible

NO_QUERY = torch.zeros(1, 1)


def select(selection, scores, visible=None, query=NO_QUERY, first_query=0):
    return selection(scores, visible, query, first_query)


def test_the_five_selections_have_their_names():
    assert SELECTIONS == ["hard", "local-m", "local-p", "soft", "straight-through"]


# Soft


def test_soft_is_a_softmax_over_the_visible_keys():
    scores = torch.randn(2, 3, 5, dtype=torch.float64)
    visible = some_visible(2, 3, 5)
    visible[1, 2] = False
    weights, log_prob = select(Soft(), scores, visible)
    for b in range(2):
        expected = torch.from_numpy(reference.soft(scores[b].numpy(), visible[b].numpy()))
        torch.testing.assert_close(weights[b], expected, **EXACT)
    assert log_prob.item() == 0.0


def test_soft_survives_scores_of_any_size():
    scores = torch.tensor([[1e30, -1e30, 1e30], [-1e30, -2e30, -3e30]])
    visible = torch.tensor([[True, True, True], [False, True, True]])
    weights = masked_softmax(scores, visible)
    assert weights.tolist() == [[0.5, 0.0, 0.5], [0.0, 1.0, 0.0]]


def test_masked_softmax_gradients_agree_with_differences_with_a_row_that_sees_nothing():
    scores = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    visible = torch.tensor([[1, 1, 0, 1], [0, 0, 0, 0], [0, 1, 0, 0]], dtype=torch.bool)
    assert gradcheck(lambda s: masked_softmax(s, visible), scores)
    masked_softmax(scores, visible).pow(2).sum().backward()
    assert torch.equal(scores.grad[1], torch.zeros(4, dtype=torch.float64))


# Hard and straight-through

SOURCE = torch.tensor([0.5, -1.0, 1.5, 0.0, 5.0], dtype=torch.float64)
SEEN = torch.tensor([True, True, True, True, False])
PROBABILITIES = torch.softmax(SOURCE[:4], -1)


@pytest.mark.parametrize("kind", [Hard, StraightThrough])
def test_samples_come_as_often_as_the_softmax_says(kind):
    draws = 20000
    weights = select(kind().train(), SOURCE.expand(draws, 5), SEEN).weights
    assert torch.equal(weights.sum(-1), torch.ones(draws, dtype=torch.float64))
    assert set(weights.unique().tolist()) == {0.0, 1.0}
    found = weights.mean(0)
    assert found[4] == 0.0
    deviation = (PROBABILITIES * (1 - PROBABILITIES) / draws).sqrt()
    assert ((found[:4] - PROBABILITIES).abs() < 4 * deviation).all()


def test_log_prob_is_that_of_the_sampled_key():
    weights, log_prob = select(Hard().train(), SOURCE.expand(2, 50, 5), SEEN)
    assert log_prob.shape == (2, 50)
    expected = (weights[..., :4] * PROBABILITIES.log()).sum(-1)
    torch.testing.assert_close(log_prob, expected, **EXACT)


def test_log_prob_is_zero_where_nothing_could_be_sampled():
    scores = torch.randn(2, 3, requires_grad=True)
    visible = torch.tensor([[True, True, False], [False, False, False]])
    weights, log_prob = select(Hard().train(), scores, visible)
    assert weights[1].tolist() == [0.0, 0.0, 0.0]
    assert log_prob[0] < 0.0
    assert log_prob[1] == 0.0
    log_prob.sum().backward()
    assert scores.grad.isfinite().all()
    assert torch.equal(scores.grad[1], torch.zeros(3))


@pytest.mark.parametrize("kind", [Hard, StraightThrough])
def test_the_most_probable_visible_key_is_taken_in_eval_mode(kind):
    weights = select(kind().eval(), SOURCE.expand(3, 5), SEEN).weights
    assert weights.tolist() == [[0.0, 0.0, 1.0, 0.0, 0.0]] * 3


def test_only_a_sampling_selection_in_training_says_that_it_samples():
    for name in SELECTIONS:
        selection = make_selection(name)
        assert selection.train().samples == (name in ("hard", "straight-through"))
        assert not selection.eval().samples


def test_sampling_depends_on_the_seed_alone():
    scores = torch.randn(4, 6)
    first, again = (torch.manual_seed(3) and select(Hard().train(), scores).weights for _ in range(2))
    assert torch.equal(first, again)


def test_reinforce_with_log_prob_estimates_the_exact_gradient():
    """Expected reward R = Σ_k p_k r_k has the gradient p_k (r_k - R); the estimate is the mean of reward · ∇ log_prob."""
    rewards = torch.tensor([1.0, -2.0, 0.5, 3.0, 100.0], dtype=torch.float64)
    samples = 40000
    scores = SOURCE.clone().requires_grad_()
    weights, log_prob = select(Hard().train(), scores.expand(samples, 5), SEEN)
    reward = (weights.detach() * rewards).sum(-1)
    expected_reward = (PROBABILITIES * rewards[:4]).sum()
    exact = torch.cat((PROBABILITIES * (rewards[:4] - expected_reward), torch.zeros(1, dtype=torch.float64)))
    for baseline in (0.0, expected_reward):
        loss = -((reward - baseline) * log_prob).mean()
        (gradient,) = torch.autograd.grad(loss, scores, retain_graph=True)
        torch.testing.assert_close(-gradient, exact, rtol=0, atol=6 / math.sqrt(samples))


def test_a_hard_sample_passes_no_gradient_through_its_weights():
    scores = torch.randn(3, 4, requires_grad=True)
    assert not select(Hard().train(), scores).weights.requires_grad


@pytest.mark.parametrize("training", [True, False])
def test_straight_through_has_the_gradient_of_soft(training):
    scores = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    visible = some_visible(2, 3, 5)
    mixture = torch.randn(2, 3, 5, dtype=torch.float64)
    weights, log_prob = select(StraightThrough().train(training), scores, visible)
    assert set(weights.unique().tolist()) == {0.0, 1.0}
    assert log_prob.item() == 0.0
    (found,) = torch.autograd.grad((weights * mixture).sum(), scores)
    (soft,) = torch.autograd.grad((select(Soft(), scores, visible).weights * mixture).sum(), scores)
    torch.testing.assert_close(found, soft, **EXACT)


# Local


def windows(weights):
    return [[k for k, weight in enumerate(row) if weight > 0] for row in weights.tolist()]


def test_local_monotonic_windows_by_hand():
    weights = select(LocalMonotonic(reach=1), torch.zeros(1, 7, 4)).weights[0]
    assert windows(weights) == [[0, 1], [0, 1, 2], [1, 2, 3], [2, 3], [2, 3], [2, 3], [2, 3]]
    assert weights[1].tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0])


def test_local_monotonic_stays_at_the_last_word_of_a_padded_source():
    visible = torch.tensor([[[True, True, True, False, False]], [[True, True, True, True, True]]])
    weights = select(LocalMonotonic(reach=1), torch.zeros(2, 6, 5), visible).weights
    assert windows(weights[0]) == [[0, 1], [0, 1, 2], [1, 2], [1, 2], [1, 2], [1, 2]]
    assert windows(weights[1]) == [[0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4], [3, 4]]


def test_local_monotonic_one_step_at_a_time_is_the_whole():
    scores = torch.randn(2, 8, 5)
    visible = torch.tensor([5, 3])[:, None, None] > torch.arange(5)
    selection = LocalMonotonic(reach=1)
    whole = select(selection, scores, visible).weights
    steps = [select(selection, scores[:, t : t + 1], visible, first_query=t).weights for t in range(8)]
    assert torch.equal(whole, torch.cat(steps, dim=1))


@pytest.mark.parametrize("reach", [0, 1, 3])
@pytest.mark.parametrize("first_query", [0, 2])
def test_local_monotonic_against_loops(reach, first_query):
    scores = torch.randn(6, 5, dtype=torch.float64)
    for visible in (None, some_visible(6, 5)):
        weights = select(LocalMonotonic(reach), scores, visible, first_query=first_query).weights
        expected = reference.local_monotonic(
            scores.numpy(), reach, None if visible is None else visible.numpy(), first_query
        )
        torch.testing.assert_close(weights, torch.from_numpy(expected), **EXACT)


def predictive(reach=2, heads=None):
    selection = LocalPredictive(3, reach, heads=heads).double()
    for parameter in selection.parameters():
        parameter.data.mul_(3)
    return selection


@pytest.mark.parametrize("reach", [1, 2, 5])
def test_local_predictive_against_loops(reach):
    selection = predictive(reach)
    scores, query = torch.randn(4, 7, dtype=torch.float64), torch.randn(4, 3, dtype=torch.float64)
    weight, v = selection.weight.detach().numpy(), selection.v.detach().numpy()
    padded = (torch.arange(7) < 5).expand(4, 7)
    for visible in (None, padded, some_visible(4, 7), torch.zeros(4, 7, dtype=torch.bool)):
        weights, log_prob = select(selection, scores, visible, query)
        seen = None if visible is None else visible.numpy()
        expected = reference.local_predictive(scores.numpy(), reach, query.numpy(), weight, v, seen)
        torch.testing.assert_close(weights, torch.from_numpy(expected), **EXACT)
        assert log_prob.item() == 0.0


def test_local_predictive_heads_predict_apart():
    many = predictive(heads=2)
    scores, query = torch.randn(1, 2, 4, 7, dtype=torch.float64), torch.randn(1, 2, 4, 3, dtype=torch.float64)
    weights = select(many, scores, None, query).weights
    for head in range(2):
        one = predictive()
        one.load_state_dict({name: parameter[head] for name, parameter in many.state_dict().items()})
        torch.testing.assert_close(
            select(one, scores[:, head], None, query[:, head]).weights, weights[:, head], **EXACT
        )


def test_local_predictive_weights_are_the_softmax_times_a_gaussian_and_sum_to_less_than_one():
    """Luong's equation 10 multiplies after the softmax and does not normalise again."""
    selection = predictive()
    query = torch.randn(4, 3, dtype=torch.float64)
    weights = select(selection, torch.zeros(4, 9, dtype=torch.float64), None, query).weights
    centre = 9 * torch.sigmoid(torch.tanh(query @ selection.weight) @ selection.v)
    distance = torch.arange(9) - centre
    inside = distance.abs() <= 2
    expected = inside / inside.sum(-1, keepdim=True) * torch.exp(-(distance**2) / (2 * 1.0**2))
    torch.testing.assert_close(weights, expected, **EXACT)
    assert (weights.sum(-1) < 1).all()


def test_the_gradient_reaches_the_predicted_position():
    selection = predictive()
    scores = torch.randn(4, 7, dtype=torch.float64, requires_grad=True)
    query = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    select(selection, scores, None, query).weights.pow(2).sum().backward()
    for tensor in (query, selection.weight, selection.v):
        assert tensor.grad.isfinite().all()
        assert tensor.grad.abs().max() > 0


def test_local_predictive_gradients_agree_with_the_equations():
    selection = predictive()
    tensors = {
        "rows": torch.randn(3, 6, dtype=torch.float64, requires_grad=True),
        "query": torch.randn(3, 3, dtype=torch.float64, requires_grad=True),
        "weight": selection.weight,
        "v": selection.v,
    }
    visible = torch.arange(6) < torch.tensor([6, 4, 5])[:, None]
    mixture = torch.randn(3, 6, dtype=torch.float64)
    loss = (select(selection, tensors["rows"], visible, tensors["query"]).weights * mixture).sum()
    found = torch.autograd.grad(loss, list(tensors.values()))

    def by_equations(rows, query, weight, v):
        return (reference.local_predictive(rows, 2, query, weight, v, visible.numpy()) * mixture.numpy()).sum()

    arrays = {name: tensor.detach().numpy() for name, tensor in tensors.items()}
    for name, gradient in zip(tensors, found, strict=True):
        expected = torch.from_numpy(reference.derivative(by_equations, arrays, name))
        torch.testing.assert_close(gradient, expected, **EXACT)


@pytest.mark.parametrize(("kind", "reach"), [(LocalMonotonic, -1), (lambda reach: LocalPredictive(4, reach), 0)])
def test_a_window_without_any_position_is_refused(kind, reach):
    with pytest.raises(ValueError, match=rf"reach.*got {reach}"):
        kind(reach)
