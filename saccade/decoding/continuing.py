"""Writing on from given texts, a token at a time: each step is told as it is made, so whoever reads can stop.

    for step in continued(model, prompts, Continuing(SamplingConfig(temperature=0.8)), never=(0, 1), limit=200, seed=1):
        step.tokens, step.log_probs                   # of every text

Greedy where there is no `sampling`. A repetition penalty divides the positive logits of tokens that were read or written before, and
multiplies the negative ones (Keskar 2019). Texts have random numbers of their own, as in sampling.py. Log-probabilities are the model's.

Axis legend: B texts, P length of a prompt, V vocabulary.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from saccade.decoding.sampling import SamplingConfig, draw, streams
from saccade.decoding.stepper import State, Stepper, chosen_log_prob, log_probs_of
from saccade.errors import ConfigError


@dataclass(frozen=True)
class Continuing:
    sampling: SamplingConfig | None = None  # of one sample; None is greedy
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        if not self.repetition_penalty > 0:
            raise ConfigError(f"repetition_penalty is {self.repetition_penalty}: it must be above 0; 1 is none")


@dataclass(frozen=True)
class Step:
    """One more token of each text."""

    tokens: list[int]
    log_probs: list[float]


@torch.inference_mode()
def continued(
    stepper: Stepper[State],
    prompts: Tensor,
    how: Continuing,
    *,
    never: Sequence[int],
    limit: int,
    seed: int,
    numbers: Sequence[int] | None = None,
) -> Iterator[Step]:
    """Steps after the prompts (B, P), at least one token each, `limit` of them at most. `never` are tokens that are not written. A text
    that has ended goes on for the others' sake; what it writes then is to be left out."""
    count = len(prompts)
    uniform = streams(seed, list(range(count)) if numbers is None else list(numbers), 1, [limit] * count)
    state, token = stepper.start(prompts[:, :-1]), prompts[:, -1]
    seen: Tensor | None = None
    unwanted = torch.tensor(list(never), device=prompts.device, dtype=torch.long)
    for position in range(limit):
        logits, state = stepper.step(token, state)
        log_probs = log_probs_of(logits)
        wanted = logits.float()
        if how.repetition_penalty != 1.0:
            if seen is None:
                seen = torch.zeros_like(wanted, dtype=torch.bool).scatter_(1, prompts, True)
            penalised = torch.where(wanted > 0, wanted / how.repetition_penalty, wanted * how.repetition_penalty)
            wanted = torch.where(seen, penalised, wanted)
        wanted = wanted.index_fill(1, unwanted, -torch.inf)
        dice = uniform[:, position].to(wanted.device)
        token = wanted.argmax(1) if how.sampling is None else draw(wanted, dice, how.sampling)
        if seen is not None:
            seen.scatter_(1, token[:, None], True)
        yield Step(token.tolist(), chosen_log_prob(log_probs, token).tolist())
