"""Changing what a model attends to: the weights that a module selected are replaced by others.

    with change_attention(model, {"decoder.layers.0.cross_attention": onto([3], heads=[1])}):
        model(source, target)

Meanwhile the module's selection is wrapped in another one that changes its weights. Everything after it follows from the new weights,
recordings contain them, and only routes that hold weights are taken there. Other modules, and other threads that run the same model,
compute what they always do; a second thread that wants changes waits for the first.

Axis legend: B batch, H heads, Q queries, K keys.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn

from saccade.attention.attend import Attend
from saccade.attention.recording import uncompiled
from saccade.attention.selection import Alignment, Selection

Change = Callable[[Tensor], Tensor]
"""The weights of one call as selected, (B, Q, K) or (B, H, Q, K) -> the weights to use instead, of the same shape."""

# One change at a time: selections must be restored in the reverse order of their replacement.
_one_at_a_time = threading.RLock()
_changing: ContextVar[tuple[object, ...]] = ContextVar("saccade_changing", default=())


@contextmanager
def change_attention(model: nn.Module, changes: Mapping[str, Change]) -> Iterator[None]:
    """Use other weights in the attention modules named by their path. A compiled model runs eagerly meanwhile."""
    modules = {name: module for name, module in model.named_modules() if isinstance(module, Attend)}
    for name in changes:
        if name not in modules:
            raise KeyError(f"no attention module is called {name!r}; the model has: {', '.join(modules) or 'none'}")
    with _one_at_a_time, uncompiled:
        mine, before = object(), {name: modules[name].selection for name in changes}
        token = _changing.set((*_changing.get(), mine))
        for name, change in changes.items():
            modules[name].selection = _Changed(before[name], change, mine)
        try:
            yield
        finally:
            for name, selection in before.items():
                modules[name].selection = selection
            _changing.reset(token)


def onto(keys: Sequence[int], heads: Sequence[int] | None = None) -> Change:
    """All weight on these keys in equal shares, for some heads or for all."""

    def change(weights: Tensor) -> Tensor:
        target = torch.zeros_like(weights)
        target[..., list(keys)] = 1 / len(keys)
        return target.where(_chosen(weights, heads), weights)

    return change


def cut(heads: Sequence[int]) -> Change:
    """Some heads attend to nothing: their output is 0, as if their part of the output projection were."""
    return lambda weights: weights.masked_fill(_chosen(weights, heads), 0.0)


def _chosen(weights: Tensor, heads: Sequence[int] | None) -> Tensor:
    """The weights of these heads, as a mask that broadcasts to all weights; attention without heads is head 0."""
    count = weights.shape[1] if weights.dim() == 4 else 1
    chosen = torch.tensor([heads is None or head in heads for head in range(count)], device=weights.device)
    return chosen.view(-1, 1, 1)  # (H,) -> (H, 1, 1)


class _Changed(Selection):
    """A selection whose weights are changed, in the thread that asked for it."""

    name = "changed"

    def __init__(self, selection: Selection, change: Change, owner: object):
        super().__init__()
        self.selection = selection
        self.change = change
        self.owner = owner

    @property
    def samples(self) -> bool:
        return self.selection.samples

    def forward(self, scores: Tensor, visible: Tensor | None, query: Tensor, first_query: int = 0) -> Alignment:
        alignment: Alignment = self.selection(scores, visible, query, first_query)
        if self.owner not in _changing.get():
            return alignment
        return Alignment(self.change(alignment.weights), alignment.log_prob)
