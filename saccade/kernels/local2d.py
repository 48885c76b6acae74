"""Attention of every pixel to the k × k pixels around it, without the k² copies of keys and values that a sliding window needs.

    y_q = Σ_ab softmax_ab(query_q · key_ab + row logit + column logit) value_ab,        a, b in the neighbourhood of q

With pixels laid out in one flat line, "the neighbour at this offset" is, for all pixels at once, the same line read from another start:
a view, never a copy. So both sums of the equation run over whole lines, k² of them. A line read from another start runs over the image's
edge into the next row; those are exactly the pixels whose logits are so low that their weight is 0. Backward computes the weights again,
a few images at a time, so that they stay in the processor's cache and never fill memory.

Reference: `reference` below. Gain: 9 to 14 times, forward and backward of one layer, with 13 to 15 times less memory, for 4 and 8 heads
(benchmarks/local2d.py, AVX-512); not measured in a whole training.

Axis legend: N images times heads, D channels of a head, P pixels that ask (queries), k size of the neighbourhood.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from saccade.kernels.derivatives import gradients_by_torch

# Numbers in work at a time on one processor core: weights, query and value of one step of the loop, about what its cache holds.
_CACHED = 500_000


def attend(query: Tensor, key: Tensor, value: Tensor, rows: Tensor, columns: Tensor, stride: int) -> Tensor:
    """Queries (N, D, P), keys and values (N, D, height, width), logits of row and column offsets (N, k, P) → (N, D, P).

    Every stride-th pixel asks. Where an offset leads off the image, its logits must be so low that the weight is 0.
    """
    grid = _Grid(rows.shape[1], stride, *key.shape[-2:])
    # torch.compile would fuse the loop over neighbours into code several times slower than the loop that stays in the cache, so a compiled
    # model leaves its graph here.
    compiled = torch.compiler.is_compiling()
    run = torch.compiler.disable(_LocalAttention.apply) if compiled else _LocalAttention.apply
    return run(query, grid.lines(key), grid.lines(value), rows, columns, grid)


def reference(query: Tensor, key: Tensor, value: Tensor, rows: Tensor, columns: Tensor, grid: "_Grid") -> Tensor:
    """The same from lines, with all neighbours of every pixel side by side and derivatives of every order."""
    scores = (query[:, :, None] * grid.copies(key)).sum(1)
    scores = scores + (rows[:, :, None] + columns[:, None]).flatten(1, 2)  # (N, k · k, P)
    return (scores.softmax(1)[:, None] * grid.copies(value)).sum(2)


class _Grid(NamedTuple):
    """Where each query's neighbours lie once an image is laid out in lines.

    With a stride s the image becomes s × s lines, one for each remainder of (row, column) by s: what all queries see at one offset is then
    still one unbroken stretch of one line.
    """

    kernel: int
    stride: int
    height: int
    width: int

    @property
    def reach(self) -> int:
        return self.kernel // 2

    @property
    def query_height(self) -> int:
        return -(-self.height // self.stride)

    @property
    def query_width(self) -> int:
        return -(-self.width // self.stride)

    @property
    def pixels(self) -> int:
        return self.query_height * self.query_width

    @property
    def _before(self) -> int:
        """How far before its start a line is read: the shift of the first row and column offset."""
        return -(-self.reach // self.stride) * (self.query_width + 1)

    def lines(self, image: Tensor) -> Tensor:
        """(N, D, height, width) -> (stride, stride, N, D, line), each line long enough to be read at any shift."""
        tall, wide = self.query_height * self.stride, self.query_width * self.stride
        image = F.pad(image, (0, wide - self.width, 0, tall - self.height))
        split = image.unflatten(3, (self.query_width, self.stride)).unflatten(2, (self.query_height, self.stride))
        # (N, D, query rows, stride, query columns, stride) -> (stride, stride, N, D, query rows, query columns)
        split = split.permute(3, 5, 0, 1, 2, 4)
        after = self.reach // self.stride * (self.query_width + 1)
        return F.pad(split.flatten(4), (self._before, after))

    def _strands(self, lines: Tensor) -> Iterator[tuple[range, range, Tensor, int]]:
        """The row offsets and column offsets that share a line, that line, and where it starts for the first of them."""
        for first_row in range(min(self.stride, self.kernel)):
            for first_column in range(min(self.stride, self.kernel)):
                down, row_line = divmod(first_row - self.reach, self.stride)
                right, column_line = divmod(first_column - self.reach, self.stride)
                rows, columns = (range(first, self.kernel, self.stride) for first in (first_row, first_column))
                yield rows, columns, lines[row_line, column_line], self._before + down * self.query_width + right

    def shifts(self, lines: Tensor) -> Iterator[tuple[int, int, Tensor]]:
        """What all queries see at each offset (row, column) of the k × k: a view (N, D, P) of `lines`."""
        for rows, columns, line, start in self._strands(lines):
            for down, row in enumerate(rows):
                for right, column in enumerate(columns):
                    yield row, column, line.narrow(2, start + down * self.query_width + right, self.pixels)

    def shifts_together(self, lines: Tensor) -> Iterator[tuple[slice, slice, Tensor]]:
        """The same views as one for all offsets that share a line: (N, D, rows, columns, P), overlapping, so read-only."""
        for rows, columns, line, start in self._strands(lines):
            stretch = self.pixels + len(columns) - 1
            line = line.narrow(2, start, stretch + (len(rows) - 1) * self.query_width)
            # Tensor.unfold, unlike the function of that name for images, copies nothing.
            view = line.unfold(2, stretch, self.query_width).unfold(3, self.pixels, 1)
            yield slice(rows.start, None, self.stride), slice(columns.start, None, self.stride), view

    def copies(self, lines: Tensor) -> Tensor:
        """What all queries see at all offsets, copied out of `lines`: (N, D, k · k, P)."""
        shifts = [divmod(offset - self.reach, self.stride) for offset in range(self.kernel)]
        starts = [
            (row_line * self.stride + column_line) * lines.shape[-1] + self._before + down * self.query_width + right
            for down, row_line in shifts
            for right, column_line in shifts
        ]
        place = torch.tensor(starts, device=lines.device)[:, None] + torch.arange(self.pixels, device=lines.device)
        together = lines.permute(2, 3, 0, 1, 4).flatten(2)  # (N, D, stride · stride · line)
        return together.index_select(2, place.flatten()).unflatten(2, (-1, self.pixels))


class _LocalAttention(Function):
    """softmax(q · k + row logit + column logit) v over the neighbourhood, without saving the weights for backward."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, rows: Tensor, columns: Tensor, grid: _Grid
    ) -> Tensor:
        context = torch.zeros_like(query)
        for part in _parts(query, grid):
            weights = _weights(query[part], key[:, :, part], rows[part], columns[part], grid)
            _gather(weights, value[:, :, part], grid, into=context[part])
        ctx.save_for_backward(query, key, value, rows, columns, context)
        ctx.grid = grid
        return context

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, rows, columns, context = ctx.saved_tensors
        grid = ctx.grid
        if torch.is_grad_enabled():  # a second derivative
            inputs = (query, key, value, rows, columns)
            return *gradients_by_torch(partial(reference, grid=grid), inputs, grad, ctx.needs_input_grad), None
        grad = grad.contiguous()
        grad_query, grad_key, grad_value = torch.zeros_like(query), torch.zeros_like(key), torch.zeros_like(value)
        grad_rows, grad_columns = torch.empty_like(rows), torch.empty_like(columns)
        for part in _parts(query, grid):
            weights = _weights(query[part], key[:, :, part], rows[part], columns[part], grid)
            # Softmax: d score = w · (d w - Σ w · d w), and the sum over neighbours is the dot product of output and its gradient.
            mean = (grad[part] * context[part]).sum(1)
            grad_scores = _dot(grad[part], value[:, :, part], grid).sub_(mean[:, None, None]).mul_(weights)
            _scatter(weights, grad[part], grid, into=grad_value[:, :, part])
            _scatter(grad_scores, query[part], grid, into=grad_key[:, :, part])
            _gather(grad_scores, key[:, :, part], grid, into=grad_query[part])
            torch.sum(grad_scores, 2, out=grad_rows[part])
            torch.sum(grad_scores, 1, out=grad_columns[part])
        return grad_query, grad_key, grad_value, grad_rows, grad_columns, None


