"""How the learning rate moves: a linear warm-up to the highest rate, then one of three ways down.

The Transformer paper's rate, d^-.5 · min(step^-.5, step · warmup^-1.5), is `inverse-square-root` with a highest rate of (d · warmup)^-.5.
"""

import math

from saccade.training.config import TrainConfig


def rate_at(config: TrainConfig, step: int, share_done: float) -> float:
    """The rate of update number `step` (from 1). `share_done` is how much of the steps or minutes is over, 0 to 1."""
    if step <= config.warmup_steps:
        return config.learning_rate * step / config.warmup_steps
    if config.schedule == "inverse-square-root":
        return config.learning_rate * math.sqrt(max(config.warmup_steps, 1) / step)
    if config.schedule == "cosine":
        # About how much was over when the warm-up ended; also where minutes end the training before the steps do.
        start = share_done * config.warmup_steps / step
        share = (share_done - start) / (1 - start)
        return config.learning_rate * 0.5 * (1 + math.cos(math.pi * share))
    return config.learning_rate
