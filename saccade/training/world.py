"""One process or many: the same loop under `torchrun`. Each process computes its share of every batch; gradients are summed over all."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn


@dataclass(frozen=True)
class World:
    rank: int = 0
    size: int = 1

    @classmethod
    def join(cls) -> "World":
        """The group that torchrun's environment names, or this process alone."""
        size = int(os.environ.get("WORLD_SIZE", "1"))
        if size == 1:
            return cls()
        if not dist.is_initialized():
            dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
        return cls(dist.get_rank(), size)

    @property
    def leads(self) -> bool:
        """Only this process writes and prints."""
        return self.rank == 0

    def wait(self) -> None:
        if self.size > 1:
            dist.barrier()

    @contextmanager
    def leader_first(self) -> Iterator[None]:
        """No process leaves this block before the leader has; if the leader failed, all stop, and its error says why."""
        try:
            yield
        except BaseException:
            self.from_leader(1.0)
            raise
        if self.from_leader(0.0):
            raise SystemExit(1)

    def sum_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Gradients of all processes, added up in one message. A process without a share of the batch has none and adds 0."""
        if self.size == 1:
            return
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)
        parts = torch.split(flat, [gradient.numel() for gradient in gradients])
        for gradient, summed in zip(gradients, parts, strict=True):
            gradient.copy_(summed.view_as(gradient))

    def sum_numbers(self, numbers: Sequence[float]) -> list[float]:
        if self.size == 1:
            return list(numbers)
        tensor = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(tensor)
        return tensor.tolist()

    def from_leader(self, number: float) -> float:
        """The leader's number, in every process."""
        return self.sum_numbers([number if self.leads else 0.0])[0]

    def share_weights(self, tensors: Sequence[Tensor]) -> None:
        """All processes start from the leader's weights."""
        if self.size > 1:
            for tensor in tensors:
                dist.broadcast(tensor.data, 0)
