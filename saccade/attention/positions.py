"""Positions: attention alone does not know the order of its keys.

| class          | gives                                     | unbounded length |
|----------------|-------------------------------------------|------------------|
| Sinusoidal     | (N, D): sin and cos of ω_k · position      | yes              |
| Learned        | (N, D): a row of a table                  | no               |
| Sinusoidal2d   | (rows · columns, D): half row, half column | yes              |
| Learned2d      | the same from two learned tables          | no               |
| CalendarDay    | (..., D) of day numbers                   | yes              |
| Rotary         | queries and keys, rotated by their position | yes             |
| RelativeBias   | (H, Q, K), added to the scores            | yes (far distances share a row) |
| Around2d       | the same over the cells of a grid         | yes              |

The frequencies are ω_k = base^(-2k/D), sines in the even and cosines in the odd features (Vaswani 2017). Positions count from 0.
`first` is the position of the first item, for decoding one step at a time.

Axis legend: B batch, H heads, N length, Q queries, K keys, D features.
"""

import math

import torch
from torch import Tensor, nn

from saccade.attention import routes

_FEWEST = 256  # rows of a table


def position_table(values: Tensor) -> nn.Parameter:
    """A parameter that tells positions apart. Weight decay leaves it alone: near 0 all positions would be the same."""
    table = nn.Parameter(values)
    table.is_position_table = True  # type: ignore[attr-defined]
    return table


def is_position_table(parameter: nn.Parameter) -> bool:
    return getattr(parameter, "is_position_table", False)


def sinusoids(positions: Tensor, size: int, base: float = 10000.0) -> Tensor:
    """sin(ω_k p) at feature 2k, cos(ω_k p) at feature 2k + 1: positions (...) -> (..., size)."""
    if size % 2:
        raise ValueError(f"sines and cosines come in pairs, so the size must be even; got {size}")
    angle = positions[..., None].double() * _frequencies(size, base).to(positions.device)
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2)


class Sinusoidal(nn.Module):
    """The Transformer's fixed positions, for any length. Those computed so far are cached: decoding asks again at every step."""

    def __init__(self, size: int, base: float = 10000.0):
        super().__init__()
        self.size = size
        self.base = base
        self._table: Tensor | None = None
        self.like: Tensor
        self.register_buffer("like", torch.zeros(()), persistent=False)  # follows .to(): device and dtype of the output

    def forward(self, length: int, first: int = 0) -> Tensor:
        _require_first(first)
        if torch.compiler.is_compiling() or not isinstance(length, int):  # a graph caches nothing
            return self._rows(first, first + length)
        table, end = self._table, first + length
        if table is None or len(table) < end or table.dtype != self.like.dtype or table.device != self.like.device:
            with torch.inference_mode(False):  # the cache must serve training too
                table = self._table = self._rows(0, max(2 * end, _FEWEST))
        return table[first:end]  # a view: changed in place it would change the cache

    def _rows(self, first: int, end: int) -> Tensor:
        positions = torch.arange(first, end, device=self.like.device)
        return sinusoids(positions, self.size, self.base).to(self.like.dtype)


class Learned(nn.Module):
    """A learned row per position, up to `longest` positions."""

    def __init__(self, size: int, longest: int):
        super().__init__()
        self.table = position_table(torch.randn(longest, size) * 0.02)

    def forward(self, length: int, first: int = 0) -> Tensor:
        _require_first(first)
        _require_within(first + length, len(self.table), "position")
        return self.table[first : first + length]


