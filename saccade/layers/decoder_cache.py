"""The key-value cache of a Transformer's decoder, so that a step costs little more than its own arithmetic.

The source is kept once for each sentence, however many hypotheses look at it: side by side, they are the queries of one attention.
The past of all layers is one buffer with room for more, so a step writes where the last one ended, and reordering hypotheses is one copy.
A cache stays valid after a step was taken from it: the second step from the same cache gets a copy.

Axis legend: L layers, N hypotheses, B sentences, W hypotheses of each, H heads, C steps there is room for, P size of a prepared key,
D size of a value.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from saccade.attention import Memory

_ROOM = 16  # steps to make room for at a time


class _Store:
    """Keys and values of all layers. `written` counts the steps that any cache has written."""

    def __init__(self, prepared: Tensor, value: Tensor, written: int):
        self.prepared = prepared  # (L, N, H, C, P)
        self.value = value  # (L, N, H, C, D)
        self.written = written

    def with_room(self, steps: int) -> "_Store":
        return _Store(_extended(self.prepared, steps), _extended(self.value, steps), self.written)

    def rows(self, index: Tensor, written: int) -> "_Store":
        return _Store(self.prepared.index_select(1, index), self.value.index_select(1, index), written)


class Past:
    """The keys and values of the steps so far, of every layer."""

    def __init__(self, layers: int, length: int = 0, store: _Store | None = None):
        self.layers = layers
        self.length = length
        self._store = store

    def begin_step(self, steps: int = 1) -> "Past":
        """The past to write the next step into, or several at once."""
        store = self._store
        if store is None:
            return Past(self.layers, self.length)
        if store.written > self.length:  # another step was taken from here already
            store = _Store(store.prepared.clone(), store.value.clone(), self.length)
        if store.prepared.shape[3] < self.length + steps:
            store = store.with_room(max(_ROOM, steps))
        return Past(self.layers, self.length, store)

    def write(self, layer: int, new: Memory) -> Memory:
        """Add one layer's step (N, H, 1, …), or several, and return all steps of this layer."""
        if self._store is None:
            self._store = _Store(self._room_like(new.prepared), self._room_like(new.value), 0)
        store, end = self._store, self.length + new.value.shape[2]
        store.prepared[layer, :, :, self.length : end] = new.prepared
        store.value[layer, :, :, self.length : end] = new.value
        return Memory(store.prepared[layer, :, :, :end], store.value[layer, :, :, :end])

    def _room_like(self, step: Tensor) -> Tensor:
        return step.new_empty(self.layers, *step.shape[:2], step.shape[2] - 1 + _ROOM, step.shape[-1])

    def end_step(self, steps: int = 1) -> "Past":
        assert self._store is not None
        self._store.written = self.length + steps
        return Past(self.layers, self.length + steps, self._store)

    def rows(self, index: Tensor) -> "Past":
        if self._store is None:
            return self
        return Past(self.layers, self.length, self._store.rows(index, self.length))


@dataclass(frozen=True)
class Cache:
    """Of N = B · W hypotheses, those of a sentence side by side."""

    past: Past
    source: tuple[Memory, ...]  # per layer, (B, …)
    visible: Tensor  # (B, 1, S)
    width: int = 1  # W

    @property
    def position(self) -> int:
        return self.past.length

    def rows(self, index: Tensor) -> "Cache":
        """Hypotheses may be left out, repeated and reordered. While all sentences have equally many, their sources stay as they are."""
        sentences = [row // self.width for row in index.tolist()]  # few: Python is faster than a dozen small tensors
        kept = list(dict.fromkeys(sentences))
        width = len(sentences) // max(len(kept), 1)
        if sentences != [sentence for sentence in kept for _ in range(width)]:
            kept, width = sentences, 1
        past = self.past.rows(index)
        if kept == list(range(len(self.visible))):
            return replace(self, past=past, width=width)
        chosen = torch.tensor(kept, device=index.device, dtype=torch.long)
        source = tuple(memory.rows(chosen) for memory in self.source)
        return replace(self, past=past, source=source, visible=self.visible[chosen], width=width)


def _extended(tensor: Tensor, steps: int) -> Tensor:
    room = tensor.new_empty(*tensor.shape[:3], steps, tensor.shape[4])
    return torch.cat((tensor, room), 3)
