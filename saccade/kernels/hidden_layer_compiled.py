"""The C part of hidden_layer.py (hidden_layer.c): vᵀ tanh(q + k) from e²ᵠ and e²ᵏ, and its gradients.

Axis legend: H heads, Q queries, K keys, A hidden size.
"""

import ctypes

from torch import Tensor

from saccade.kernels import compiled
from saccade.kernels.compiled import LANES


class _Layer(ctypes.Structure):
    """`Layer` of hidden_layer.c."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("query", "key", "v", "scores", "gradient")),
        *((name, ctypes.c_void_p) for name in ("query_gradient", "key_gradient", "v_gradient")),
        *((name, ctypes.c_int64) for name in ("batch", "heads", "queries", "keys", "features")),
    )


def can_compute(query: Tensor, key: Tensor, v: Tensor) -> bool:
    """Queries (..., Q, A) and keys (..., K, A) of the same examples, v (A,) or, with heads as the last leading axis, (H, A)."""
    return (
        query.shape[:-2] == key.shape[:-2]
        and v.shape[:-1] in ((), query.shape[-3:-2])
        and query.shape[-1] == key.shape[-1] == v.shape[-1]
        and query.shape[-1] % LANES == 0
        and compiled.can_compute(query, key, v)
    )


def scores(query: Tensor, key: Tensor, v: Tensor) -> Tensor:
    """e²ᵠ (..., Q, A), e²ᵏ (..., K, A), v → (..., Q, K)"""
    query, key, v = (x.contiguous() for x in (query, key, v))
    output = query.new_empty(*query.shape[:-1], key.shape[-2])
    layer = _describe(query, key, v)
    layer.scores = output.data_ptr()
    compiled.run("saccade_hidden_layer", layer)
    return output


def add_gradients(
    gradient: Tensor, query: Tensor, key: Tensor, v: Tensor, key_gradient: Tensor, v_gradient: Tensor
) -> Tensor:
    """The gradient of the queries, from that of the scores (..., Q, K). `key_gradient` and `v_gradient`, contiguous, are added to.

    The gradients of queries and keys have yet to be multiplied by v.
    """
    gradient, query, key, v = (x.contiguous() for x in (gradient, query, key, v))
    query_gradient = query.new_empty(query.shape)
    layer = _describe(query, key, v)
    layer.gradient, layer.query_gradient = gradient.data_ptr(), query_gradient.data_ptr()
    layer.key_gradient, layer.v_gradient = key_gradient.data_ptr(), v_gradient.data_ptr()
    compiled.run("saccade_hidden_layer", layer)
    return query_gradient


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