class Sinusoidal2d(nn.Module):
    """Positions of a grid of cells, row by row: the first half of the features tells the row, the second the column."""

    def __init__(self, size: int, base: float = 10000.0):
        super().__init__()
        if size % 4:
            raise ValueError(
                f"rows and columns each take half of the features, as sines and cosines: size must be a multiple of 4; got {size}"
            )
        self.axis = Sinusoidal(size // 2, base)

    def forward(self, rows: int, columns: int) -> Tensor:
        return _row_by_row(self.axis(rows), self.axis(columns))


class Learned2d(nn.Module):
    """Positions of a grid of cells from a learned table of rows and one of columns, half of the features each."""

    def __init__(self, size: int, rows: int, columns: int):
        super().__init__()
        if size % 2:
            raise ValueError(f"rows and columns each take half of the features, so the size must be even; got {size}")
        self.row_table = position_table(torch.randn(rows, size // 2) * 0.02)
        self.column_table = position_table(torch.randn(columns, size // 2) * 0.02)

    def forward(self, rows: int, columns: int) -> Tensor:
        _require_within(rows, len(self.row_table), "row")
        _require_within(columns, len(self.column_table), "column")
        return _row_by_row(self.row_table[:rows], self.column_table[:columns])


class CalendarDay(nn.Module):
    """Sinusoids of a day number instead of an index: observations at irregular dates (Sainte Fare Garnot 2020, base 1000)."""

    def __init__(self, size: int, base: float = 1000.0):
        super().__init__()
        self.size = size
        self.base = base
        self.like: Tensor
        self.register_buffer("like", torch.zeros(()), persistent=False)

    def forward(self, days: Tensor) -> Tensor:
        return sinusoids(days, self.size, self.base).to(self.like.dtype)  # (...) -> (..., D)


class Rotary(nn.Module):
    """Rotates each pair of features by ω_k · position (Su 2021): a dot product then depends on the distance alone.

    Feature k is paired with feature k + D/2, as in most published checkpoints.
    """

    def __init__(self, size: int, base: float = 10000.0):
        super().__init__()
        if size % 2:
            raise ValueError(f"rotary positions turn pairs of features, so the size of a head must be even; got {size}")
        self.size = size
        self.base = base
        self._tables: tuple[Tensor, Tensor] | None = (
            None  # of the first positions: training asks for them again and again
        )

    def forward(self, vectors: Tensor, first: int | Tensor = 0) -> Tensor:
        """`first`: the position of the first vector, or (N,) that of each."""
        if vectors.shape[-1] != self.size:
            raise ValueError(
                f"these rotary positions were made for heads of size {self.size} and got vectors of size {vectors.shape[-1]}"
            )
        return routes.turned(vectors, *self._turns(vectors, first))

    def _turns(self, vectors: Tensor, first: int | Tensor) -> tuple[Tensor, Tensor]:
        """cos and ± sin (N, D) of each position's angles: - for the left half of the features, which the right half is turned into."""
        length, like = vectors.shape[-2], (vectors.dtype, vectors.device)
        if isinstance(first, Tensor) or torch.compiler.is_compiling() or not isinstance(length, int):
            positions = (
                first if isinstance(first, Tensor) else torch.arange(first, first + length, device=vectors.device)
            )
            return self._computed(positions, vectors)
        tables = self._tables
        if tables is None or len(tables[0]) < first + length or (tables[0].dtype, tables[0].device) != like:
            with torch.inference_mode(False):  # the tables must serve training too
                end = max(2 * (first + length), _FEWEST)
                tables = self._tables = self._computed(torch.arange(end, device=vectors.device), vectors)
        cos, sin = tables
        return cos[first : first + length], sin[first : first + length]

    def _computed(self, positions: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
        angle = positions[:, None].double() * _frequencies(self.size, self.base).to(vectors.device)
        cos, sin = angle.cos().to(vectors.dtype), angle.sin().to(vectors.dtype)  # (N, D / 2)
        return torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)


class RelativeBias(nn.Module):
    """A learned number per head and distance, added to the scores (Raffel 2020). Near distances have a row each, far ones share.

    `both_ways` tells keys after the query from keys before it; a causal layer needs only the latter.
    """

    def __init__(self, heads: int, buckets: int = 32, farthest: int = 128, both_ways: bool = True):
        super().__init__()
        sides = 2 if both_ways else 1
        if buckets < 2 * sides or buckets % sides:
            raise ValueError(f"buckets must be a multiple of {sides}, with at least 2 per side; got {buckets}")
        if farthest <= buckets // sides // 2:
            raise ValueError(
                f"the nearest {buckets // sides // 2} distances have a bucket each, so farthest must be more; got {farthest}"
            )
        self.buckets = buckets
        self.farthest = farthest
        self.both_ways = both_ways
        self.table = position_table(torch.randn(buckets, heads) * 0.02)

    def forward(self, queries: int, keys: int, first_query: int = 0) -> Tensor:
        device = self.table.device
        positions = torch.arange(first_query, first_query + queries, device=device)
        offset = torch.arange(keys, device=device) - positions[:, None]  # (Q, K), negative = key before the query
        return self.table[self._bucket(offset)].permute(2, 0, 1)  # (Q, K, H) -> (H, Q, K)

    def _bucket(self, offset: Tensor) -> Tensor:
        side, buckets = torch.zeros_like(offset), self.buckets
        if self.both_ways:
            buckets //= 2
            side = (offset > 0) * buckets
            distance = offset.abs()
        else:
            distance = (-offset).clamp(min=0)
        exact = buckets // 2
        share = torch.log(distance.clamp(min=1).float() / exact) / math.log(self.farthest / exact)
        far = (exact + (share * (buckets - exact)).long()).clamp(max=buckets - 1)
        return side + torch.where(distance < exact, distance, far)


class Around2d(nn.Module):
    """Every head looks around a place of its own: -α_h ‖offset of the key from the query - Δ_h‖² is added to its scores (Cordonnier 2020).

    α and Δ are learned. The heads start spread out, `spacing` cells apart in rows and columns, as the weights of a convolution are: equal
    heads that see everything would have to be told apart first (d'Ascoli 2021). One head starts on its own cell; of many, the outer ones
    start beyond the edges of a small grid. A head whose α falls below 0 looks away from its place.
    """

    def __init__(self, heads: int, spacing: float = 3.0, sharpness: float = 0.25):
        super().__init__()
        self.centre = position_table(spacing * places_around(heads))  # (H, 2)
        self.sharpness = position_table(torch.full((heads,), sharpness))

    def forward(self, rows: int, columns: int) -> Tensor:
        """From every cell of the grid to every cell, rows first: (H, Q, K); a layer with heads takes it as `bias=around(...)[None]`."""
        device, dtype = self.centre.device, self.centre.dtype
        squares = [
            (_offsets(length, device, dtype) - centre[:, None, None]).square()  # (H, length, length)
            for length, centre in zip((rows, columns), self.centre.T, strict=True)
        ]
        down, right = squares[0][:, :, None, :, None], squares[1][:, None, :, None, :]
        distance = (down + right).flatten(3).flatten(1, 2)  # (H, R, S, R, S) -> (H, Q, K)
        return -self.sharpness[:, None, None] * distance


def places_around(heads: int) -> Tensor:
    """Row and column of a place for each head, one apart, in a grid around (0, 0) as square as their number allows: (H, 2)."""
    rows = max(rows for rows in range(1, math.isqrt(heads) + 1) if heads % rows == 0)
    return torch.cartesian_prod(*(torch.arange(n) - (n - 1) / 2 for n in (rows, heads // rows)))


def _offsets(length: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """How far after a query each key is: (Q, K)."""
    positions = torch.arange(length, device=device, dtype=dtype)
    return positions - positions[:, None]


def _frequencies(size: int, base: float) -> Tensor:
    return base ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)


def _row_by_row(rows: Tensor, columns: Tensor) -> Tensor:
    """(R, D / 2) and (C, D / 2) -> (R · C, D)"""
    grid = (rows.shape[0], columns.shape[0], -1)
    return torch.cat((rows[:, None].expand(grid), columns[None].expand(grid)), dim=-1).flatten(0, 1)


def _require_first(first: int) -> None:
    if not torch.compiler.is_compiling() and first < 0:
        raise ValueError(f"positions count from 0; got {first} as the first one")


def _require_within(wanted: int, longest: int, what: str) -> None:
    if wanted > longest:
        raise ValueError(
            f"the table of learned positions has {longest} {what}s and {wanted} are needed: train with a longer table, shorten the input, "
            f"or use sinusoidal positions, which have no end"
        )
