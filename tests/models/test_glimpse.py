"""The Recurrent Attention Model: its equations, its three losses, and REINFORCE against the exact gradient."""

import itertools
import math
from functools import partial

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch.distributions import Normal
from torch.nn import functional as F

from saccade.data.image_shape import ImageShape
from saccade.models import glimpse
from saccade.models.glimpse import Config, GlimpseNetwork, build
from saccade.models.shapes import Shapes

POLICIES = ("learned", "random", "centre")


def make(shape=(1, 9, 9), classes=4, **settings) -> GlimpseNetwork:
    torch.manual_seed(0)
    sizes = {"hidden": 8, "patch": 4, "scales": 2, "glimpses": 4} | settings
    model = build(Config(**sizes), Shapes(ImageShape(*shape), classes)).double()
    torch.nn.init.normal_(model.baseline.weight)
    return model


def a_batch(count=5, shape=(1, 9, 9), classes=4):
    torch.manual_seed(1)
    return torch.randn(count, *shape).double(), F.one_hot(torch.arange(count) % classes, classes).double()


def with_gradient(model: GlimpseNetwork) -> set[str]:
    """The parts of the model that got a gradient other than 0."""
    named = model.named_parameters()
    return {name.split(".")[0] for name, p in named if p.grad is not None and p.grad.abs().sum() > 0}


def test_states_follow_the_equations():
    model = make()
    images, _ = a_batch()
    path = model.follow(images, model.policy.sample)
    weights = {name: tensor.detach().numpy() for name, tensor in model.named_parameters()}
    windows, state = model.retina.prepare(images), np.zeros((5, 8))
    for step in range(4):
        location = path.locations[:, step]
        seen = model.retina(windows, location).flatten(1).numpy()
        what = np.maximum(seen @ weights["what.weight"].T + weights["what.bias"], 0)
        where = np.maximum(location.numpy() @ weights["where.weight"].T + weights["where.bias"], 0)
        both = np.concatenate((what, where), axis=1) @ weights["together.weight"].T + weights["together.bias"]
        new = np.maximum(both, 0) @ weights["core.weight_ih"].T + weights["core.bias_ih"]
        state = np.maximum(new + state @ weights["core.weight_hh"].T + weights["core.bias_hh"], 0)
        np.testing.assert_allclose(path.states[:, step].detach().numpy(), state, atol=1e-12)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_first_glimpse_is_in_the_middle_and_the_last_one_chooses_nothing(policy):
    model = make(policy=policy)
    path = model.follow(a_batch()[0], model.policy.sample)
    assert path.locations.shape == (5, 4, 2)
    assert path.drawn.shape == (5, 3, 2)
    assert path.states.shape == (5, 4, 8)
    torch.testing.assert_close(
        path.locations[:, 0], torch.full((5, 2), -1 / 9).double()
    )  # 4 of 9: the pixel nearest to the middle
    pixels = (path.locations + 1) * 9 / 2
    torch.testing.assert_close(pixels, pixels.round())
    assert (path.locations[:, 1:] - path.drawn.clamp(-1, 1)).abs().max() < 1 / 9 + 1e-9


def test_the_log_probability_is_torchs_normal():
    model = make()
    states, drawn = torch.randn(5, 3, 8).double(), torch.randn(5, 3, 2).double()
    mean = torch.tanh(model.policy.mean(states))
    expected = Normal(mean, 0.15).log_prob(drawn).sum(-1)
    torch.testing.assert_close(model.policy.log_prob(states, drawn), expected, atol=1e-6, rtol=1e-6)


