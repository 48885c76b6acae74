"""One update: every step of the task in order, each with its own optimiser.

A step: add up the losses' totals over a group of batches (and over all processes), divide the gradient once by what was counted, clip, let
the optimiser move the step's parameters. A group is `gradient_accumulation` batches; an update takes as many groups from the epoch as the
largest `repeats` of its steps, and repetition r of each step uses group r. Where an epoch ends earlier, its last groups are used again.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from saccade.tasks.task import AnyTrained, Step
from saccade.training.config import TrainConfig
from saccade.training.optimizer import RATE, optimizer_of, settings_of
from saccade.training.precision import resolve
from saccade.training.schedule import rate_at
from saccade.training.weights import below, optimizer_tensors, put_optimizer_tensors
from saccade.training.world import World


class StepDiverged(Exception):
    """The loss or the gradient of a step became NaN or infinite: what, and of which step and batch. Its parameters were not moved."""

    def __init__(self, what: str, where: str):
        super().__init__(what)
        self.what, self.where = what, where


@dataclass
class Sums:
    """What the updates since the last report added up to."""

    seconds: float = 0.0
    counts: dict[str, float] = field(default_factory=dict)  # by step
    totals: dict[str, tuple[str, float]] = field(default_factory=dict)  # by figure: whose count divides it, and the sum

    def add(self, step: str, count: float, totals: Mapping[str, float]) -> None:
        self.counts[step] = self.counts.get(step, 0.0) + count
        for name, total in totals.items():
            self.totals[name] = (step, self.totals.get(name, (step, 0.0))[1] + total)

    def means(self) -> dict[str, float]:
        return {name: total / max(self.counts[step], 1.0) for name, (step, total) in self.totals.items()}


class Updates:
    """The steps of a task with their settings and optimisers."""

    def __init__(self, task: AnyTrained, config: TrainConfig, world: World):
        self.task = task
        self.steps = list(task.steps())
        self.settings = [settings_of(step, config) for step in self.steps]
        self.optimizers = [
            optimizer_of(step, settings, task.model) for step, settings in zip(self.steps, self.settings, strict=True)
        ]
        self.device = next(task.model.parameters()).device
        self.dtype = resolve(config.precision, self.device)
        self._names = {parameter: name for name, parameter in task.model.named_parameters()}
        self._world = world
        self._group_size = config.gradient_accumulation

    @property
    def batches(self) -> int:
        """How many batches an update takes from the epoch."""
        return self._group_size * max(step.repeats for step in self.steps)

    @property
    def optimizer_names(self) -> str:
        return ", ".join(settings.optimizer for settings in self.settings)

    @property
    def rate(self) -> float:
        """The learning rate of the first step's last update, of parameters that learn at no rate of their own."""
        rate: float = self.optimizers[0].param_groups[0]["lr"]
        return rate

    def take(self, works: Sequence[Any], number: int, share_done: float, sums: Sums) -> None:
        """Update number `number` (from 1)."""
        size = self._group_size
        groups = [works[start : start + size] for start in range(0, len(works), size)]
        for step, settings, optimizer in zip(self.steps, self.settings, self.optimizers, strict=True):
            rate = rate_at(settings, number, share_done)
            for repetition in range(step.repeats):
                group = groups[repetition % len(groups)]
                sums.add(step.name, *self._take(step, optimizer, group, rate, settings.max_grad_norm))

    def tensors(self) -> dict[str, Tensor]:
        """What the optimisers remember, by the names of steps and parameters."""
        return {
            f"optimizer.{step.name}.{name}": tensor
            for step, optimizer in zip(self.steps, self.optimizers, strict=True)
            for name, tensor in optimizer_tensors(optimizer, self._names)
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        for step, optimizer in zip(self.steps, self.optimizers, strict=True):
            put_optimizer_tensors(optimizer, self._names, below(f"optimizer.{step.name}.", tensors))

    def _take(
        self, step: Step, optimizer: torch.optim.Optimizer, works: Sequence[Any], rate: float, max_norm: float | None
    ) -> tuple[float, dict[str, float]]:
        optimizer.zero_grad(set_to_none=True)
        count, totals = self._backward(step, works)
        self._world.sum_gradients(step.parameters)
        norm = _scale_and_clip(step.parameters, count, max_norm)
        loss = totals[step.name] / max(count, 1.0)
        if not (math.isfinite(loss) and math.isfinite(norm)):
            what = f"gradient became {norm}" if math.isfinite(loss) else f"loss became {loss}"
            raise StepDiverged(what, f"{step.name}; batch: {self.task.describe(works[0])}")
        for group in optimizer.param_groups:
            group["lr"] = rate * group[RATE]
        optimizer.step()
        return count, totals

    def _backward(self, step: Step, works: Sequence[Any]) -> tuple[float, dict[str, float]]:
        """Gradients of the summed loss; how much was counted and what it added up to, over all processes."""
        count, totals = 0.0, dict.fromkeys((step.name, *step.shown), 0.0)
        for work in works:
            batch = self.task.batch(work)
            if batch is None:
                continue
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.dtype == torch.bfloat16):
                loss = step.loss(batch)
            torch.autograd.backward(loss.total)
            count += loss.count
            totals[step.name] += float(loss.total.detach())
            for name in step.shown:
                totals[name] += loss.shown[name]
        count, *values = self._world.sum_numbers([count, *totals.values()])
        return count, dict(zip(totals, values, strict=True))


@torch.no_grad()
def _scale_and_clip(parameters: Sequence[nn.Parameter], count: float, max_norm: float | None) -> float:
    """Divides the gradients by what was counted, then limits their common norm. Gives the norm before clipping."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not gradients:
        return 0.0
    norm = float(torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))) / max(count, 1.0)
    scale = 1.0 / max(count, 1.0)
    if max_norm is not None and norm > max_norm:
        scale *= max_norm / norm
    torch._foreach_mul_(gradients, scale)
    return norm
