"""From scores to weights: which keys are taken, and how much of each.

| name             | which keys                                             | from             |
|------------------|--------------------------------------------------------|------------------|
| soft             | all, by softmax (global attention)                     | Bahdanau 2014    |
| hard             | one, sampled from the softmax; argmax in eval mode     | Xu 2015          |
| straight-through | as hard, with the gradient of soft                     | Bengio 2013      |
| local-m          | a window around position t                             | Luong 2015       |
| local-p          | a window around a predicted position, with a Gaussian  | Luong 2015       |

A selection returns `Alignment(weights, log_prob)`. `log_prob` is the log-probability of what was sampled, (..., Q), and 0 where nothing
was: a REINFORCE term `-(advantage * log_prob)` is right for every selection, sampled or not.

Axis legend: B batch, H heads, Q queries, K keys, S visible length of a source.
"""

from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from saccade.attention.visibility import both, is_whole


class Alignment(NamedTuple):
    weights: Tensor  # (..., Q, K)
    log_prob: Tensor  # (..., Q), or a single 0


class Selection(nn.Module):
    """Scores (..., Q, K) → Alignment. `name` is its name in YAML; `query` is what local-p predicts its window from."""

    name: ClassVar[str]

    def forward(self, scores: Tensor, visible: Tensor | None, query: Tensor, first_query: int = 0) -> Alignment:
        raise NotImplementedError

    @property
    def samples(self) -> bool:
        """Whether it draws random numbers; then only the explicit route is taken, or the sample would depend on the route."""
        return False


class Soft(Selection):
    """a = softmax(scores) over the visible keys."""

    name = "soft"

    def forward(self, scores: Tensor, visible: Tensor | None, query: Tensor, first_query: int = 0) -> Alignment:
        return Alignment(masked_softmax(scores, visible), _nothing_sampled(scores))


class Hard(Selection):
    """One key, sampled with the probabilities of the softmax (training) or the most probable one (eval)."""

    name = "hard"

    @property
    def samples(self) -> bool:
        return self.training

    def forward(self, scores: Tensor, visible: Tensor | None, query: Tensor, first_query: int = 0) -> Alignment:
        if not scores.shape[-1]:
            return Alignment(scores, scores.new_zeros(scores.shape[:-1]))
        weights, chosen = self._choose(scores, visible)
        log_probs = torch.log_softmax(_hide(scores, visible), dim=-1)
        log_prob = log_probs.gather(-1, chosen).squeeze(-1)
        if visible is not None:
            log_prob = log_prob * visible.expand(scores.shape).any(-1)
        return Alignment(weights, log_prob)

    def _choose(self, scores: Tensor, visible: Tensor | None) -> tuple[Tensor, Tensor]:
        """One-hot weights (..., Q, K) and the chosen key (..., Q, 1). The largest of scores + Gumbel noise is a sample of the softmax."""
        contest = scores.detach()
        if self.samples:
            contest = contest - torch.empty_like(contest).exponential_().log()
        chosen = _hide(contest, visible).argmax(-1, keepdim=True)
        weights = torch.zeros_like(scores).scatter(-1, chosen, 1.0)
        return weights if visible is None else weights.masked_fill(~visible, 0.0), chosen


class StraightThrough(Hard):
    """Forward the one sampled key; backward as if the soft weights had been used. Nothing is left for REINFORCE, so log_prob is 0."""

    name = "straight-through"

    def forward(self, scores: Tensor, visible: Tensor | None, query: Tensor, first_query: int = 0) -> Alignment:
        if not scores.shape[-1]:
            return Alignment(scores, _nothing_sampled(scores))
        one_hot, _ = self._choose(scores, visible)
        soft = masked_softmax(scores, visible)
        return Alignment(one_hot + (soft - soft.detach()), _nothing_sampled(scores))


