"""What would the model have written, had it looked elsewhere?

Two interventions: at one step all weight is turned onto chosen source tokens, or a head is cut off throughout. Tokens before the place of
the last intervention stay as they are; from there on the search runs anew with attention changed, and the outcome is walked through once
more while recording, so that the maps show the weights that were used.

The model is stepped, never read as a whole: only a step knows for every kind of decoder which token is being written.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from saccade.attention import Attend, record_attention
from saccade.attention.intervening import Change, change_attention, cut, onto
from saccade.data.text.tokenizer import BOS, EOS
from saccade.decoding import Hypothesis, score_targets
from saccade.errors import UserError
from saccade.tasks.translation.look import labelled
from saccade.tasks.translation.searching import search, stepper_for
from saccade.tasks.writing import as_prefix, looks_at
from saccade.views.maps import AttentionMap

if TYPE_CHECKING:
    from saccade.tasks.translation.task import TranslationTask


@dataclass(frozen=True)
class Turn:
    """While token `position` is written, look at the source tokens `keys` alone; in one module or all, in one head or all."""

    position: int
    keys: tuple[int, ...]
    name: str | None = None
    head: int | None = None


@dataclass(frozen=True)
class Cut:
    """Head `head` of the module `name` passes nothing on."""

    name: str
    head: int


Intervention = Turn | Cut


@dataclass(frozen=True)
class Outcome:
    hypothesis: Hypothesis
    maps: list[AttentionMap]
    kept: int  # tokens that stayed because they stand before the last intervention


@torch.no_grad()
def what_if(
    task: "TranslationTask",
    source: list[int],
    target: list[int],
    interventions: Sequence[Intervention],
    words: bool = True,
) -> Outcome:
    """The translation (tokens) `target` of `source` after interventions, in the order in which somebody made them."""
    task.model.eval()
    for intervention in interventions:
        _check(task, source, target, intervention)
    last = interventions[-1] if interventions else None
    forced = target[: last.position] if isinstance(last, Turn) else []
    changed = ChangedSteps(task, interventions)
    with changed.always():
        hypothesis = search(task, source, task.recipe.decode, forced, None, changed, task.encoded([source])[0])[0]
    return Outcome(hypothesis, _replayed(task, source, hypothesis, changed, words), len(forced))


class ChangedSteps:
    """A decoder's steps with its attention changed. The state counts the tokens."""

    def __init__(self, task: "TranslationTask", interventions: Sequence[Intervention]):
        self.model = task.model
        self.stepper = stepper_for(task, task.recipe.decode)
        self.interventions = interventions

    def start(self, memory: Any) -> tuple[int, Any]:
        return 0, self.stepper.start(memory)

    def step(self, token: Tensor, state: tuple[int, Any]) -> tuple[Tensor, tuple[int, Any]]:
        position, inner = state
        with change_attention(self.model, self._turns(position)):
            logits, inner = self.stepper.step(token, inner)
        return logits, (position + 1, inner)

    def select(self, state: tuple[int, Any], rows: Tensor) -> tuple[int, Any]:
        return state[0], self.stepper.select(state[1], rows)

    def coverage(self, state: tuple[int, Any]) -> Tensor:
        covered: Tensor = self.stepper.coverage(state[1])
        return covered

    @contextmanager
    def always(self) -> Iterator[None]:
        """What holds at every step, and while the source is read."""
        heads: dict[str, list[int]] = {}
        for intervention in self.interventions:
            if isinstance(intervention, Cut):
                heads.setdefault(intervention.name, []).append(intervention.head)
        with change_attention(self.model, {name: cut(numbers) for name, numbers in heads.items()}):
            yield

    def _turns(self, position: int) -> dict[str, Change]:
        changes: dict[str, list[Change]] = {}
        for intervention in self.interventions:
            if isinstance(intervention, Turn) and intervention.position == position:
                for name in (
                    looks_at(self.model, "target", "source") if intervention.name is None else [intervention.name]
                ):
                    change = onto(intervention.keys, None if intervention.head is None else [intervention.head])
                    changes.setdefault(name, []).append(_where_it_looks(change))
        return {name: _in_order(own) for name, own in changes.items()}


def _where_it_looks(change: Change) -> Change:
    """A head that was cut looks at nothing, and no turn brings it back."""
    return lambda weights: change(weights) * weights.any(dim=-1, keepdim=True)


def _in_order(changes: Sequence[Change]) -> Change:
    return lambda weights: reduce(lambda so_far, change: change(so_far), changes, weights)


@torch.no_grad()
def _replayed(
    task: "TranslationTask", source: list[int], hypothesis: Hypothesis, changed: ChangedSteps, words: bool
) -> list[AttentionMap]:
    tokens = hypothesis.tokens
    with changed.always(), record_attention(task.model) as recorded:
        begin = torch.tensor([BOS], device=task.device)
        score_targets(changed, task.encoded([source])[0], begin, *as_prefix([tokens]), eos=EOS)
    return [labelled(task, name, recorded.joined(name)[0], source, tokens, words) for name in recorded]


def _check(task: "TranslationTask", source: list[int], target: list[int], intervention: Intervention) -> None:
    modules = {name: module for name, module in task.model.named_modules() if isinstance(module, Attend)}
    if not modules:
        raise UserError("this model has no attention, so there is nothing to change: choose a run that attends")
    turning = isinstance(intervention, Turn)
    allowed = looks_at(task.model, "target", "source") if turning else list(modules)
    name, head = intervention.name, intervention.head
    if name is not None and name not in allowed:
        what = "no attention to the source" if turning else "no attention"
        raise UserError(f"this model has {what} called {name!r}: choose one of {', '.join(allowed)}")
    heads = min(getattr(modules[module_name], "heads", 1) for module_name in (allowed if name is None else [name]))
    if head is not None and head >= heads:
        raise UserError(f"head {head} was asked for, and there are {heads}: count from 0")
    if isinstance(intervention, Turn):
        if intervention.position > len(target):
            raise UserError(
                f"step {intervention.position} was asked for, and there are {len(target) + 1}: count from 0"
            )
        if not intervention.keys or max(intervention.keys) > len(source):
            raise UserError(f"the source has {len(source) + 1} tokens, its end included: count from 0")
