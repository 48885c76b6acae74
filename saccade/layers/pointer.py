"""Writing by pointing: the next word is taken from the vocabulary, or copied from where the source was looked at (See et al. 2017,
https://arxiv.org/abs/1704.04368).

    p(w) = g softmax(V r)_w + (1 - g) Σ_(i: x_i = w) a_i            g = σ(readout's gate): write rather than copy

A readout carries all of it: [r; gate; a; x], the tokens x of the source as numbers. Source and target share one vocabulary of subwords.
They spell every word: one that was never seen is copied piece by piece, so the vocabulary needs no extension.

Axis legend: E readout, S source, V vocabulary.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_FAINTEST = 1e-12  # of a probability, so that its logarithm is finite


class PointerOutput(nn.Module):
    """Log-probabilities of the next word. `weight` may be shared with an embedding."""

    def __init__(self, size: int, words: int):
        super().__init__()
        self.write = nn.Linear(size, words)

    def forward(self, readouts: Tensor) -> Tensor:
        """(..., E + 1 + 2 S) → (..., V)"""
        readout, gate, weights, source = self._parts(readouts)
        written = F.logsigmoid(gate) + self.write(readout).log_softmax(-1)
        copied = torch.zeros_like(written).scatter_add(-1, source, weights.to(written.dtype))
        return torch.logaddexp(written, F.logsigmoid(-gate) + copied.clamp_min(_FAINTEST).log())

    def cross_entropy(self, readouts: Tensor, targets: Tensor, label_smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """Of readouts (N, E + 1 + 2 S) and words (N,): the loss summed over all, and the plain negative log-likelihood of each, without a
        gradient. Smoothing is the vocabulary's: nobody copies evenly."""
        readout, gate, weights, source = self._parts(readouts.float())
        vocabulary = self.write(readout).log_softmax(-1)  # (N, V)
        written = vocabulary.gather(-1, targets[:, None]) + F.logsigmoid(gate)
        copied = (weights * (source == targets[:, None])).sum(-1, keepdim=True).clamp_min(_FAINTEST)
        nll = -torch.logaddexp(written, copied.log() + F.logsigmoid(-gate)).squeeze(-1)
        smooth = -vocabulary.mean(-1) if label_smoothing else torch.zeros_like(nll)
        return ((1 - label_smoothing) * nll + label_smoothing * smooth).sum(), nll.detach()

    def _parts(self, readouts: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        size = self.write.in_features
        length = (readouts.shape[-1] - size - 1) // 2
        readout, gate, weights, source = readouts.split((size, 1, length, length), dim=-1)
        return readout, gate, weights, source.long()