class LocalMonotonic(Selection):
    """Softmax over the window t - reach … t + reach. Past the end of the source the window stays at the last word."""

    name = "local-m"

    def __init__(self, reach: int = 10):
        super().__init__()
        self.reach = _require_reach(reach, at_least=0)

    def forward(self, scores: Tensor, visible: Tensor | None, query: Tensor, first_query: int = 0) -> Alignment:
        step = torch.arange(first_query, first_query + scores.shape[-2], device=scores.device)
        centre = torch.minimum(step, source_length(scores, visible) - 1)  # (..., Q)
        window = (_key_positions(scores) - centre[..., None]).abs() <= self.reach
        return Alignment(masked_softmax(scores, both(visible, window)), _nothing_sampled(scores))


class LocalPredictive(Selection):
    """Softmax over the window p ± reach, times exp(-(k - p)² / 2σ²), with p = S · sigmoid(vᵀ tanh(W s)) and σ = reach / 2.

    As in the paper the product is not normalised again: a row sums to at most 1. p gets its gradient through the Gaussian.
    """

    name = "local-p"

    def __init__(self, query_size: int, reach: int = 10, *, heads: int | None = None):
        super().__init__()
        self.reach = _require_reach(reach, at_least=1)
        leading = () if heads is None else (heads,)
        bound = query_size**-0.5
        self.weight = nn.Parameter(torch.empty(*leading, query_size, query_size).uniform_(-bound, bound))
        self.v = nn.Parameter(torch.empty(*leading, query_size, 1).uniform_(-bound, bound))

    def forward(self, scores: Tensor, visible: Tensor | None, query: Tensor, first_query: int = 0) -> Alignment:
        if query.shape[-1] != self.weight.shape[-1]:
            raise ValueError(
                f"this selection takes queries of size {self.weight.shape[-1]} (of one head); got {query.shape[-1]}"
            )
        relative = torch.sigmoid(torch.tanh(query @ self.weight) @ self.v).squeeze(-1)  # (..., Q)
        centre = source_length(scores, visible) * relative
        distance = _key_positions(scores) - centre[..., None]  # (..., Q, K)
        window = distance.detach().abs() <= self.reach
        gaussian = torch.exp(-2.0 * (distance / self.reach).square())
        return Alignment(masked_softmax(scores, both(visible, window)) * gaussian, _nothing_sampled(scores))


def masked_softmax(scores: Tensor, visible: Tensor | None) -> Tensor:
    """Softmax over the visible keys. Hidden keys get exactly 0; a row that sees nothing is all 0, with gradient 0, never NaN."""
    if visible is None:
        return torch.softmax(scores, dim=-1)
    return torch.softmax(_hide(scores, visible), dim=-1).masked_fill(~visible, 0.0)


def source_length(scores: Tensor, visible: Tensor | None) -> Tensor:
    """S: one more than the last visible position, (..., Q or 1); K where nothing is hidden, and at least 1."""
    keys = scores.shape[-1]
    if visible is None:
        return torch.tensor([keys], device=scores.device)
    return (visible * _key_positions(scores, start=1)).amax(-1).clamp(min=1)


def _hide(scores: Tensor, visible: Tensor | None) -> Tensor:
    """The lowest finite score instead of -inf: a row of -inf alone would become NaN."""
    return scores if visible is None else scores.masked_fill(~visible, torch.finfo(scores.dtype).min)


def _key_positions(scores: Tensor, start: int = 0) -> Tensor:
    return torch.arange(start, start + scores.shape[-1], device=scores.device)


def _require_reach(reach: int, at_least: int) -> int:
    if not is_whole(reach) or reach < at_least:
        raise ValueError(f"the reach of a window must be an integer, {at_least} or more; got {reach}")
    return reach


def _nothing_sampled(scores: Tensor) -> Tensor:
    return scores.new_zeros(())


def all_selections() -> dict[str, type[Selection]]:
    """Every selection of this file by its name in YAML."""
    return {
        cls.name: cls
        for cls in globals().values()
        if isinstance(cls, type) and issubclass(cls, Selection) and "name" in vars(cls)
    }
