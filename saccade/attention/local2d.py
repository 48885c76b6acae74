"""Stand-alone self-attention: every pixel attends to the k × k pixels around it (Ramachandran et al. 2019, arXiv:1906.05909).

    y_ij = Σ_ab softmax_ab(q_ij · k_ab + q_ij · r_{a-i,b-j}) v_ab,        a, b in the k × k neighbourhood of i, j

The first half of every head's channels of r is the embedding of the row offset a-i, the second half that of the column offset b-j, so
q · r is a row logit plus a column logit. Pixels outside the image get no weight. Heads split the output channels; the projections see
all input channels. With `spread` a head also prefers places whatever its query: a learned number for each row offset and each column
offset is added, which starts as -‖offset - Δ_h‖², so that every head h starts by looking around a place Δ_h of its own (Cordonnier 2020).

How it is computed. With pixels laid out in one flat line, "the neighbour at offset (a-i, b-j)" is, for all pixels at once, the same
line read from another start: a view, never a copy. So both sums of the equation run over whole lines, k² of them, and the k² copies of
key and value that a sliding window would need never exist. A line read from another start runs over the image's edge into the next
row; those are exactly the pixels that the mask gives weight 0. The backward pass computes the weights again, a few images at a time,
so that they stay in the processor's cache and never fill memory.

Axis legend: B batch, H heads, N = B·H, D channels of a head, P pixels in one line, Q queries (output pixels), K keys (input pixels).
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.attention.compiled import gradients_by_torch
from saccade.attention.positions import places_around, position_table
from saccade.attention.recording import is_watched, record

# Numbers in work at a time on one processor core: weights, query and value of one step of the loop, about what its cache holds.
_CACHED = 500_000


class LocalSelfAttention2d(nn.Module):
    """Self-attention over the `kernel_size` × `kernel_size` pixels around each pixel, in place of a convolution.

    Takes (B, in_channels, height, width), gives (B, out_channels, ⌈height/stride⌉, ⌈width/stride⌉): with a stride, every stride-th pixel
    asks, and still sees all pixels around it. `kernel_size` is odd, so that a neighbourhood has a centre; each of the `heads` has an even
    number of channels, half for rows and half for columns. Any image size works, also one smaller than the neighbourhood.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        heads: int,
        stride: int = 1,
        bias: bool = False,
        spread: bool = False,
    ):
        super().__init__()
        _check(out_channels, kernel_size, heads, stride)
        self.in_channels, self.kernel_size, self.heads, self.stride = in_channels, kernel_size, heads, stride
        self.query = nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=bias)
        self.key = nn.Conv2d(in_channels, out_channels, 1, bias=bias)
        self.value = nn.Conv2d(in_channels, out_channels, 1, bias=bias)
        half = out_channels // heads // 2
        self.row_embedding = position_table(torch.empty(heads, kernel_size, half))
        self.column_embedding = position_table(torch.empty(heads, kernel_size, half))
        self.row_preference, self.column_preference = (
            position_table(torch.empty(heads, kernel_size)) if spread else None for _ in range(2)
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for projection in (self.query, self.key, self.value):
            projection.reset_parameters()
        for embedding in (self.row_embedding, self.column_embedding):
            nn.init.normal_(embedding, std=(2 * embedding.shape[-1]) ** -0.5)
        offsets, places = torch.arange(self.kernel_size) - self.kernel_size // 2, places_around(self.heads)
        for preference, place in zip((self.row_preference, self.column_preference), places.T, strict=True):
            if preference is not None:
                with torch.no_grad():
                    preference.copy_(-(offsets - place[:, None]).square())

    def forward(self, image: Tensor) -> Tensor:
        channels = self.in_channels
        if image.dim() != 4 or image.shape[1] != channels or not image.is_floating_point():
            raise ValueError(
                f"images must be floats (batch, {channels} channels, height, width); got {image.dtype} {tuple(image.shape)}"
            )
        query, key, value = self.query(image), self.key(image), self.value(image)
        grid = _Grid(self.kernel_size, self.stride, *image.shape[-2:])
        # Sums over many lines need more digits than half precision has.
        exact = torch.promote_types(query.dtype, torch.float32)
        lines = query.to(exact).reshape(-1, query.shape[1] // self.heads, grid.pixels)  # (N, D, P)
        keys, values = (grid.lines(picture.to(exact), self.heads) for picture in (key, value))
        rows, columns = self._relative_logits(lines, grid)
        context = _attend(lines, keys, values, rows, columns, grid)
        if is_watched(self):
            with torch.no_grad():
                weights = grid.dense(_weights(lines, keys, rows, columns, grid))  # (N, k, k, P) -> (N, Q, K)
            record(self, weights.unflatten(0, (-1, self.heads)).to(query.dtype))
        return context.reshape(query.shape).to(query.dtype)

    def _relative_logits(self, query: Tensor, grid: "_Grid") -> tuple[Tensor, Tensor]:
        """q · r of the row offsets and of the column offsets and what a head prefers, each (N, k, P); far below any score where that leads
        off the image."""
        by_row, by_column = query.unflatten(0, (-1, self.heads)).chunk(2, dim=2)  # (B, H, D/2, P) each
        visible_rows, visible_columns = grid.visible(query.device)
        rows = self.row_embedding.to(query.dtype) @ by_row + _penalty(visible_rows, query.dtype)
        columns = self.column_embedding.to(query.dtype) @ by_column + _penalty(visible_columns, query.dtype)
        if self.row_preference is not None and self.column_preference is not None:
            rows = rows + self.row_preference.to(query.dtype)[:, :, None]
            columns = columns + self.column_preference.to(query.dtype)[:, :, None]
        return rows.flatten(0, 1), columns.flatten(0, 1)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, heads={self.heads}, stride={self.stride}"


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

    def lines(self, image: Tensor, heads: int) -> Tensor:
        """(B, H·D, height, width) -> (stride, stride, N, D, line), each line long enough to be read at any shift."""
        tall, wide = self.query_height * self.stride, self.query_width * self.stride
        image = F.pad(image, (0, wide - self.width, 0, tall - self.height))
        split = image.unflatten(3, (self.query_width, self.stride)).unflatten(2, (self.query_height, self.stride))
        # (B, H, D, query rows, stride, query columns, stride) -> (stride, stride, B, H, D, query rows, query columns)
        split = split.unflatten(1, (heads, -1)).permute(4, 6, 0, 1, 2, 3, 5)
        after = self.reach // self.stride * (self.query_width + 1)
        return F.pad(split.flatten(5).flatten(2, 3), (self._before, after))

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
        """The same views as one for all offsets that share a line: (N, D, rows, columns, P), overlapping, so only to be read."""
        for rows, columns, line, start in self._strands(lines):
            stretch = self.pixels + len(columns) - 1
            line = line.narrow(2, start, stretch + (len(rows) - 1) * self.query_width)
            # Tensor.unfold, unlike the function of that name for images, copies nothing.
            view = line.unfold(2, stretch, self.query_width).unfold(3, self.pixels, 1)
            yield slice(rows.start, None, self.stride), slice(columns.start, None, self.stride), view

    def copies(self, lines: Tensor) -> Tensor:
        """What all queries see at all offsets, taken out of `lines` at once: (N, D, k · k, P)."""
        shifts = [divmod(offset - self.reach, self.stride) for offset in range(self.kernel)]
        starts = [
            (row_line * self.stride + column_line) * lines.shape[-1] + self._before + down * self.query_width + right
            for down, row_line in shifts
            for right, column_line in shifts
        ]
        place = torch.tensor(starts, device=lines.device)[:, None] + torch.arange(self.pixels, device=lines.device)
        together = lines.permute(2, 3, 0, 1, 4).flatten(2)  # (N, D, stride · stride · line)
        return together.index_select(2, place.flatten()).unflatten(2, (-1, self.pixels))

    def _neighbours(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """The image row and the image column that each query sees at each offset, on the image or off it: both (k, P)."""
        offset = torch.arange(-self.reach, self.reach + 1, device=device)[:, None, None]
        row = torch.arange(self.query_height, device=device)[:, None] * self.stride + offset
        column = torch.arange(self.query_width, device=device) * self.stride + offset
        shape = (self.kernel, self.query_height, self.query_width)
        return row.expand(shape).flatten(1), column.expand(shape).flatten(1)

    def visible(self, device: torch.device) -> tuple[Tensor, Tensor]:
        row, column = self._neighbours(device)
        return (row >= 0) & (row < self.height), (column >= 0) & (column < self.width)

    def dense(self, weights: Tensor) -> Tensor:
        """Weights over offsets (N, k, k, P) -> weights over all pixels of the image (N, Q, K), 0 outside the neighbourhood."""
        row, column = self._neighbours(weights.device)
        # Off the image the weight is 0, so it may be added to any pixel.
        place = row.clamp(0, self.height - 1)[:, None] * self.width + column.clamp(0, self.width - 1)  # (k, k, P)
        place = place.flatten(0, 1).T.expand(weights.shape[0], -1, -1)
        zeros = weights.new_zeros(weights.shape[0], self.pixels, self.height * self.width)
        return zeros.scatter_add_(2, place, weights.flatten(1, 2).mT)


def _attend(query: Tensor, key: Tensor, value: Tensor, rows: Tensor, columns: Tensor, grid: _Grid) -> Tensor:
    if torch.compiler.is_exporting():
        return _by_copies(query, key, value, rows, columns, grid)
    # torch.compile would fuse the loop over neighbours into code several times slower than the loop that stays in the cache, so a compiled
    # model leaves its graph here.
    compiled = torch.compiler.is_compiling()
    run = torch.compiler.disable(_LocalAttention.apply) if compiled else _LocalAttention.apply
    return run(query, key, value, rows, columns, grid)


def _by_copies(query: Tensor, key: Tensor, value: Tensor, rows: Tensor, columns: Tensor, grid: _Grid) -> Tensor:
    """The same with all neighbours of every pixel side by side: a graph of few nodes, for engines that optimise it themselves."""

    scores = (query[:, :, None] * grid.copies(key)).sum(1)
    scores = scores + (rows[:, :, None] + columns[:, None]).flatten(1, 2)  # (N, k · k, P)
    return (scores.softmax(1)[:, None] * grid.copies(value)).sum(2)


class _LocalAttention(torch.autograd.Function):
    """softmax(q · k + row logit + column logit) v over the neighbourhood, without keeping the weights for the backward pass."""

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
        if torch.is_grad_enabled():  # to be differentiated again
            given = (query, key, value, rows, columns)
            return *gradients_by_torch(partial(_by_copies, grid=grid), given, grad, ctx.needs_input_grad), None
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
        seen = scores[:, rows, columns]
        for channel in range(query.shape[1]):
            seen.addcmul_(query[:, channel, None, None], neighbours[:, channel])
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


def _penalty(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where visible and otherwise so low that the softmax gives exactly 0, yet finite when two are added."""
    penalty = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
    return penalty.masked_fill_(~visible, torch.finfo(dtype).min / 4)


def _check(out_channels: int, kernel_size: int, heads: int, stride: int) -> None:
    if kernel_size < 1 or kernel_size % 2 == 0:
        raise ValueError(
            f"kernel_size is {kernel_size}, but a neighbourhood needs a centre pixel: choose an odd number such as 3, 5 or 7."
        )
    if stride < 1:
        raise ValueError(f"stride is {stride}, but the output takes every stride-th pixel: choose 1 or more.")
    if heads < 1 or out_channels < 1 or out_channels % (2 * heads):
        raise ValueError(
            f"out_channels is {out_channels} with {heads} heads, but every head needs the same, even number of channels "
            f"(half for rows, half for columns): choose out_channels as a multiple of 2 x heads."
        )