def test_the_losses_are_those_of_the_paper_for_the_sample_as_it_was_drawn():
    model = make(std=0.9, reinforce=0.5).eval()  # in training the spread would change between the two
    images, targets = a_batch()
    torch.manual_seed(7)
    path = model.follow(images, model.policy.sample)
    torch.manual_seed(7)
    terms = model.terms(images, targets)
    assert (path.drawn.abs() > 1).any()  # else a clamped sample would do as well
    logits = model.action(path.states[:, -1])
    reward = -F.cross_entropy(logits, targets, reduction="none").clamp(max=math.log(4))[:, None]
    expected = model.baseline(path.states[:, :-1]).squeeze(-1)
    spread = model.policy.spread()
    log_prob = Normal(torch.tanh(model.policy.mean(path.states[:, :-1])), spread).log_prob(path.drawn).sum(-1)
    close = partial(torch.testing.assert_close, atol=1e-5, rtol=1e-5)
    close(terms["cross-entropy"], F.cross_entropy(logits, targets, reduction="sum"))
    close(terms["baseline"], F.mse_loss(expected, reward.expand(-1, 3), reduction="sum") / 3)
    close(terms["reinforce"], -0.5 * ((reward - expected) * log_prob).sum())


def test_soft_targets_are_weighed_by_their_probabilities():
    model = make(policy="centre")
    images, targets = a_batch()
    soft = 0.9 * targets + 0.1 / 4
    expected = F.cross_entropy(model.eval()(images), soft, reduction="sum")
    torch.testing.assert_close(model.terms(images, soft)["cross-entropy"], expected)


@pytest.mark.parametrize(
    ("term", "learners"),
    [
        ("cross-entropy", {"what", "where", "together", "core", "action"}),
        ("baseline", {"baseline"}),
        ("reinforce", {"policy"}),
    ],
)
def test_each_loss_teaches_its_own_part_and_no_other(term, learners):
    """The state is detached for policy and baseline, the baseline in the advantage, the sample in the path and in its density."""
    model = make()
    model.terms(*a_batch())[term].backward()
    assert with_gradient(model) == learners


def test_no_gradient_flows_through_the_location():
    model = make()
    path = model.follow(a_batch()[0], model.policy.sample)
    assert path.states.requires_grad
    assert not path.drawn.requires_grad
    assert not path.locations.requires_grad
    through = torch.autograd.grad(path.states.sum(), list(model.policy.parameters()), allow_unused=True)
    assert through == (None, None)


def cells(mean: torch.Tensor, std: float) -> torch.Tensor:
    """In an image of 2 × 2 a place is rounded to 0, 1 or 2 along each side: the probabilities (..., 9) of the nine by the normal's CDF."""
    edges = torch.tensor([-0.5, 0.5]).double()
    below = Normal(mean[..., None], std).cdf(edges)  # (..., 2, 2)
    sides = torch.stack((below[..., 0], below[..., 1] - below[..., 0], 1 - below[..., 1]), -1)  # (..., 2, 3)
    return (sides[..., 0, :, None] * sides[..., 1, None, :]).flatten(-2)


def exact_reward(model: GlimpseNetwork, image: torch.Tensor, target: torch.Tensor, std: float) -> torch.Tensor:
    """The expected reward of three glimpses over all 9 × 9 paths, differentiable in the policy."""
    places = torch.tensor(list(itertools.product((-1.0, 0.0, 1.0), repeat=2))).double()

    def after(states: torch.Tensor, locations: torch.Tensor) -> torch.Tensor:
        windows = model.retina.prepare(image.expand(len(states), -1, -1, -1))
        return model.look(windows, locations, states).detach()

    first = after(torch.zeros(1, 8).double(), torch.zeros(1, 2).double())
    second = after(first.expand(9, -1), places)
    third = after(second.repeat_interleave(9, 0), places.repeat(9, 1))
    reward = (model.action(third).log_softmax(-1) * target).sum(-1).clamp(min=-math.log(4)).detach().view(9, 9)
    choice_of_second = cells(torch.tanh(model.policy.mean(first)), std)[0]  # (9,)
    choice_of_third = cells(torch.tanh(model.policy.mean(second)), std)  # (9, 9)
    return (choice_of_second[:, None] * choice_of_third * reward).sum()


