"""The arguments of attention, checked once where they come in: an error says what was passed, what is allowed and what to do.

A wrong shape that happens to broadcast is the worst kind of mistake: it silently computes something else.

Axis legend: B batch, H heads, Q queries, K keys, D features.
"""

from typing import Any

import torch
from torch import Tensor

from saccade.attention.lookup import Lookup
from saccade.attention.visibility import Band


def check_question(lookup: Lookup, query_size: int) -> None:
    """Queries of the right size and the same batch as the keys, a boolean mask, a floating-point bias, a Band as band."""
    if lookup.query.shape[-1] != query_size:
        raise ValueError(f"this attention takes queries of size {query_size}; got {lookup.query.shape[-1]}")
    if lookup.packed is not None:
        if lookup.visible is not None or lookup.bias is not None or lookup.first_query:
            raise ValueError("packed sequences may have a band, but no mask, bias or first query: pad them instead")
        lookup.packed.check(lookup.query, lookup.prepared)
    if torch.compiler.is_compiling():  # a graph for every length cannot compare lengths
        return
    visible, bias, query, key = lookup.visible, lookup.bias, lookup.query.shape, lookup.prepared.shape
    if query[:-1] == key[:-2] and len(query) > 1:
        raise ValueError(
            f"queries have an axis of their own, (batch, queries, size); got {tuple(query)} for keys {tuple(key)}: "
            "for one query per sequence pass query[:, None], for the same queries for all pass query[None]"
        )
    if isinstance(lookup.first_query, int) and lookup.first_query < 0:
        raise ValueError(f"first_query must be a position, 0 or more; got {lookup.first_query}")
    if lookup.band is not None and not isinstance(lookup.band, Band):
        raise ValueError(
            f"band must be a Band, such as CAUSAL or Band(before=4, after=0); got {lookup.band!r}: pass a mask as visible"
        )
    if visible is None and bias is None and query[:-2] == key[:-2]:
        return
    scores = _scores(query, key, lookup.value.shape)
    if visible is not None:
        require_mask(visible, scores)
        _require_device("visible", visible, lookup.query)
    if bias is not None:
        _require_bias(bias, scores)
        _require_device("bias", bias, lookup.query)


def require_mask(visible: Any, scores: tuple[int, ...]) -> None:
    """`visible` must be a boolean tensor that broadcasts to the scores (..., Q, K)."""
    if not isinstance(visible, Tensor):
        hint = ": pass it as band" if isinstance(visible, Band) else ": convert it to a tensor"
        raise ValueError(f"visible must be a boolean tensor, True where a query may look; got {visible!r}{hint}")
    if visible.dtype is not torch.bool:
        raise ValueError(
            f"visible must be boolean, True where a query may look; got {visible.dtype}: compare it with a number (mask > 0), "
            "or pass what is to be added to the scores as bias"
        )
    if not _broadcasts(visible, scores):
        keys_alone = ", ".join(["batch", *["1"] * (len(scores) - 2), "keys"])
        raise ValueError(
            f"visible must broadcast to the scores, {scores} with queries and keys last; got {_shape(visible)}: "
            f"a mask of keys alone is ({keys_alone})"
        )


def require_numbers(bias: Any) -> None:
    if not isinstance(bias, Tensor) or not bias.is_floating_point():
        actual = bias.dtype if isinstance(bias, Tensor) else repr(bias)
        raise ValueError(
            f"bias must be a floating-point tensor that is added to the scores; got {actual}: pass a mask as visible"
        )


def _require_bias(bias: Any, scores: tuple[int, ...]) -> None:
    require_numbers(bias)
    if not _broadcasts(bias, scores):
        hint = ": one for each head is (1, heads, queries, keys)" if len(scores) == 4 else ""
        raise ValueError(
            f"bias must broadcast to the scores, {scores} with queries and keys last; got {_shape(bias)}{hint}"
        )


def require_input(what: str, x: Any, size: int) -> None:
    """An input of a layer with heads: (B, length, size)."""
    if not isinstance(x, Tensor):
        raise ValueError(f"{what} must be a tensor (batch, length, {size}); got {type(x).__name__}")
    if x.dim() != 3 or x.shape[-1] != size:
        hint = f": one sequence is {what}[None]" if x.dim() == 2 and x.shape[-1] == size else ""
        raise ValueError(f"{what} must be (batch, length, {size}); got {_shape(x)}{hint}")


def require_share(dropout: float) -> float:
    if not 0.0 <= dropout <= 1.0:
        raise ValueError(f"dropout must be a share of the weights, from 0 to 1; got {dropout}")
    return dropout


def _scores(query: torch.Size, key: torch.Size, value: torch.Size) -> tuple[int, ...]:
    """The shape of the scores, (..., Q, K)."""
    leading = query[:-2]
    if not leading == key[:-2] == value[:-2]:
        try:
            leading = torch.broadcast_shapes(leading, key[:-2], value[:-2])
        except RuntimeError:
            raise ValueError(
                f"queries, keys and values must be of the same batch; got {tuple(query)}, {tuple(key)} and {tuple(value)}"
            ) from None
    return (*leading, query[-2], key[-2])


def _broadcasts(mask: Tensor, scores: tuple[int, ...]) -> bool:
    shape = mask.shape
    if shape == scores:
        return True
    axes = scores[len(scores) - len(shape) :] if len(shape) <= len(scores) else ()
    return len(shape) == len(axes) and all(size in (1, other) for size, other in zip(shape, axes, strict=True))


def _require_device(what: str, mask: Tensor, query: Tensor) -> None:
    if mask.device != query.device and mask.dim():  # torch accepts a scalar from any device
        raise ValueError(f"{what} is on {mask.device} and the queries are on {query.device}: move it there")


def _shape(x: Tensor) -> tuple[int, ...]:
    return tuple(x.shape)
