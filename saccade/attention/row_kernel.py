"""The compiled product of a row with a matrix of its own (row_kernel.c): for many small ones several times faster than a batched product.

Axis legend: B rows and matrices, K rows of a matrix, D columns of it.
"""

import ctypes

from torch import Tensor

from saccade.attention import compiled

LANES = 8  # floats that are computed with at once


class _Products(ctypes.Structure):
    """`Products` of row_kernel.c."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("x", "matrices", "y")),
        *((name, ctypes.c_int64) for name in ("batch", "rows", "columns", "turned")),
    )


def can_compute(x: Tensor, matrix: Tensor) -> bool:
    """x (B, 1, K) or (B, 1, D), matrix (B, K, D)"""
    return (
        x.dim() == matrix.dim() == 3
        and x.shape[1] == 1
        and len(x) == len(matrix)
        and matrix.shape[2] % LANES == 0
        and matrix.is_contiguous()
        and compiled.can_compute(x, matrix)
    )


def product(x: Tensor, matrix: Tensor) -> Tensor:
    """x M: (B, 1, K), (B, K, D) → (B, 1, D)"""
    return _product(x, matrix, x.new_empty(len(x), 1, matrix.shape[2]), turned=False)


def product_turned(x: Tensor, matrix: Tensor) -> Tensor:
    """x Mᵀ: (B, 1, D), (B, K, D) → (B, 1, K)"""
    return _product(x, matrix, x.new_empty(len(x), 1, matrix.shape[1]), turned=True)


def _product(x: Tensor, matrix: Tensor, y: Tensor, turned: bool) -> Tensor:
    x = x.contiguous()
    compiled.run("saccade_rows", _Products(x.data_ptr(), matrix.data_ptr(), y.data_ptr(), *matrix.shape, turned))
    return y
