"""The Recurrent Attention Model (Mnih, Heess, Graves and Kavukcuoglu 2014): a classifier that sees an image through a few small glimpses.

    seen_t  = retina(image, l_t)                               the image around l_t, sharp in the middle
    g_t     = relu(W [relu(W_what seen_t); relu(W_where l_t)])  what was seen and where
    h_t     = relu(W_g g_t + W_h h_{t-1})                       what is known so far
    l_{t+1} ~ N(tanh(W_l h_t), σ²)                              where to look next
    class   ~ softmax(W_a h_T)                                  after the last glimpse

A crop has no useful gradient, so where to look is learned by REINFORCE (Williams 1992) from whether the path led to the class:

    loss = cross-entropy + (b_t - R)² - weight · Σ_t log π(l_{t+1} | h_t) · (R - b_t)

with the baseline b_t = W_b h_t. Neither b_t nor π sends a gradient into h_t, R - b_t is a plain number, and π is the density of the
sample as drawn, before it is moved to the nearest pixel of the image. The first glimpse is in the middle of the image and the last one
chooses no further place, so T glimpses have T - 1 choices. The reward R is log p(class), but no worse than guessing; the paper's (1 if
right, else 0) does not say how nearly right a path was.

A prediction follows one path, always to the mean of π. With `samples` = M it draws M paths and averages their probabilities; that is
another figure and to be reported as such. What a prediction draws depends on the image alone: whoever asks twice, or in another batch,
gets the same answer.

Axis legend: B batch, T glimpses, D features.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal
from zlib import crc32

import torch
from pydantic import Field
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from saccade.config.recipe import Config as BaseConfig
from saccade.data.image_shape import ImageShape
from saccade.layers.retina import Retina
from saccade.models.shapes import Shapes

Generators = Sequence[Generator] | None  # one for each image of a batch; None are torch's own numbers


class Config(BaseConfig):
    serves: ClassVar[tuple[str, ...]] = ("image-classes",)

    policy: Literal["learned", "random", "centre"] = Field(
        "learned", description="where to look; random and centre are what a learned policy must beat"
    )
    glimpses: int = Field(6, ge=1, le=64)
    patch: int = Field(8, ge=2, multiple_of=2, description="rows and columns of what the retina sees at each scale")
    scales: int = Field(1, ge=1, le=6, description="each scale sees twice as far as the one before, half as sharp")
    hidden: int = Field(256, ge=2, multiple_of=2)
    std: float = Field(0.15, gt=0, le=1, description="spread of the places tried in training; half an image is 1")
    std_end: float = Field(0.07, gt=0, le=1, description="the spread after `std_batches`")
    std_batches: int = Field(20000, ge=1, description="training batches over which the spread goes from std to std_end")
    reinforce: float = Field(0.01, ge=0, description="weight of the REINFORCE term")
    samples: int = Field(
        1,
        ge=1,
        description="paths per prediction: 1 is the likeliest path, more are drawn and their probabilities averaged",
    )


@dataclass(frozen=True)
class Path:
    """Where a batch of images was looked at, and what was known after each glimpse."""

    locations: Tensor  # (B, T, 2), on the image's pixels
    drawn: Tensor  # (B, T - 1, 2), the policy's choices before they were moved to a pixel of the image
    states: Tensor  # (B, T, D)


class Policy(nn.Module):
    """Chooses the next location (B, 2), row and column, from what is known (B, D)."""

    predicts_by_chance = False

    def sample(self, state: Tensor, generators: Generators = None) -> Tensor:
        raise NotImplementedError

    def likeliest(self, state: Tensor, generators: Generators = None) -> Tensor:
        """The choice to predict with, where one is likelier than the others."""
        return self.sample(state, generators)

    def log_prob(self, states: Tensor, drawn: Tensor) -> Tensor:
        """How likely the choices were, (B, T - 1); a single 0 where there is nothing to learn."""
        return states.new_zeros(())

    def count_batch(self) -> None:
        """Called once for every batch of training."""


class LearnedPolicy(Policy):
    """A Gaussian around a learned place. Its spread falls with the batches it was trained on, which is part of the model's state."""

    batches: Tensor

    def __init__(self, config: Config):
        super().__init__()
        self.mean = nn.Linear(config.hidden, 2)
        self.std, self.std_end, self.std_batches = config.std, config.std_end, config.std_batches
        self.register_buffer("batches", torch.zeros((), dtype=torch.long))
        nn.init.zeros_(self.mean.bias)

    def spread(self) -> Tensor:
        done = (self.batches / self.std_batches).clamp(max=1)
        return self.std + (self.std_end - self.std) * done

    def sample(self, state: Tensor, generators: Generators = None) -> Tensor:
        mean = self.likeliest(state)
        return mean + self.spread() * _drawn(torch.randn, mean, generators)

    def likeliest(self, state: Tensor, generators: Generators = None) -> Tensor:
        return torch.tanh(self.mean(state))

    def log_prob(self, states: Tensor, drawn: Tensor) -> Tensor:
        spread = self.spread()
        away = (drawn - self.likeliest(states)) / spread
        return -(away.square() / 2 + spread.log() + math.log(2 * math.pi) / 2).sum(-1)  # (B, T - 1, 2) -> (B, T - 1)

    def count_batch(self) -> None:
        self.batches += 1


class RandomPolicy(Policy):
    """Anywhere in the image, whatever was seen."""

    predicts_by_chance = True

    def sample(self, state: Tensor, generators: Generators = None) -> Tensor:
        return 2 * _drawn(torch.rand, state[:, :2], generators) - 1


