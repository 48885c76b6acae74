"""What people give to attention, checked once where it comes in: a sentence says what was given, what is allowed and what to do.

A mistake of shape that happens to broadcast is the worst kind: it computes something else without a word.

Axis legend: B batch, H heads, Q queries, K keys, D features.
"""

from typing import Any

import torch
from torch import Tensor

from saccade.attention.lookup import Lookup
from saccade.attention.visibility import Band


def check_question(lookup: Lookup) -> None:
    """Queries and keys of the same batch, a mask of booleans, a bias of numbers, a band that is one."""
    if torch.compiler.is_compiling():  # a graph for every length cannot compare lengths
        return
    visible, bias, query, key = lookup.visible, lookup.bias, lookup.query.shape, lookup.prepared.shape
    if query[:-1] == key[:-2] and len(query) > 1:
        raise ValueError(
            f"queries have an axis of their own, (batch, queries, size); got {tuple(query)} for keys {tuple(key)}: "
            "for one query of each sequence give query[:, None], for the same ones of all query[None]"
        )
    if isinstance(lookup.first_query, int) and lookup.first_query < 0:
        raise ValueError(f"first_query is the position of the first query, 0 or more; got {lookup.first_query}")
    if lookup.band is not None and not isinstance(lookup.band, Band):
        raise ValueError(
            f"band is a Band, such as CAUSAL or Band(before=4, after=0); got {lookup.band!r}: a mask is given as visible"
        )
    if visible is None and bias is None and query[:-2] == key[:-2]:
        return
    scores = _scores(query, key, lookup.value.shape)
    if visible is not None:
        require_mask(visible, scores)
        _require_place("visible", visible, lookup.query)
    if bias is not None:
        _require_bias(bias, scores)
        _require_place("bias", bias, lookup.query)


def require_mask(visible: Any, scores: tuple[int, ...]) -> None:
    """What was given as `visible` says for each of the scores (..., Q, K), or for several of them at once, whether it is one."""
    if not isinstance(visible, Tensor):
        hint = ": give it as band" if isinstance(visible, Band) else ": make a tensor of it"
        raise ValueError(f"visible is a tensor of booleans, True where a query may look; got {visible!r}{hint}")
    if visible.dtype is not torch.bool:
        raise ValueError(
            f"visible is a mask of booleans, True where a query may look; got {visible.dtype}: compare it with a number (mask > 0), "
            "or give what is to be added to the scores as bias"
        )
    if not _broadcasts(visible, scores):
        keys_alone = ", ".join(["batch", *["1"] * (len(scores) - 2), "keys"])
        raise ValueError(
            f"visible must broadcast to the scores, {scores} with queries and keys last; got {_shape(visible)}: "
            f"a mask of keys alone is ({keys_alone})"
        )


def require_numbers(bias: Any) -> None:
    if not isinstance(bias, Tensor) or not bias.is_floating_point():
        given = bias.dtype if isinstance(bias, Tensor) else repr(bias)
        raise ValueError(
            f"bias is a tensor of numbers that are added to the scores; got {given}: a mask is given as visible"
        )


def _require_bias(bias: Any, scores: tuple[int, ...]) -> None:
    require_numbers(bias)
    if not _broadcasts(bias, scores):
        hint = ": one for each head is (1, heads, queries, keys)" if len(scores) == 4 else ""
        raise ValueError(
            f"bias must broadcast to the scores, {scores} with queries and keys last; got {_shape(bias)}{hint}"
        )


def require_input(what: str, given: Any, size: int) -> None:
    """An input of a layer with heads: (B, length, size)."""
    if not isinstance(given, Tensor):
        raise ValueError(f"{what} must be a tensor (batch, length, {size}); got {type(given).__name__}")
    if given.dim() != 3 or given.shape[-1] != size:
        hint = f": one sequence is {what}[None]" if given.dim() == 2 and given.shape[-1] == size else ""
        raise ValueError(f"{what} must be (batch, length, {size}); got {_shape(given)}{hint}")


def require_share(dropout: float) -> float:
    if not 0.0 <= dropout <= 1.0:
        raise ValueError(f"dropout is the share of the weights that is dropped, from 0 to 1; got {dropout}")
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


def _broadcasts(given: Tensor, scores: tuple[int, ...]) -> bool:
    shape = given.shape
    if shape == scores:
        return True
    axes = scores[len(scores) - len(shape) :] if len(shape) <= len(scores) else ()
    return len(shape) == len(axes) and all(size in (1, other) for size, other in zip(shape, axes, strict=True))


def _require_place(what: str, given: Tensor, query: Tensor) -> None:
    if given.device != query.device and given.dim():  # a single number may lie anywhere, as torch has it
        raise ValueError(f"{what} lies on {given.device} and the queries on {query.device}: move it there")


def _shape(given: Tensor) -> tuple[int, ...]:
    return tuple(given.shape)
