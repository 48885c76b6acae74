"""Many heads over any score (Vaswani 2017).

    head_i = Attend(query Wq_i, key Wk_i, value Wv_i)
    output = [head_1; …; head_H] Wo

Each head has its own projections and, if the score has parameters, its own score. With fewer heads for keys and values (Ainslie 2023),
neighbouring heads share theirs: head i looks at keys and values number i · key_heads / heads.

Axis legend: B batch, H heads, G heads of keys, Q queries, K keys, N length, D model size.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from saccade.attention.attend import Attend, Attended
from saccade.attention.border import require_input, require_numbers
from saccade.attention.memory import Memory
from saccade.attention.packing import Packed
from saccade.attention.positions import RelativeBias, Rotary
from saccade.attention.routes import RMSNorm, Route
from saccade.attention.scores import ScaledDot, Score
from saccade.attention.selection import Selection
from saccade.attention.visibility import Band, is_whole

_EPSILON = 1e-6  # added to the mean square of queries and keys


class MultiHead(Attend):
    """Self-attention with `multihead(x)`, cross-attention with `multihead(query, key, value)`, all (B, length, size).

    `visible` and `bias` broadcast to (Q, K), (B, Q, K) or (B, H, Q, K). `score` is a class from `saccade.attention.scores` (or anything
    called the same way); `selection` is shared by the heads. Keys and values may have sizes of their own. `query_key_norm`: queries and
    keys of a head are divided by their root mean square, times a learned gain (Henry 2020), so that scores stay small.
    """

    def __init__(
        self,
        size: int,
        heads: int,
        *,
        key_size: int | None = None,
        value_size: int | None = None,
        score: Callable[..., Score] = ScaledDot,
        selection: Selection | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        rotary: Rotary | None = None,
        relative: RelativeBias | None = None,
        route: Route | str | None = None,
        key_heads: int | None = None,
        query_key_norm: bool = False,
    ):
        if not is_whole(heads) or heads < 1 or size < 1 or size % heads:
            raise ValueError(
                f"there must be at least one head, and size must be a multiple of heads; got size {size} and {heads} heads"
            )
        if not callable(score):
            raise ValueError(
                f"score must be a class of saccade.attention, such as ScaledDot or Additive; got {score!r}"
            )
        if relative is not None and relative.table.shape[1] != heads:
            raise ValueError(f"relative has positions for {relative.table.shape[1]} heads; this layer has {heads}")
        key_heads = heads if key_heads is None else key_heads
        if key_heads != heads and (key_heads < 1 or heads % key_heads or score is not ScaledDot):
            raise ValueError(
                f"heads must be a multiple of key_heads, and the score a scaled dot product where they differ; "
                f"got {heads} heads and {key_heads} of keys"
            )
        head_size = size // heads
        super().__init__(score(head_size, head_size, heads=heads), selection, dropout, route)
        self.size = size
        self.heads = heads
        self.key_size = size if key_size is None else key_size
        self.value_size = self.key_size if value_size is None else value_size
        self.query = nn.Linear(size, size, bias=bias)
        self.key_heads = key_heads
        self.key = nn.Linear(self.key_size, key_heads * head_size, bias=bias)
        self.value = nn.Linear(self.value_size, key_heads * head_size, bias=bias)
        self.output = nn.Linear(size, size, bias=bias)
        self.rotary = rotary
        self.relative = relative
        self.query_norm = RMSNorm(head_size, eps=_EPSILON) if query_key_norm else None
        self.key_norm = RMSNorm(head_size, eps=_EPSILON) if query_key_norm else None
        for projection in (self.query, self.key, self.value, self.output):
            nn.init.xavier_uniform_(projection.weight)
            if bias:
                nn.init.zeros_(projection.bias)

    def forward(self, query: Tensor, key: Tensor | None = None, value: Tensor | None = None, **how: Any) -> Attended:
        """`how`: visible, band, bias, first_query, packed, as for `Attend`."""
        require_input("query", query, self.size)
        key = query if key is None else key
        packed: Packed | None = how.get("packed")
        first_key = 0 if packed is None else packed.keys.positions
        return self.recall(query, self.remember(key, value, first_key), **how)

    def remember(self, key: Tensor, value: Tensor | None = None, first_key: int | Tensor = 0) -> Memory:
        """Keys and values of each of their heads (B, G, K, D / H); `first_key`: the position of the first or of each, for rotary ones."""
        value = key if value is None else value
        require_input("key", key, self.key_size)
        require_input("value", value, self.value_size)
        heads = self._split(self.key(key))
        if self.key_norm is not None:
            heads = self.key_norm(heads)
        if self.rotary is not None:
            heads = self.rotary(heads, first_key)
        return super().remember(heads, self._split(self.value(value)))

    def recall(
        self,
        query: Tensor,
        memory: Memory,
        *,
        visible: Tensor | None = None,
        band: Band | None = None,
        bias: Tensor | None = None,
        first_query: int = 0,
        packed: Packed | None = None,
    ) -> Attended:
        require_input("query", query, self.size)
        heads = self._split(self.query(query))
        if self.query_norm is not None:
            heads = self.query_norm(heads)
        if self.rotary is not None:
            heads = self.rotary(heads, first_query if packed is None else packed.queries.positions)
        visible, bias = _for_every_head(visible), _for_every_head(bias)
        if self.relative is not None:
            if bias is not None:
                require_numbers(bias)
            distance = self.relative(query.shape[-2], memory.value.shape[-2], first_query)
            bias = distance if bias is None else bias + distance
        if self.key_heads != self.heads:
            memory = Memory(*(x.repeat_interleave(self.heads // self.key_heads, dim=1) for x in memory))
        attended = super().recall(
            heads, memory, visible=visible, band=band, bias=bias, first_query=first_query, packed=packed
        )
        joined = attended.context.transpose(1, 2).flatten(2)  # (B, H, Q, D / H) -> (B, Q, D)
        return Attended(self.output(joined), attended.log_prob)

    def _split(self, projected: Tensor) -> Tensor:
        # (B, N, D) -> (B, H, N, D / H), or with the fewer heads of keys
        return projected.unflatten(-1, (-1, self.size // self.heads)).transpose(1, 2)

    @classmethod
    def from_torch(cls, layer: nn.MultiheadAttention) -> "MultiHead":
        """The same layer with the weights of a `torch.nn.MultiheadAttention`. Inputs here are always (B, length, size)."""
        if layer.bias_k is not None or layer.add_zero_attn:
            raise ValueError(
                "a torch layer with add_bias_kv or add_zero_attn attends to keys that are not in its input; there is no such key here"
            )
        bias = layer.in_proj_bias is not None
        ours = cls(
            layer.embed_dim,
            layer.num_heads,
            key_size=layer.kdim,
            value_size=layer.vdim,
            dropout=layer.dropout,
            bias=bias,
        ).to(layer.out_proj.weight)
        if layer.in_proj_weight is not None:
            weights = layer.in_proj_weight.chunk(3)
        else:
            weights = (layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight)
        projections = (ours.query, ours.key, ours.value, ours.output)
        own = [projection.weight for projection in projections]
        theirs = [*weights, layer.out_proj.weight]
        if bias:
            own += [projection.bias for projection in projections]
            theirs += [*layer.in_proj_bias.chunk(3), layer.out_proj.bias]
        for parameter, original in zip(own, theirs, strict=True):
            parameter.requires_grad_(original.requires_grad)  # what was frozen stays frozen
            with torch.no_grad():
                parameter.copy_(original)
        return ours.train(layer.training)


def _for_every_head(mask: Tensor | None) -> Tensor | None:
    """(B, Q, K) -> (B, 1, Q, K)"""
    return mask.unsqueeze(1) if isinstance(mask, Tensor) and mask.dim() == 3 else mask
