"""The Transformer's blocks (Vaswani 2017): attention, a feed-forward layer, and a residual path around each.

    post-norm (as published)   x ← norm(x + dropout(f(x)))
    pre-norm (Xiong 2020)      x ← x + dropout(f(norm(x)))

Axis legend: B batch, N length (a step: hypotheses), S source length, D model size, W hypotheses of a sentence.
"""

from collections.abc import Callable
from typing import Any, Literal

from torch import Tensor, nn

from saccade.attention import CAUSAL, Memory, MultiHead, Packed
from saccade.layers.decoder_cache import Past
from saccade.layers.dropout import Dropout
from saccade.layers.feed_forward import FeedForward

Norm = Literal["pre", "post"]


class PostNorm(nn.Module):
    """norm(x + dropout(f(x)))"""

    def __init__(self, size: int, dropout: float, epsilon: float = 1e-5):
        super().__init__()
        self.norm = nn.LayerNorm(size, eps=epsilon)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, layer: Callable[[Tensor], Tensor]) -> Tensor:
        return self.norm(x + self.dropout(layer(x)))


class PreNorm(PostNorm):
    """x + dropout(f(norm(x)))"""

    def forward(self, x: Tensor, layer: Callable[[Tensor], Tensor]) -> Tensor:
        return x + self.dropout(layer(self.norm(x)))


RESIDUALS: dict[Norm, type[PostNorm]] = {"pre": PreNorm, "post": PostNorm}


class EncoderLayer(nn.Module):
    def __init__(
        self,
        self_attention: MultiHead,
        feed_forward: FeedForward,
        norm: Norm,
        dropout: float,
        epsilon: float = 1e-5,
    ):
        super().__init__()
        self.self_attention = self_attention
        self.feed_forward = feed_forward
        self.around_self_attention = RESIDUALS[norm](self_attention.size, dropout, epsilon)
        self.around_feed_forward = RESIDUALS[norm](self_attention.size, dropout, epsilon)

    def forward(self, x: Tensor, visible: Tensor | None = None, **how: Any) -> Tensor:
        x = self.around_self_attention(x, lambda h: self.self_attention(h, visible=visible, **how).context)
        return self.around_feed_forward(x, self.feed_forward)


class DecoderLayer(nn.Module):
    def __init__(
        self,
        self_attention: MultiHead,
        cross_attention: MultiHead,
        feed_forward: FeedForward,
        norm: Norm,
        dropout: float,
    ):
        super().__init__()
        self.self_attention = self_attention
        self.cross_attention = cross_attention
        self.feed_forward = feed_forward
        self.around_self_attention = RESIDUALS[norm](self_attention.size, dropout)
        self.around_cross_attention = RESIDUALS[norm](self_attention.size, dropout)
        self.around_feed_forward = RESIDUALS[norm](self_attention.size, dropout)

    def forward(self, x: Tensor, source: Memory, visible: Tensor | None, packed: Packed | None = None) -> Tensor:
        """All positions at once, none of which sees a later one. `packed`: sentences and their sources, each in one row."""
        own = None if packed is None else Packed(packed.queries, packed.queries)
        x = self.around_self_attention(x, lambda h: self.self_attention(h, band=CAUSAL, packed=own).context)
        return self._after_self_attention(x, source, visible=visible, packed=packed)

    def step(self, x: Tensor, past: Past, number: int, source: Memory, visible: Tensor | None, width: int) -> Tensor:
        """The next position (N, 1, D) of the layer with this number; `width` hypotheses in a row look at the same source."""
        position = past.length

        def attend(h: Tensor) -> Tensor:
            so_far = past.write(number, self.self_attention.remember(h, first_key=position))
            return self.self_attention.recall(h, so_far, first_query=position).context

        x = self.around_self_attention(x, attend)
        together = x.view(-1, width, x.shape[-1])  # (B, W, D)
        return self._after_self_attention(together, source, visible=visible).view_as(x)

    def _after_self_attention(self, x: Tensor, source: Memory, **how: Any) -> Tensor:
        x = self.around_cross_attention(x, lambda h: self.cross_attention.recall(h, source, **how).context)
        return self.around_feed_forward(x, self.feed_forward)
