"""The loop of greedy search, sampling and scoring: every row follows one path and leaves the batch when it ends."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from saccade.decoding.constraints import FREE, Constraints
from saccade.decoding.hypothesis import Hypothesis, read_hypothesis
from saccade.decoding.stepper import State, Stepper, chosen_log_prob, log_probs_of, select_rows

Choose = Callable[[Tensor, Tensor, int], Tensor]
"""(log-probabilities (N, V), the numbers of the rows (N,), position) -> the next token of each (N,)."""


@torch.inference_mode()
def walk(
    stepper: Stepper[State],
    memory: Any,
    begin: Tensor,
    choose: Choose,
    constraints: Constraints,
    copies: int = 1,
) -> list[Hypothesis]:
    """Follow `choose` from `begin` (B,) to eos or the limit; `copies` rows per sentence, side by side in the result."""
    if len(begin) == 0:
        return []
    rows = torch.arange(len(begin) * copies)
    most = int(constraints.limit.max())
    tokens = torch.full((len(rows), most), constraints.pad)
    log_probs = torch.zeros(len(rows), most, dtype=torch.float64)
    lengths = torch.zeros_like(rows)

    token = begin.repeat_interleave(copies)
    state = select_rows(stepper, stepper.start(memory), rows // copies, len(begin), begin.device)
    for position in range(most):
        logits, state = stepper.step(token, state)
        step_log_probs = log_probs_of(logits)
        token = choose(step_log_probs, rows, position)
        forced = constraints.forced_at(position, rows // copies)
        if forced is not None:
            forced = forced.to(token.device)
            token = torch.where(forced == FREE, token, forced)

        written = token.cpu()
        tokens[rows, position] = written
        log_probs[rows, position] = chosen_log_prob(step_log_probs, token).cpu().double()
        lengths[rows] = position + 1

        unfinished = (
            ((written != constraints.eos) & (position + 1 < constraints.limit[rows // copies])).nonzero().squeeze(1)
        )
        if len(unfinished) == 0:
            break
        state = select_rows(stepper, state, unfinished, len(rows), begin.device)
        token, rows = token[unfinished.to(token.device)], rows[unfinished]

    return [
        read_hypothesis(row[:length], values[:length], constraints.eos)
        for row, values, length in zip(tokens.tolist(), log_probs.tolist(), lengths.tolist(), strict=True)
    ]
