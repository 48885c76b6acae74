"""Fine-tuning: which parts of a model learn, and at which rate.

A pretrained model's lower layers know the language and should move less than its head: `layer_decay` is the share of the learning rate of
the part above that each part gets (Howard and Ruder 2018, "discriminative fine-tuning"; layer-wise decay in ELECTRA).
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from pydantic import Field
from torch import nn

from saccade.config.recipe import Config
from saccade.errors import ConfigError


class TuningConfig(Config):
    freeze: str = Field(
        "",
        description="tensors that stay as they are, by pattern such as embed.*; several with commas: embed.*,layers.0.*",
    )
    layer_decay: float = Field(
        1.0, gt=0, le=1, description="the learning rate of each layer is this share of the one above it"
    )
    head_rate: float = Field(1.0, gt=0, description="the head's learning rate, in multiples of the others'")


def freeze(model: nn.Module, patterns: str) -> int:
    """How many parameters learn no more."""
    wanted = [part.strip() for part in patterns.split(",") if part.strip()]
    names = [name for name, _ in model.named_parameters()]
    for pattern in wanted:
        if not any(fnmatchcase(name, pattern) for name in names):
            tops = ", ".join(dict.fromkeys(f"{name.partition('.')[0]}.*" for name in names))
            raise ConfigError(f"tuning.freeze = {pattern} matches no tensor of this model: it has {tops}")
    frozen = 0
    for name, parameter in model.named_parameters():
        if any(fnmatchcase(name, pattern) for pattern in wanted):
            parameter.requires_grad_(False)
            frozen += parameter.numel()
    if wanted and not any(parameter.requires_grad for parameter in model.parameters()):
        raise ConfigError(f"tuning.freeze = {patterns} leaves nothing to learn: leave the head out")
    return frozen


def rates(stack: Sequence[nn.Module], config: TuningConfig) -> dict[nn.Parameter, float]:
    """What each parameter's learning rate is multiplied by; `stack` goes from the words up to the head."""
    top = len(stack) - 1
    times = dict[nn.Parameter, float]()
    for level, part in enumerate(stack):
        rate = config.head_rate if level == top else config.layer_decay ** (top - level)
        for parameter in part.parameters():
            times.setdefault(parameter, rate)
    return {parameter: rate for parameter, rate in times.items() if rate != 1.0}
