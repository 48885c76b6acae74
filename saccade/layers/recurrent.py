"""Recurrent cells and the bidirectional encoder.

GRU (Cho 2014)                              LSTM (Hochreiter 1997)
    r = σ(W_r x + U_r h)                        i, f, o = σ(W x + U h), each its own
    z = σ(W_z x + U_z h)                        g = tanh(W_g x + U_g h)
    n = tanh(W_n x + r ∘ U_n h)                 c' = f ∘ c + i ∘ g
    h' = (1 - z) ∘ n + z ∘ h                    h' = o ∘ tanh(c')

A cell works in two steps: `gates(x)` depends on the input alone and can be computed for all steps at once; `forward` is what must wait
for the state. For a whole sequence, `over_steps` gives a cell whose weights get their gradients from all steps at once. Names, layout and
numbers are those of `torch.nn.GRUCell` and `torch.nn.LSTMCell`. A state is one tensor: h, or h and c side by side.

Axis legend: B batch, N length, D features.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from saccade.attention.hooks import is_hooked
from saccade.attention.routes import product_over_steps
from saccade.layers.dropout import Dropout

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

    def forward(self, gates: Tensor, state: Tensor) -> Tensor:
        return self.after(gates, F.linear(self.output(state), self.weight_hh, self.bias_hh), state)

    def after(self, gates: Tensor, from_state: Tensor, state: Tensor) -> Tensor:
        """The next state from both parts of the gates: the input's and the state's."""
        raise NotImplementedError

    def over_steps(self) -> "Cell | CellOverSteps":
        """For the steps of one sequence; the cell itself where a hook must run."""
        return self if is_hooked(self) else CellOverSteps(self)

    def gates(self, first: Tensor) -> Tensor:
        """The input's part of the gates, for the leading features of the input."""
        return F.linear(first, self.weight_ih[:, : first.shape[-1]], self.bias_ih)

    def more_gates(self, size: int) -> Callable[[Tensor], Tensor]:
        """The part of the `size` trailing features of the input, to be added. Ask once for many steps."""
        return product_over_steps(self.weight_ih[:, self.input_size - size :].t())

    def output(self, state: Tensor) -> Tensor:
        """h of a state."""
        return state[..., : self.size]

    def start(self, h: Tensor) -> Tensor:
        """The state with this h; an LSTM's c starts at 0."""
        return F.pad(h, (0, (self.states - 1) * self.size))


class GRUCell(Cell):
    parts, states = 3, 1

    def after(self, gates: Tensor, from_state: Tensor, state: Tensor) -> Tensor:
        reset_x, update_x, new_x = gates.chunk(3, dim=-1)
        reset_h, update_h, new_h = from_state.chunk(3, dim=-1)
        reset = torch.sigmoid(reset_x + reset_h)
        update = torch.sigmoid(update_x + update_h)
        new = torch.tanh(new_x + reset * new_h)
        return torch.lerp(new, state, update)  # (1 - z) n + z h


class LSTMCell(Cell):
    parts, states = 4, 2

    def after(self, gates: Tensor, from_state: Tensor, state: Tensor) -> Tensor:
        c = state[..., self.size :]
        take, forget, new, show = (gates + from_state).chunk(4, dim=-1)
        c = torch.sigmoid(forget) * c + torch.sigmoid(take) * torch.tanh(new)
        return torch.cat((torch.sigmoid(show) * torch.tanh(c), c), dim=-1)


class CellOverSteps:
    """A cell for one sequence: called like the cell itself, with the same numbers."""

    def __init__(self, cell: Cell):
        self.output = cell.output
        self.gates = product_over_steps(cell.weight_ih.t(), cell.bias_ih)
        self._after = cell.after
        self._from_state = product_over_steps(cell.weight_hh.t(), cell.bias_hh)

    def __call__(self, gates: Tensor, state: Tensor) -> Tensor:
        return self._after(gates, self._from_state(self.output(state)), state)


CELLS: dict[CellName, type[Cell]] = {"gru": GRUCell, "lstm": LSTMCell}


class RecurrentEncoder(nn.Module):
    """A bidirectional GRU or LSTM. `size` is that of the output: half of it read forwards, half backwards."""

    def __init__(self, cell: CellName, input_size: int, size: int, layers: int, dropout: float):
        super().__init__()
        if size % 2:
            raise ValueError(f"size must be even, half of it for each reading direction; got {size}")
        kind = nn.GRU if cell == "gru" else nn.LSTM
        between = dropout if layers > 1 else 0.0
        self.between = Dropout(between)
        self.network = kind(input_size, size // 2, layers, batch_first=True, dropout=between, bidirectional=True)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """x (B, N, D) → annotations (B, N, size), 0 where padded, and the last states of both directions (B, size).

        Reading backwards reverses each row's own words and leaves its padding at the end. Torch's packed sequences do the same, with a
        gradient whose cost grows with the square of the length; they are for a network that is hooked or was replaced.
        """
        if type(self.network) not in (nn.GRU, nn.LSTM) or is_hooked(self.network):
            return self._read_packed(x, lengths)
        position, length = torch.arange(x.shape[1], device=x.device), lengths.to(x.device)[:, None]
        inside = position < length  # (B, N)
        reversed_order = torch.where(inside, length - 1 - position, position)
        x = x.masked_fill(~inside[..., None], 0.0)
        for layer in range(self.network.num_layers):
            if layer:
                x = self.between(x)
            forwards = self._read(x, f"l{layer}")
            backwards = self._read(_in_order(x, reversed_order), f"l{layer}_reverse")
            x = torch.cat((forwards, _in_order(backwards, reversed_order)), dim=-1)
        last = torch.cat((_in_order(forwards, length - 1), _in_order(backwards, length - 1)), dim=-1)
        return x * inside[..., None], last.squeeze(1)

    def _read(self, x: Tensor, suffix: str) -> Tensor:
        """One direction of one layer over (B, N, D): its h after each word."""
        network = self.network
        weights = [getattr(network, f"{name}_{suffix}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        start = x.new_zeros(1, len(x), network.hidden_size)
        if isinstance(network, nn.GRU):
            return torch.gru(x, start, weights, True, 1, 0.0, self.training, False, True)[0]
        return torch.lstm(x, (start, start), weights, True, 1, 0.0, self.training, False, True)[0]

    def _read_packed(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        outputs, last = self.network(packed)
        annotations, _ = pad_packed_sequence(outputs, batch_first=True, total_length=x.shape[1])
        h = last[0] if isinstance(last, tuple) else last
        return annotations, torch.cat((h[-2], h[-1]), dim=-1)


def _in_order(x: Tensor, positions: Tensor) -> Tensor:
    """x (B, N, D) at positions (B, M) → (B, M, D)"""
    return x.gather(1, positions[..., None].expand(-1, -1, x.shape[-1]))
