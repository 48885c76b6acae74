"""The optimiser that a recipe names, over the parameters of one objective."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from saccade.attention.positions import is_position_table
from saccade.tasks.task import Objective
from saccade.training.config import TrainConfig
from saccade.training.muon import Muon, inner_matrices


def optimizer_of(objective: Objective, config: TrainConfig, model: nn.Module) -> torch.optim.Optimizer:
    """Weight decay is for what has two axes or more and is no table of positions: a bias or the gain of a norm that is pulled to 0 loses
    what it is for."""
    kinds: dict[str, Callable[..., torch.optim.Optimizer]] = {
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
        "muon": partial(Muon, matrices=inner_matrices(model)),
    }
    left_alone = [each for each in objective.parameters if each.dim() < 2 or is_position_table(each)]
    decayed = [each for each in objective.parameters if each.dim() >= 2 and not is_position_table(each)]
    groups: list[dict[str, Any]] = [{"params": decayed}, {"params": left_alone, "weight_decay": 0.0}]
    return kinds[config.optimizer](
        groups,
        lr=config.learning_rate,
        betas=config.betas,
        eps=config.epsilon,
        weight_decay=config.weight_decay,
        fused=True,
    )
