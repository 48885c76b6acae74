"""The log-probability of targets, token by token, by teacher forcing through the same steps as a search."""

from typing import Any

import torch
from torch import Tensor

from saccade.decoding.constraints import Constraints, Prefix, forced_tokens
from saccade.decoding.hypothesis import Hypothesis
from saccade.decoding.stepper import State, Stepper
from saccade.decoding.walk import walk
from saccade.errors import ConfigError


def score_targets(
    stepper: Stepper[State], memory: Any, begin: Tensor, targets: Tensor, lengths: Tensor, *, eos: int
) -> list[Hypothesis]:
    """Each target as a finished hypothesis: log P(target, eos | source), in all and per token.

    `targets` is (B, T) without eos, of which the first `lengths` (B,) tokens count. `score` is the plain `log_prob`.
    """
    forced = forced_tokens(Prefix(targets, lengths), len(begin))
    if (forced == eos).any():
        raise ConfigError(f"a target contains eos ({eos}): leave it out, the end is added")
    end = torch.full((len(forced), 1), eos)
    ended = torch.cat([forced.where(forced >= 0, eos), end], dim=1)  # (B, T) -> (B, T + 1)

    def next_target(log_probs: Tensor, rows: Tensor, position: int) -> Tensor:
        return ended[rows, position].to(log_probs.device)

    limit = lengths.cpu() + 1
    constraints = Constraints(limit, torch.empty(len(forced), 0, dtype=torch.long), eos, pad=eos)
    return walk(stepper, memory, begin, next_target, constraints)
