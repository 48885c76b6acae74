"""The compiled hidden layer of the additive scores (hidden_layer_kernel.c): vᵀ tanh(q + k) from e²ᵠ and e²ᵏ, and its gradients.

Axis legend: H heads, Q queries, K keys, A hidden size.
"""

import ctypes

from torch import Tensor

from saccade.attention import compiled

LANES = 8  # floats that are computed with at once


class _Layer(ctypes.Structure):
    """`Layer` of hidden_layer_kernel.c."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("query", "key", "v", "scores", "gradient")),
        *((name, ctypes.c_void_p) for name in ("query_gradient", "key_gradient", "v_gradient")),
        *((name, ctypes.c_int64) for name in ("batch", "heads", "queries", "keys", "features")),
    )


def can_compute(query: Tensor, key: Tensor, v: Tensor) -> bool:
    """Queries (..., Q, A) and keys (..., K, A) of the same examples, v (A,) or, with the heads as their last leading axis, (H, A)."""
    return (
        query.shape[:-2] == key.shape[:-2]
        and v.shape[:-1] in ((), query.shape[-3:-2])
        and query.shape[-1] == key.shape[-1] == v.shape[-1]
        and query.shape[-1] % LANES == 0
        and compiled.can_compute(query, key, v)
    )


def scores(query: Tensor, key: Tensor, v: Tensor) -> Tensor:
    """e²ᵠ (..., Q, A), e²ᵏ (..., K, A), v → (..., Q, K)"""
    query, key, v = (each.contiguous() for each in (query, key, v))
    found = query.new_empty(*query.shape[:-1], key.shape[-2])
    layer = _describe(query, key, v)
    layer.scores = found.data_ptr()
    compiled.run("saccade_hidden_layer", layer)
    return found


def add_gradients(
    gradient: Tensor, query: Tensor, key: Tensor, v: Tensor, key_gradient: Tensor, v_gradient: Tensor
) -> Tensor:
    """The queries' gradient, of that of the scores (..., Q, K). Those of keys and v are added to what is given, in rows without gaps.

    The gradients of queries and keys still have to be multiplied by v.
    """
    gradient, query, key, v = (each.contiguous() for each in (gradient, query, key, v))
    of_query = query.new_empty(query.shape)
    layer = _describe(query, key, v)
    layer.gradient, layer.query_gradient = gradient.data_ptr(), of_query.data_ptr()
    layer.key_gradient, layer.v_gradient = key_gradient.data_ptr(), v_gradient.data_ptr()
    compiled.run("saccade_hidden_layer", layer)
    return of_query


def _describe(query: Tensor, key: Tensor, v: Tensor) -> _Layer:
    return _Layer(
        query=query.data_ptr(),
        key=key.data_ptr(),
        v=v.data_ptr(),
        batch=query.shape[:-2].numel(),
        heads=v.shape[:-1].numel(),
        queries=query.shape[-2],
        keys=key.shape[-2],
        features=query.shape[-1],
    )
