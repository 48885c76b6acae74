"""Sampling: tokens drawn from the model's distribution, with temperature, top-k, top-p and min-p.

The order is temperature, then top-k, then top-p (the nucleus of Holtzman et al. 2020, https://arxiv.org/abs/1904.09751):
the smallest set of tokens, likeliest first, that together hold at least p of the probability left after top-k. Then min-p (Nguyen 2024)
drops those that are less than so many times as likely as the likeliest one.

Every hypothesis has a random stream of its own, seeded by (seed, number of the sentence, number of the sample).
A sentence therefore gets the same samples alone and in any batch, and its third sample does not depend on how many are
drawn. When a corpus is cut into batches, give each sentence its number in the corpus as `numbers`.
"""

import hashlib
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.decoding.constraints import Constraints, Prefix
from saccade.decoding.hypothesis import Hypothesis
from saccade.decoding.stepper import State, Stepper
from saccade.decoding.walk import walk
from saccade.errors import ConfigError

NUCLEUS_TOKENS = 256  # most nuclei are within this many tokens; only rows with a wider one sort the whole vocabulary


@dataclass(frozen=True)
class SamplingConfig:
    samples: int = 1
    temperature: float = 1.0  # below 1 sharper, above 1 flatter
    top_k: int | None = None  # only the k likeliest tokens
    top_p: float = 1.0  # only the nucleus that holds this share of the probability
    min_p: float = 0.0  # only tokens at least so many times as likely as the likeliest

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise ConfigError(f"samples is {self.samples}: draw at least 1 per sentence")
        if not 0.001 <= self.temperature <= 1000:
            raise ConfigError(
                f"temperature is {self.temperature}: it must be from 0.001 to 1000; use greedy search for no randomness"
            )
        if self.top_k is not None and self.top_k < 1:
            raise ConfigError(f"top_k is {self.top_k}: keep at least 1 token, or leave it out to keep all")
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"top_p is {self.top_p}: it is a share of the probability, above 0 and at most 1 (all)")
        if not 0 <= self.min_p <= 1:
            raise ConfigError(
                f"min_p is {self.min_p}: it is a share of the likeliest token's probability, from 0 (all) to 1"
            )


def sample(
    stepper: Stepper[State],
    memory: Any,
    begin: Tensor,
    config: SamplingConfig,
    *,
    eos: int,
    pad: int,
    max_length: Tensor | int,
    seed: int,
    numbers: Tensor | None = None,
    prefix: Prefix | None = None,
) -> list[list[Hypothesis]]:
    """`config.samples` hypotheses per sentence, in the order drawn; `begin` and `max_length` as in greedy search.

    Their log-probabilities are the model's, before temperature and truncation, so they compare with those of beam search.
    """
    constraints = Constraints.of(begin, eos, pad, max_length, prefix)
    order = torch.arange(len(begin)) if numbers is None else numbers
    uniform = streams(seed, order.tolist(), config.samples, constraints.limit.tolist())

    def drawn(log_probs: Tensor, rows: Tensor, position: int) -> Tensor:
        log_probs = log_probs.index_fill(1, torch.tensor([pad], device=log_probs.device), -torch.inf)
        return draw(log_probs, uniform[rows, position].to(log_probs.device), config)

    paths = walk(stepper, memory, begin, drawn, constraints, copies=config.samples)
    return [paths[row : row + config.samples] for row in range(0, len(paths), config.samples)]


def draw(logits: Tensor, uniform: Tensor, config: SamplingConfig) -> Tensor:
    """One token a row (N,) from logits (N, V), by where `uniform` (N,) in [0, 1) falls in the truncated distribution."""
    logits = logits / config.temperature
    vocabulary = logits.shape[1]
    if config.top_k is not None:
        value, token = logits.topk(min(config.top_k, vocabulary))
        return _pick(value.softmax(1), token, uniform, config)
    share = logits.softmax(1)
    if config.top_p == 1:
        return _pick(share, torch.arange(vocabulary, device=share.device).expand_as(share), uniform, config)
    value, token = share.topk(min(NUCLEUS_TOKENS, vocabulary))
    picked = _pick(value, token, uniform, config)
    wider = (value.sum(1) < config.top_p).nonzero().squeeze(1)
    if len(wider):
        value, token = share[wider].sort(dim=1, descending=True, stable=True)
        picked[wider] = _pick(value, token, uniform[wider], config)
    return picked


def _pick(share: Tensor, token: Tensor, uniform: Tensor, config: SamplingConfig) -> Tensor:
    """The token whose interval of the cumulative shares contains `uniform`; (N, C), likeliest first if top_p < 1."""
    if config.top_p < 1:
        before = F.pad(share.cumsum(1)[:, :-1], (1, 0))
        share = share.masked_fill(before >= config.top_p, 0)
    if config.min_p > 0:
        share = share.masked_fill(share < config.min_p * share.amax(1, keepdim=True), 0)
    reached = share.cumsum(1)
    mass = reached[:, -1]
    # Strictly below the mass, so that a token of share 0 is never the answer.
    target = (uniform * mass).minimum(mass.nextafter(torch.zeros_like(mass)))
    place = torch.searchsorted(reached, target.unsqueeze(1), right=True)
    return token.gather(1, place).squeeze(1)


def streams(seed: int, numbers: list[int], samples: int, limits: list[int]) -> Tensor:
    """One row of numbers in [0, 1) per hypothesis, each from its own generator, as long as its limit."""
    uniform = torch.zeros(len(numbers) * samples, max(limits, default=0))
    generator = torch.Generator()
    for row in range(len(uniform)):
        sentence, drawing = divmod(row, samples)
        name = f"{seed} {numbers[sentence]} {drawing}"
        generator.manual_seed(int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest(), "big"))
        uniform[row, : limits[sentence]] = torch.rand(limits[sentence], generator=generator)
    return uniform
