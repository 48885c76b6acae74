"""The result of a search or of scoring a target."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Hypothesis:
    """One output. Log-probabilities are always the model's: over the whole vocabulary, at temperature 1.

    `token_log_probs` has one entry per token and, when the output is `finished`, one more for its end, so that
    `log_prob` is always their sum; it is None where another engine gives only the sum. `score` is what the outputs were
    ranked by: `log_prob` after the penalties.
    """

    tokens: list[int]  # without the begin token, without eos
    score: float
    log_prob: float
    finished: bool  # False: the length limit came before eos
    token_log_probs: list[float] | None


def read_hypothesis(
    tokens: Sequence[int], token_log_probs: Sequence[float], eos: int, score: float | None = None
) -> Hypothesis:
    """The hypothesis that generated `tokens`, of which eos can only be the last."""
    finished = bool(tokens) and tokens[-1] == eos
    log_prob = float(sum(token_log_probs))
    return Hypothesis(
        tokens=list(tokens[:-1] if finished else tokens),
        score=log_prob if score is None else score,
        log_prob=log_prob,
        finished=finished,
        token_log_probs=list(token_log_probs),
    )
