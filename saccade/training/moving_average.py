"""An exponential moving average of the weights (Polyak 1992; EMA of GANs and diffusion models):

    d = min(decay, (1 + t) / (10 + t))        average ← d · average + (1 - d) · weights        after update t

The smaller d of the first updates lets the average forget the untrained weights soon. Buffers (the statistics of a batch norm) are
not averaged: theirs is the newest value.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from saccade.layers.sketch import own_tensors
from saccade.training.weights import put_tensors


class MovingAverage:
    def __init__(self, model: nn.Module, decay: float):
        self.decay = decay
        self._model = model
        self.tensors = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """After update number `step` (from 1)."""
        decay = min(self.decay, (1 + step) / (10 + step))
        for name, parameter in self._model.named_parameters():
            self.tensors[name].lerp_(parameter, 1 - decay)

    @torch.no_grad()
    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """The average of a saved state. A state without one was saved by a training without: then it begins with the weights."""
        newest = dict(self._model.named_parameters())
        for name, average in self.tensors.items():
            average.copy_(tensors.get(name, newest[name]))

    @contextmanager
    def in_model(self) -> Iterator[None]:
        """Inside, the model has the averaged weights."""
        own = {name: tensor.detach().clone() for name, tensor in own_tensors(self._model).items()}
        put_tensors(self._model, {**own, **self.tensors}, "the moving average")
        try:
            yield
        finally:
            put_tensors(self._model, own, "the weights before averaging")