def test_reinforce_is_the_gradient_of_the_expected_reward():
    """Two choices of nine places each can be enumerated; so many samples must agree. Clamped densities or leaking baselines would not."""
    std = 0.6
    model = make(shape=(1, 2, 2), patch=2, scales=1, glimpses=3, std=std, reinforce=1.0).eval()
    torch.manual_seed(0)
    with torch.no_grad():
        model.where.weight.zero_()  # what is seen depends on the pixels alone, so paths can be counted
        model.policy.mean.weight.normal_(std=0.2)
        model.what.weight.normal_()
        model.action.weight.normal_()
    image, target = 2 * torch.randn(1, 1, 2, 2).double(), torch.tensor([[1.0, 0.0, 0.0, 0.0]]).double()
    weight = model.policy.mean.weight
    exact = torch.autograd.grad(-exact_reward(model, image, target, std), weight)[0]
    batch, estimates = 4000, []
    for _ in range(40):
        term = model.terms(image.expand(batch, -1, -1, -1), target.expand(batch, -1))["reinforce"] / batch
        estimates.append(torch.autograd.grad(term, weight)[0])
    estimate, error = torch.stack(estimates).mean(0), torch.stack(estimates).std(0) / 40**0.5
    assert ((estimate - exact).abs() <= 4 * error + 1e-9).all()
    assert (estimate - exact).norm() < 0.05 * exact.norm()


def test_the_reward_is_never_worse_than_guessing():
    model = make(glimpses=2, reinforce=1.0)
    with torch.no_grad():
        model.action.bias.copy_(torch.tensor([100.0, 0.0, 0.0, 0.0]))  # surely class 0
        model.baseline.weight.zero_()
        model.baseline.bias.zero_()
    images, _ = a_batch(3)
    wrong = F.one_hot(torch.tensor([1, 2, 3]), 4).double()
    torch.testing.assert_close(model.terms(images, wrong)["baseline"].item(), 3 * math.log(4) ** 2)


def test_one_glimpse_is_enough():
    model = make(glimpses=1)
    images, targets = a_batch(1)
    terms = model.terms(images, targets)
    assert terms["reinforce"] == 0
    assert terms["baseline"] == 0
    assert terms["cross-entropy"] > 0


@pytest.mark.parametrize("policy", ["random", "centre"])
def test_policies_that_cannot_learn_have_no_reinforce_term_and_no_parameters(policy):
    model = make(policy=policy)
    assert model.terms(*a_batch())["reinforce"] == 0
    assert not list(model.policy.parameters())


def test_random_places_are_uniform_and_know_nothing_of_the_image():
    model = make(policy="random", glimpses=3)
    torch.manual_seed(0)
    images = torch.randn(3000, 1, 9, 9).double()
    for path in (
        model.follow(images, model.policy.sample),
        model.likeliest_path(images),
    ):  # to train and to predict with
        drawn = path.drawn.flatten(0, 1)
        assert drawn.abs().max() <= 1
        torch.testing.assert_close(drawn.mean(0), torch.zeros(2).double(), atol=0.03, rtol=0)
        torch.testing.assert_close(drawn.var(0), torch.full((2,), 1 / 3).double(), atol=0.02, rtol=0)
        seen = torch.stack((path.drawn[:, 0, 0], images.mean((1, 2, 3))))
        assert torch.corrcoef(seen)[0, 1].abs() < 0.06


def test_the_centre_policy_never_moves():
    model = make(policy="centre")
    locations = model.follow(a_batch()[0], model.policy.sample).locations
    assert (locations == locations[0, 0]).all()
    assert locations.abs().max() < 1 / 9 + 1e-9


@pytest.mark.parametrize(("policy", "samples"), itertools.product(POLICIES, (1, 3)))
def test_a_prediction_is_the_same_each_time_and_draws_nothing_from_torch(policy, samples):
    model = make(policy=policy, samples=samples).eval()
    images, _ = a_batch()
    before = torch.get_rng_state()
    first = model(images)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(99)
    assert torch.equal(model(images), first)


@pytest.mark.parametrize(("policy", "samples"), itertools.product(POLICIES, (1, 3)))
def test_a_prediction_does_not_depend_on_the_batch(policy, samples):
    model = make(policy=policy, samples=samples, std=0.9).eval()
    images, _ = a_batch()
    alone = torch.cat([model(image[None]) for image in images])
    torch.testing.assert_close(model(images), alone, atol=1e-12, rtol=0)
    paths = model.likeliest_path(images).locations
    assert policy != "random" or len(paths.unique(dim=0)) == len(images)  # and is not the same for all