class CentrePolicy(Policy):
    """Always the middle of the image."""

    def sample(self, state: Tensor, generators: Generators = None) -> Tensor:
        return torch.zeros_like(state[:, :2])


TERMS = ("cross-entropy", "baseline", "reinforce")


class GlimpseNetwork(nn.Module):
    def __init__(self, config: Config, image: ImageShape, classes: int):
        super().__init__()
        self.glimpses = config.glimpses
        self.samples = config.samples
        self.reinforce = config.reinforce
        self.retina = Retina(config.patch, config.scales)
        self.what = nn.Linear(config.scales * image.channels * config.patch**2, config.hidden // 2)
        self.where = nn.Linear(2, config.hidden // 2)
        self.together = nn.Linear(config.hidden, config.hidden)
        self.core = nn.RNNCell(config.hidden, config.hidden, nonlinearity="relu")
        self.policy = policy(config)
        self.action = nn.Linear(config.hidden, classes)
        self.baseline = nn.Linear(config.hidden, 1)
        # A relu core that starts as a leaky sum of its glimpses: gradients reach the first one from the first batch on (Le 2015).
        nn.init.eye_(self.core.weight_hh)
        self.core.weight_hh.data.mul_(0.9)
        nn.init.constant_(self.baseline.bias, -math.log(classes))  # the reward of guessing

    def output_layers(self) -> list[nn.Linear]:
        return [self.action, self.baseline, *(layer for layer in self.policy.modules() if isinstance(layer, nn.Linear))]

    def forward(self, images: Tensor) -> Tensor:
        """Logits (B, classes): of a drawn path in training; else of the likeliest one, or of several drawn ones averaged."""
        if self.training:
            return self.action(self.follow(images, self.policy.sample).states[:, -1])
        if self.samples > 1:
            return self.probabilities(images, self.samples).log()
        return self.action(self.likeliest_path(images).states[:, -1])

    def likeliest_path(self, images: Tensor) -> Path:
        """The path that one prediction takes."""
        generators = _of_each(images) if self.policy.predicts_by_chance else None
        return self.follow(images, lambda state: self.policy.likeliest(state, generators))

    def probabilities(self, images: Tensor, samples: int) -> Tensor:
        """The mean probability of every class over so many drawn paths, the same ones each time it is asked: (B, classes)."""
        generators = _of_each(images)
        paths = (self.follow(images, lambda state: self.policy.sample(state, generators)) for _ in range(samples))
        return torch.stack([self.action(path.states[:, -1]).softmax(-1) for path in paths]).mean(0)

    def terms(self, images: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """The three parts of the loss (TERMS), each summed over the batch."""
        if self.training:
            self.policy.count_batch()
        path = self.follow(images, self.policy.sample)
        log_probabilities = self.action(path.states[:, -1]).log_softmax(-1)
        right = (targets * log_probabilities).sum(-1)  # (B, classes) -> (B,)
        reward = right.detach().clamp(min=-math.log(targets.shape[-1]))[:, None]
        known = path.states[:, :-1].detach()
        expected = self.baseline(known).squeeze(-1)  # (B, T - 1, D) -> (B, T - 1)
        advantage = reward - expected.detach()
        choices = max(self.glimpses - 1, 1)
        return {
            "cross-entropy": -right.sum(),
            "baseline": (expected - reward).square().sum() / choices,
            "reinforce": -self.reinforce * (advantage * self.policy.log_prob(known, path.drawn)).sum(),
        }

    def follow(self, images: Tensor, choose: Callable[[Tensor], Tensor]) -> Path:
        """Looks `glimpses` times: in the middle first, then where `choose` says, given the state (B, D)."""
        windows, size = self.retina.prepare(images), (images.shape[2], images.shape[3])
        location = self.retina.aligned(images.new_zeros(len(images), 2), size)
        state = images.new_zeros(len(images), self.core.hidden_size)
        locations, drawn, states = [], [], []
        for number in range(self.glimpses):
            if number:
                with torch.no_grad():
                    drawn.append(choose(state).to(images.dtype))
                location = self.retina.aligned(drawn[-1], size)
            state = self.look(windows, location, state)
            locations.append(location)
            states.append(state)
        choices = torch.stack(drawn, 1) if drawn else location.new_zeros(len(images), 0, 2)
        return Path(torch.stack(locations, 1), choices, torch.stack(states, 1))

    def look(self, windows: Tensor, location: Tensor, state: Tensor) -> Tensor:
        """One glimpse: the state (B, D) after it."""
        what = self.what(self.retina(windows, location).flatten(1))  # (B, S, C, P, P) -> (B, D / 2)
        glimpse = F.relu(self.together(F.relu(torch.cat((what, self.where(location)), -1))))
        return self.core(glimpse, state)


def policy(config: Config) -> Policy:
    if config.policy == "learned":
        return LearnedPolicy(config)
    return RandomPolicy() if config.policy == "random" else CentrePolicy()


def _of_each(images: Tensor) -> list[Generator]:
    """A source of random numbers for each image, seeded by its pixels."""
    pixels = images.detach().float().cpu().numpy()
    return [torch.Generator().manual_seed(crc32(image.tobytes())) for image in pixels]


def _drawn(kind: Callable[..., Tensor], like: Tensor, generators: Generators) -> Tensor:
    if generators is None:
        return kind(like.shape, device=like.device).to(like)
    return torch.stack([kind(like.shape[1:], generator=generator) for generator in generators]).to(like)


def build(config: Config, shapes: Shapes) -> GlimpseNetwork:
    return GlimpseNetwork(config, shapes.require_image(), shapes.classes)
