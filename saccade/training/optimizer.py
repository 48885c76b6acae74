"""The optimiser of a step: what the train section says, unless the step says otherwise."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from saccade.attention.positions import is_position_table
from saccade.tasks.task import Step
from saccade.training.config import TrainConfig
from saccade.training.muon import Muon, inner_matrices

RATE = "times"  # of a group of parameters: what the learning rate is multiplied by
_OF_A_STEP = ("optimizer", "learning_rate", "betas", "epsilon", "weight_decay", "max_grad_norm")


def settings_of(step: Step, config: TrainConfig) -> TrainConfig:
    """The train section with what the step replaces."""
    own = {name: getattr(step, name) for name in _OF_A_STEP}
    return config.model_copy(update={name: value for name, value in own.items() if value is not None})


def optimizer_of(step: Step, config: TrainConfig, model: nn.Module) -> torch.optim.Optimizer:
    """Weight decay is for what has two axes or more and is no table of positions: a bias or the gain of a norm that is pulled to 0 loses
    what it is for."""
    kinds: dict[str, Callable[..., torch.optim.Optimizer]] = {
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
        "muon": partial(Muon, matrices=inner_matrices(model)),
    }
    alike: dict[tuple[float, bool], list[nn.Parameter]] = {(1.0, True): [], (1.0, False): []}
    for parameter in step.parameters:
        is_decayed = parameter.dim() >= 2 and not is_position_table(parameter)
        alike.setdefault((step.rates.get(parameter, 1.0), is_decayed), []).append(parameter)
    groups: list[dict[str, Any]] = [
        {"params": parameters, RATE: times, **({} if is_decayed else {"weight_decay": 0.0})}
        for (times, is_decayed), parameters in alike.items()
    ]
    return kinds[config.optimizer](
        groups,
        lr=config.learning_rate,
        betas=config.betas,
        eps=config.epsilon,
        weight_decay=config.weight_decay,
        fused=True,
    )