def test_the_likeliest_path_goes_to_the_mean_and_does_not_depend_on_the_batch():
    model = make().eval()
    images, _ = a_batch()
    path = model.likeliest_path(images)
    torch.testing.assert_close(path.drawn, torch.tanh(model.policy.mean(path.states[:, :-1])))
    torch.testing.assert_close(model(images[2:3]), model(images)[2:3], atol=1e-12, rtol=0)
    torch.testing.assert_close(model(images), model.action(path.states[:, -1]))


def test_several_samples_average_probabilities_and_not_their_logarithms():
    model = make(samples=10, std=0.9).eval()
    with torch.no_grad():
        model.where.weight.mul_(10)
        model.action.weight.mul_(10)
        model.action.bias.zero_()
    images, _ = a_batch()
    choose = partial(model.policy.sample, generators=glimpse._of_each(images))
    single = torch.stack([model.action(model.follow(images, choose).states[:, -1]).softmax(-1) for _ in range(10)])
    torch.testing.assert_close(model.probabilities(images, 10), single.mean(0))
    torch.testing.assert_close(model(images).softmax(-1), single.mean(0))
    of_logarithms = single.log().mean(0).softmax(-1)
    assert (of_logarithms - single.mean(0)).abs().max() > 0.01
    torch.testing.assert_close(model.probabilities(images, 1), single[0])


def test_training_draws_a_path():
    model = make(std=0.9).train()
    images, _ = a_batch()
    assert not torch.equal(model(images), model(images))


def test_the_spread_falls_with_the_batches_trained_on_and_is_saved():
    model = make(std=0.4, std_end=0.2, std_batches=4).train()
    spreads = [float(model.policy.spread())]
    for _ in range(6):
        model.terms(*a_batch())
        spreads.append(float(model.policy.spread()))
    assert spreads == pytest.approx([0.4, 0.35, 0.3, 0.25, 0.2, 0.2, 0.2])
    model.eval().terms(*a_batch())
    assert model.policy.batches == 6
    other = make(std=0.4, std_end=0.2, std_batches=4)
    other.load_state_dict(model.state_dict())
    assert float(other.policy.spread()) == pytest.approx(0.2)


def cued_images(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The middle says left or right; only on that side, out of sight, stands the class. The other side shows a class that is wrong."""
    images = torch.zeros(count, 1, 12, 16)
    side, classes = torch.randint(2, (count,)), torch.randint(4, (2, count))
    rows = torch.arange(count)
    images[rows, 0, 5, 7 + side] = 3.0
    for place, column in ((0, 2), (1, 12)):
        for corner, (y, x) in enumerate(itertools.product((0, 1), repeat=2)):
            chosen = rows[classes[place] == corner]
            images[chosen, 0, 5 + y, column + x] = 3.0
    return images, F.one_hot(classes[side, rows], 4).float()


def errors_after_training(policy: str, steps: int) -> float:
    torch.manual_seed(0)
    config = Config(policy=policy, glimpses=2, patch=8, hidden=64, std=0.6, std_end=0.3, std_batches=steps)
    model = build(config, Shapes(ImageShape(1, 12, 16), 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(steps):
        images, targets = cued_images(128)
        optimizer.zero_grad()
        (sum(model.terms(images, targets).values()) / 128).backward()
        optimizer.step()
    images, targets = cued_images(1000)
    return float((model.eval()(images).argmax(1) != targets.argmax(1)).float().mean())


def test_it_learns_to_look_where_the_first_glimpse_points():
    assert errors_after_training("learned", 400) < 0.02
    assert errors_after_training("random", 400) > 0.2
    assert errors_after_training("centre", 50) > 0.6


@pytest.mark.parametrize("wrong", [{"patch": 5}, {"glimpses": 0}, {"policy": "clever"}, {"hidden": 7}, {"std": 0.0}])
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValidationError):
        Config(**wrong)
