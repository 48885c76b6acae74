"""Recurrent cells and the bidirectional encoder.

GRU (Cho 2014)                              LSTM (Hochreiter 1997)
    r = σ(W_r x + U_r h)                        i, f, o = σ(W x + U h), each its own
    z = σ(W_z x + U_z h)                        g = tanh(W_g x + U_g h)
    n = tanh(W_n x + r ∘ U_n h)                 c' = f ∘ c + i ∘ g
    h' = (1 - z) ∘ n + z ∘ h                    h' = o ∘ tanh(c')

A cell works in two steps: `gates(x)` depends on the input alone and can be computed for all steps at once; `forward` is what must wait
for the state. Names, layout and numbers are those of `torch.nn.GRUCell` and `torch.nn.LSTMCell`. A state is one tensor: h, or h and c side
by side.

Axis legend: B batch, N length, D features.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

CellName = Literal["gru", "lstm"]


class Cell(nn.Module):
    """What GRU and LSTM share: the two linear maps."""

    parts: int  # gates
    states: int  # tensors side by side in a state

    def __init__(self, input_size: int, size: int):
        super().__init__()
        self.input_size = input_size
        self.size = size
        bound = size**-0.5
        self.weight_ih = nn.Parameter(torch.empty(self.parts * size, input_size).uniform_(-bound, bound))
        self.weight_hh = nn.Parameter(torch.empty(self.parts * size, size).uniform_(-bound, bound))
        self.bias_ih = nn.Parameter(torch.empty(self.parts * size).uniform_(-bound, bound))
        self.bias_hh = nn.Parameter(torch.empty(self.parts * size).uniform_(-bound, bound))

    def gates(self, first: Tensor) -> Tensor:
        """The input's part of the gates, for the leading features of the input."""
        return F.linear(first, self.weight_ih[:, : first.shape[-1]], self.bias_ih)

    def more_gates(self, size: int) -> Callable[[Tensor], Tensor]:
        """The part of the `size` trailing features of the input, to be added. Ask once for many steps: the gradient of the weights'
        slice is then put into its place once, not at every step."""
        rest = self.weight_ih[:, self.input_size - size :]
        return lambda features: F.linear(features, rest)

    def output(self, state: Tensor) -> Tensor:
        """h of a state."""
        return state[..., : self.size]

    def start(self, h: Tensor) -> Tensor:
        """The state whose h is given; an LSTM's c starts at 0."""
        return F.pad(h, (0, (self.states - 1) * self.size))


class GRUCell(Cell):
    parts, states = 3, 1

    def forward(self, gates: Tensor, state: Tensor) -> Tensor:
        reset_x, update_x, new_x = gates.chunk(3, dim=-1)
        reset_h, update_h, new_h = F.linear(state, self.weight_hh, self.bias_hh).chunk(3, dim=-1)
        reset = torch.sigmoid(reset_x + reset_h)
        update = torch.sigmoid(update_x + update_h)
        new = torch.tanh(new_x + reset * new_h)
        return torch.lerp(new, state, update)  # (1 - z) n + z h


class LSTMCell(Cell):
    parts, states = 4, 2

    def forward(self, gates: Tensor, state: Tensor) -> Tensor:
        h, c = state.chunk(2, dim=-1)
        take, forget, new, show = (gates + F.linear(h, self.weight_hh, self.bias_hh)).chunk(4, dim=-1)
        c = torch.sigmoid(forget) * c + torch.sigmoid(take) * torch.tanh(new)
        return torch.cat((torch.sigmoid(show) * torch.tanh(c), c), dim=-1)


CELLS: dict[CellName, type[Cell]] = {"gru": GRUCell, "lstm": LSTMCell}


class RecurrentEncoder(nn.Module):
    """A bidirectional GRU or LSTM. `size` is that of the output: half of it read forwards, half backwards."""

    def __init__(self, cell: CellName, input_size: int, size: int, layers: int, dropout: float):
        super().__init__()
        if size % 2:
            raise ValueError(
                f"the encoder reads forwards and backwards with half of its size each, so the size must be even; got {size}"
            )
        kind = nn.GRU if cell == "gru" else nn.LSTM
        between = dropout if layers > 1 else 0.0
        self.network = kind(input_size, size // 2, layers, batch_first=True, dropout=between, bidirectional=True)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """x (B, N, D) → annotations (B, N, size), 0 where padded, and the last states of both directions (B, size)."""
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        outputs, last = self.network(packed)
        annotations, _ = pad_packed_sequence(outputs, batch_first=True, total_length=x.shape[1])
        h = last[0] if isinstance(last, tuple) else last
        return annotations, torch.cat((h[-2], h[-1]), dim=-1)
