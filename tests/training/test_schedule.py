"""Learning rates by numbers one can compute on paper."""

import math

import pytest

from saccade.training.config import TrainConfig
from saccade.training.schedule import dropout_share, rate_at


def test_inverse_square_root_is_the_papers_rate():
    d, warmup = 512, 4000
    config = TrainConfig(
        schedule="inverse-square-root", warmup_steps=warmup, learning_rate=(d * warmup) ** -0.5, steps=100_000
    )
    for step in (1, 100, 3999, 4000, 4001, 50_000):
        paper = d**-0.5 * min(step**-0.5, step * warmup**-1.5)
        assert rate_at(config, step, step / config.steps) == pytest.approx(paper, rel=1e-12)


def test_cosine_goes_from_the_highest_rate_to_zero():
    config = TrainConfig(schedule="cosine", learning_rate=2.0, warmup_steps=10, steps=110)
    assert rate_at(config, 5, 5 / 110) == pytest.approx(1.0)
    assert rate_at(config, 10, 10 / 110) == pytest.approx(2.0)
    assert rate_at(config, 60, 60 / 110) == pytest.approx(1.0)
    assert rate_at(config, 110, 1.0) == pytest.approx(0.0)


def test_minutes_limit_the_warm_up_to_a_tenth_of_what_the_speed_allows():
    """100 updates fit into the minute, so the warm-up of 400 takes 10."""
    config = TrainConfig(schedule="cosine", learning_rate=2.0, warmup_steps=400, steps=1_000_000, minutes=1)
    assert rate_at(config, 5, 0.05) == pytest.approx(1.0)
    assert rate_at(config, 10, 0.1) == pytest.approx(2.0)
    assert rate_at(config, 55, 0.55) == pytest.approx(1.0)
    assert rate_at(config, 100, 1.0) == pytest.approx(0.0)
    root = config.model_copy(update={"schedule": "inverse-square-root"})
    assert rate_at(root, 40, 0.4) == pytest.approx(1.0)  # 2 √(10 / 40)


def test_a_warm_up_shorter_than_a_tenth_of_the_minutes_keeps_its_length():
    """1,000 updates fit into the minute."""
    config = TrainConfig(schedule="cosine", learning_rate=2.0, warmup_steps=10, steps=1_000_000, minutes=1)
    assert rate_at(config, 5, 0.005) == pytest.approx(1.0)
    assert rate_at(config, 10, 0.01) == pytest.approx(2.0)
    assert rate_at(config, 505, 0.505) == pytest.approx(1.0)


def test_minutes_limit_the_rise_of_dropout_to_a_tenth_of_them():
    by_epochs = TrainConfig(dropout_epochs=10)
    assert [dropout_share(by_epochs, epoch, 0.9) for epoch in (0, 5, 20)] == [0.0, 0.5, 1.0]
    limited = TrainConfig(dropout_epochs=10, minutes=1)
    assert [dropout_share(limited, 0, share) for share in (0.0, 0.05, 0.2)] == [0.0, 0.5, 1.0]
    assert dropout_share(limited, 5, 0.01) == 0.5


def test_constant_stays():
    config = TrainConfig(schedule="constant", learning_rate=0.3, warmup_steps=3, steps=10)
    assert [rate_at(config, step, step / 10) for step in (3, 4, 10)] == [0.3, 0.3, 0.3]
    assert math.isclose(rate_at(config, 1, 0.1), 0.1)