def _weights(query: Tensor, key: Tensor, rows: Tensor, columns: Tensor, grid: _Grid) -> Tensor:
    scores = _dot(query, key, grid).add_(rows[:, :, None]).add_(columns[:, None])  # (N, k, k, P)
    return scores.flatten(1, 2).softmax(1).view_as(scores)


def _dot(query: Tensor, lines: Tensor, grid: _Grid) -> Tensor:
    """The dot product of each pixel of `query` with each of its neighbours in `lines`: (N, k, k, P)."""
    scores = query.new_zeros(query.shape[0], grid.kernel, grid.kernel, grid.pixels)
    for rows, columns, neighbours in grid.shifts_together(lines):
        sums = scores[:, rows, columns]
        for channel in range(query.shape[1]):
            sums.addcmul_(query[:, channel, None, None], neighbours[:, channel])
    return scores


def _gather(weights: Tensor, lines: Tensor, grid: _Grid, into: Tensor) -> None:
    """Add to each pixel of `into` (N, D, P) its neighbours in `lines`, weighted."""
    for row, column, neighbour in grid.shifts(lines):
        into.addcmul_(weights[:, None, row, column], neighbour)


def _scatter(weights: Tensor, source: Tensor, grid: _Grid, into: Tensor) -> None:
    """The reverse of `_gather`: add each pixel of `source` (N, D, P), weighted, to its neighbours in the lines `into`."""
    for row, column, neighbour in grid.shifts(into):
        neighbour.addcmul_(weights[:, None, row, column], source)


def _parts(query: Tensor, grid: _Grid) -> Iterator[slice]:
    """Slices of the N axis whose weights fit the cache."""
    size = (query.shape[1] + grid.kernel**2) * grid.pixels
    step = max(1, _CACHED * torch.get_num_threads() // max(1, size))
    for start in range(0, query.shape[0], step):
        yield slice(start, start + step)
