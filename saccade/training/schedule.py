"""How the learning rate moves: a linear warm-up to the highest rate, then one of three ways down.

The Transformer paper's rate, d^-.5 · min(step^-.5, step · warmup^-1.5), is `inverse-square-root` with a highest rate of (d · warmup)^-.5.

Where minutes limit the training, a ramp (the warm-up, the rise of dropout) takes at most a tenth of what the measured speed allows.
"""

import math

from saccade.training.config import TrainConfig

LONGEST_RAMP = 0.1  # of a budget of minutes


def rate_at(config: TrainConfig, step: int, share_done: float) -> float:
    """The learning rate of update number `step` (from 1). `share_done` is how much of the steps or minutes is over, 0 to 1."""
    highest, warmup = config.learning_rate, warmup_steps(config, step, share_done)
    if step <= warmup:
        return highest * step / warmup
    if config.schedule == "inverse-square-root":
        return highest * math.sqrt(max(warmup, 1) / step)
    if config.schedule == "cosine":
        # About how much was over when the warm-up ended; also where minutes end the training before the steps do.
        start = share_done * warmup / step
        share = (share_done - start) / (1 - start)
        return highest * 0.5 * (1 + math.cos(math.pi * share))
    return highest


def warmup_steps(config: TrainConfig, step: int, share_done: float) -> float:
    """How many updates the warm-up takes. After `step` updates in a share of the minutes, step / share_done fit into all of them."""
    if config.minutes is None:
        return config.warmup_steps
    return min(config.warmup_steps, LONGEST_RAMP * step / max(share_done, 1e-9))


def dropout_share(config: TrainConfig, epoch: int, share_done: float) -> float:
    """How much of the model's dropout is in force, 0 to 1."""
    if not config.dropout_epochs:
        return 1.0
    by_epochs = epoch / config.dropout_epochs
    return min(1.0, by_epochs if config.minutes is None else max(by_epochs, share_done / LONGEST_RAMP))
