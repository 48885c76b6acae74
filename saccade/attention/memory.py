"""What attention looks at: keys as the score prepared them, and values.

Axis legend: Q queries, K keys, D features.
"""

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from saccade.attention import routes
from saccade.attention.scores import Score


class Memory(NamedTuple):
    """All that depends on the keys and values alone, computed once. Rows can be taken and positions added."""

    prepared: Tensor  # (..., K, as the score prepared it)
    value: Tensor  # (..., K, D)

    def scores(self, score: Score, query: Tensor) -> Tensor:
        """(..., Q, D) → (..., Q, K)"""
        return score(query, self.prepared)

    def sum(self, weights: Tensor) -> Tensor:
        """(..., Q, K) → (..., Q, D)"""
        return weights @ self.value

    def over_steps(self) -> "Memory":
        """The same for a loop that looks at it at every step: the gradients of keys and values come from all steps at once."""
        return _MemoryOverSteps(*self)

    def rows(self, index: Tensor) -> "Memory":
        return Memory(self.prepared[index], self.value[index])

    def then(self, later: "Memory") -> "Memory":
        return Memory(torch.cat((self.prepared, later.prepared), dim=-2), torch.cat((self.value, later.value), dim=-2))


class _MemoryOverSteps(Memory):
    def scores(self, score: Score, query: Tensor) -> Tensor:
        mode = score, torch.is_grad_enabled()
        if mode not in self._prepared_scores:
            self._prepared_scores[mode] = routes.scores_over_steps(score, self.prepared)
        return self._prepared_scores[mode](query)

    @cached_property
    def _prepared_scores(self) -> dict[tuple[Score, bool], Callable[[Tensor], Tensor]]:
        return {}

    @cached_property
    def sum(self) -> Callable[[Tensor], Tensor]:
        return routes.product_over_steps(self.value)
