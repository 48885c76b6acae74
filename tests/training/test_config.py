"""The `train` section: the names of its settings."""

import pytest

from saccade.config.recipe import load
from saccade.errors import ConfigError


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("rate=0.1", "learning_rate"),
        ("warmup=5", "warmup_steps"),
        ("clip=1.0", "max_grad_norm"),
        ("accumulate=2", "gradient_accumulation"),
    ],
)
def test_an_old_name_says_what_it_is_called_now(old, new):
    name = old.partition("=")[0]
    with pytest.raises(ConfigError, match=rf"^train\.{name} \(--set\) is now called train\.{new}$"):
        load("digits-rnn", [f"train.{old}"])
