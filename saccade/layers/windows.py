"""Self-attention inside windows of a grid, every other layer shifted by half a window (Liu 2021, Swin).

    weights_ij = softmax_j(q_i · k_j / √d + b[row_i - row_j, column_i - column_j]),     j in the window of i

Shifted, the window of a cell is (⌊(row - shift) / window⌋, ⌊(column - shift) / window⌋), so the windows at the border are cut off. To
have full ones only, the grid is rolled by the shift: what was cut off at the two ends shares a window, and the mask keeps it apart. A grid
that is no multiple of the window is padded at the bottom and right with cells that are never visible.

A grid with no more rows (or columns) than a window has windows just as large, and no shift that way.

What is recorded is the map over the whole grid, 0 between windows, so that it reads like any other attention over an image.

Axis legend: B batch, R rows, S columns, W windows, H heads, D features, Q queries and K keys (the cells of a window), N = R · S.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.attention import Attend, ScaledDot, record_attention
from saccade.attention.positions import position_table
from saccade.attention.recording import is_watched, record


class WindowAttention(nn.Module):
    """Multi-head self-attention of each cell to the `window` × `window` cells around it, cut as above: (B, R, S, D) -> the same."""

    def __init__(self, size: int, heads: int, window: int, shift: int = 0):
        super().__init__()
        _check(size, heads, window, shift)
        self.heads, self.window, self.shift = heads, window, shift
        self.query, self.key, self.value, self.output = (nn.Linear(size, size) for _ in range(4))
        for projection in (self.query, self.key, self.value, self.output):
            nn.init.xavier_uniform_(projection.weight)
            nn.init.zeros_(projection.bias)
        # A row for each pair of offsets, rows first.
        self.offset_bias = position_table(torch.randn((2 * window - 1) ** 2, heads) * 0.02)
        # In a tuple it is no submodule: windows are recorded as one map of the whole grid, under this module's own name.
        self._inside = (Attend(ScaledDot(size // heads)),)

    def forward(self, x: Tensor) -> Tensor:
        windows = Windows.over(x.shape[1], x.shape[2], self.window, self.shift)
        cells = windows.cut(x)  # (B·W, Q, D)
        query, key, value = (
            project(cells).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B·W, Q, D) -> (B·W, H, Q, D / H)
            for project in (self.query, self.key, self.value)
        )
        visible = windows.visible(x.device)
        if visible is not None:
            visible = visible.repeat(x.shape[0], 1, 1)[:, None]  # (W, Q, K) -> (B·W, 1, Q, K)
        (attend,) = self._inside
        if is_watched(self):
            with record_attention(attend) as maps:
                context = attend(query, key, value, visible=visible, bias=self.bias(windows)).context
            record(self, windows.whole(maps[""][0]))
        else:
            context = attend(query, key, value, visible=visible, bias=self.bias(windows)).context
        return windows.join(self.output(context.transpose(1, 2).flatten(2)))

    def bias(self, windows: "Windows") -> Tensor:
        """b of every query and key of a window: (H, Q, K)."""
        rows, columns = (
            torch.arange(length, device=self.offset_bias.device) for length in (windows.height, windows.width)
        )
        down, right = ((index[:, None] - index + self.window - 1) for index in (rows, columns))
        # (height, 1, height, 1) and (1, width, 1, width) -> (height, width, height, width)
        index = down[:, None, :, None] * (2 * self.window - 1) + right[None, :, None, :]
        cells = len(rows) * len(columns)
        return self.offset_bias[index.reshape(cells, cells)].permute(2, 0, 1)  # (Q, K, H) -> (H, Q, K)

    def extra_repr(self) -> str:
        return f"heads={self.heads}, window={self.window}, shift={self.shift}"


class Windows(NamedTuple):
    """How a grid of `rows` × `columns` is cut into windows of `height` × `width`, after a roll by `down` and `right`."""

    rows: int
    columns: int
    height: int
    width: int
    down: int
    right: int

    @classmethod
    def over(cls, rows: int, columns: int, window: int, shift: int) -> "Windows":
        height, width = min(window, rows), min(window, columns)
        return cls(rows, columns, height, width, shift if rows > window else 0, shift if columns > window else 0)

    @property
    def _full_rows(self) -> int:
        return -(-self.rows // self.height) * self.height

    @property
    def _full_columns(self) -> int:
        return -(-self.columns // self.width) * self.width

    def cut(self, x: Tensor) -> Tensor:
        """(B, R, S, D) -> (B·W, Q, D), windows and their cells row by row; cells that the grid lacks are 0."""
        if (self.rows, self.columns) != (self._full_rows, self._full_columns):
            x = F.pad(x, (0, 0, 0, self._full_columns - self.columns, 0, self._full_rows - self.rows))
        if self.down or self.right:
            x = x.roll((-self.down, -self.right), dims=(1, 2))
        x = x.unflatten(2, (-1, self.width)).unflatten(1, (-1, self.height))
        return x.transpose(2, 3).flatten(3, 4).flatten(0, 2)  # (B, ·, height, ·, width, D) -> (B·W, height · width, D)

    def join(self, cells: Tensor) -> Tensor:
        """The reverse of `cut`."""
        down, across = self._full_rows // self.height, self._full_columns // self.width
        x = cells.unflatten(1, (self.height, self.width)).unflatten(0, (-1, down, across))
        # (B, ·, ·, height, width, D) -> (B, full rows, full columns, D)
        x = x.transpose(2, 3).flatten(3, 4).flatten(1, 2)
        if self.down or self.right:
            x = x.roll((self.down, self.right), dims=(1, 2))
        return x[:, : self.rows, : self.columns]

    def visible(self, device: torch.device) -> Tensor | None:
        """Which key each query of each window may see (W, Q, K); None where all see all."""
        full = (self.rows, self.columns) == (self._full_rows, self._full_columns)
        if full and not self.down and not self.right:
            return None
        rows, columns = (torch.arange(length, device=device) for length in (self._full_rows, self._full_columns))
        row_band, column_band = (rows - self.down) // self.height, (columns - self.right) // self.width
        band = row_band[:, None] * (len(columns) + 1) + column_band  # a number for each window before the roll
        real = (rows < self.rows)[:, None] & (columns < self.columns)
        unpadded = self._replace(rows=len(rows), columns=len(columns))
        band, exists = (unpadded.cut(grid[None, :, :, None]).squeeze(-1) for grid in (band, real))  # (W, cells)
        return (band[:, :, None] == band[:, None]) & exists[:, None]

    def whole(self, weights: Tensor) -> Tensor:
        """Weights inside the windows (B·W, H, Q, K) as one map over the grid (B, H, N, N), 0 between windows."""
        cells = self.rows * self.columns
        numbers = torch.arange(1, cells + 1, device=weights.device).view(1, self.rows, self.columns, 1)
        place = self.cut(numbers).squeeze(-1)  # (W, Q); 0 is no cell of the grid
        weights = weights.unflatten(0, (-1, len(place)))
        whole = weights.new_zeros(len(weights), weights.shape[2], cells + 1, cells + 1)
        whole[:, :, place[:, :, None], place[:, None]] = weights.transpose(1, 2)  # (B, W, H, Q, K) -> (B, H, W, Q, K)
        return whole[:, :, 1:, 1:]


def _check(size: int, heads: int, window: int, shift: int) -> None:
    if heads < 1 or size % heads:
        raise ValueError(f"the size must be a multiple of the number of heads; got size {size} and {heads} heads")
    if window < 1 or not 0 <= shift < window:
        raise ValueError(
            f"a window has 1 or more cells a side and is shifted by less than that; got {window} and {shift}"
        )
