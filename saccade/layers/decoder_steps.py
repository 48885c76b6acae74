"""One step of a search at a time through a stack of decoder layers: by the modules, or by a shortcut with the same numbers.

    state = start(layers, norm, source, visible)
    y, state = step(layers, norm, y, state)             # (N, 1, D) -> (N, 1, D)

Axis legend: N hypotheses, B sentences, S source length, D model size.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor, nn

from saccade.attention import Memory
from saccade.layers.decoder_cache import Cache, Past
from saccade.layers.decoder_shortcut import Prepared, Shortcut, plain_linear, weights_stay
from saccade.layers.transformer import DecoderLayer

__all__ = ["Prepared", "State", "plain_linear", "start", "step", "weights_stay"]


@dataclass(frozen=True)
class State:
    """Where a search is: what the decoder remembers, and the shortcut for its next step where there is one."""

    cache: Cache
    shortcut: Shortcut | None

    @property
    def position(self) -> int:
        return self.cache.position

    def rows(self, index: Tensor) -> "State":
        """Hypotheses may be left out, repeated and reordered."""
        return replace(self, cache=self.cache.rows(index))


def start(layers: Sequence[DecoderLayer], norm: nn.Module, source: tuple[Memory, ...], visible: Tensor) -> State:
    """Before the first step. `source` is what each layer remembers of it, `visible` (B, 1, S)."""
    return State(Cache(Past(len(layers)), source, visible), Shortcut.through(layers, norm))


def step(layers: Sequence[DecoderLayer], norm: nn.Module, y: Tensor, state: State) -> tuple[Tensor, State]:
    """The next position (N, 1, D) of every hypothesis, and the state after it."""
    cache = state.cache
    past = cache.past.begin_step()
    if state.shortcut is not None and state.shortcut.may_be_taken():
        y = state.shortcut.step(y, cache, past)
    else:
        for number, (layer, source) in enumerate(zip(layers, cache.source, strict=True)):
            y = layer.step(y, past, number, source, cache.visible, cache.width)
        y = norm(y)
    return y, replace(state, cache=replace(cache, past=past.end_step()))
