"""Stand-alone self-attention: every pixel attends to the k × k pixels around it (Ramachandran et al. 2019, arXiv:1906.05909).

    y_ij = Σ_ab softmax_ab(q_ij · k_ab + q_ij · r_{a-i,b-j}) v_ab,        a, b in the k × k neighbourhood of i, j

The first half of every head's channels of r is the embedding of the row offset a-i, the second half that of the column offset b-j, so
q · r is a row logit plus a column logit. Pixels outside the image get no weight. Heads split the output channels; the projections see
all input channels. With `spread` a head also prefers places whatever its query: a learned number for each row offset and each column
offset is added, which starts as -‖offset - Δ_h‖², so that every head h starts by looking around a place Δ_h of its own (Cordonnier 2020).

Axis legend: B batch, H heads, N = B·H, D channels of a head, P pixels that ask, Q queries (output pixels), K keys (input pixels).
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.attention import routes
from saccade.attention.positions import places_around, position_table
from saccade.attention.recording import is_watched, record


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
        projected = self.query(image)
        grid = _Grid(self.kernel_size, self.stride, *image.shape[-2:])
        # Sums over many pixels need more digits than half precision has.
        exact = torch.promote_types(projected.dtype, torch.float32)
        query = projected.to(exact).reshape(-1, projected.shape[1] // self.heads, grid.pixels)  # (N, D, P)
        key, value = (self._split(part(image).to(exact)) for part in (self.key, self.value))  # (N, D, height, width)
        rows, columns = self._relative_logits(query, grid)
        context = routes.attend_locally(attend_to_neighbours, query, key, value, rows, columns, self.stride)
        if is_watched(self):
            with torch.no_grad():
                # One image at a time: its neighbourhoods are copied.
                queries, keys, row_logits, column_logits = (x.split(self.heads) for x in (query, key, rows, columns))
                images = zip(queries, keys, row_logits, column_logits, strict=True)
                dense = [grid.dense(weigh_neighbours(*image, self.stride)) for image in images]
                weights = torch.cat(dense)  # (N, Q, K)
            record(self, weights.unflatten(0, (-1, self.heads)).to(projected.dtype))
        return context.reshape(projected.shape).to(projected.dtype)

    def _split(self, image: Tensor) -> Tensor:
        return image.unflatten(1, (self.heads, -1)).flatten(0, 1)  # (B, H·D, height, width) -> (N, D, height, width)

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


def attend_to_neighbours(
    query: Tensor, key: Tensor, value: Tensor, rows: Tensor, columns: Tensor, stride: int
) -> Tensor:
    """The equation, with all neighbours of every pixel side by side: queries (N, D, P), images (N, D, height, width) → (N, D, P)."""
    weights = weigh_neighbours(query, key, rows, columns, stride)  # (N, k · k, P)
    return (weights[:, None] * _neighbours(value, rows.shape[1], stride)).sum(2)


def weigh_neighbours(query: Tensor, key: Tensor, rows: Tensor, columns: Tensor, stride: int) -> Tensor:
    """(N, k · k, P)"""
    scores = (query[:, :, None] * _neighbours(key, rows.shape[1], stride)).sum(1)
    return (scores + (rows[:, :, None] + columns[:, None]).flatten(1, 2)).softmax(1)


def _neighbours(image: Tensor, kernel_size: int, stride: int) -> Tensor:
    """(N, D, height, width) -> (N, D, k · k, P)"""
    columns = F.unfold(image, kernel_size, padding=kernel_size // 2, stride=stride)
    return columns.unflatten(1, (image.shape[1], -1))


class _Grid(NamedTuple):
    """Which pixels of an image a query sees."""

    kernel: int
    stride: int
    height: int
    width: int

    @property
    def query_height(self) -> int:
        return -(-self.height // self.stride)

    @property
    def query_width(self) -> int:
        return -(-self.width // self.stride)

    @property
    def pixels(self) -> int:
        return self.query_height * self.query_width

    def _neighbours(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """The image row and the image column that each query sees at each offset, on the image or off it: both (k, P)."""
        reach = self.kernel // 2
        offset = torch.arange(-reach, reach + 1, device=device)[:, None, None]
        row = torch.arange(self.query_height, device=device)[:, None] * self.stride + offset
        column = torch.arange(self.query_width, device=device) * self.stride + offset
        shape = (self.kernel, self.query_height, self.query_width)
        return row.expand(shape).flatten(1), column.expand(shape).flatten(1)

    def visible(self, device: torch.device) -> tuple[Tensor, Tensor]:
        row, column = self._neighbours(device)
        return (row >= 0) & (row < self.height), (column >= 0) & (column < self.width)

    def dense(self, weights: Tensor) -> Tensor:
        """Weights over offsets (N, k · k, P) -> weights over all pixels of the image (N, Q, K), 0 outside the neighbourhood."""
        row, column = self._neighbours(weights.device)
        # Off the image the weight is 0, so it may be added to any pixel.
        place = row.clamp(0, self.height - 1)[:, None] * self.width + column.clamp(0, self.width - 1)  # (k, k, P)
        place = place.flatten(0, 1).T.expand(weights.shape[0], -1, -1)
        zeros = weights.new_zeros(weights.shape[0], self.pixels, self.height * self.width)
        return zeros.scatter_add_(2, place, weights.mT)


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
