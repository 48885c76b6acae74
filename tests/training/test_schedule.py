"""Learning rates by numbers one can compute on paper."""

import math

import pytest

from saccade.training.config import TrainConfig
from saccade.training.schedule import rate_at


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


def test_cosine_starts_from_the_highest_rate_also_where_minutes_end_the_training():
    """Half of the minutes are over after a warm-up of 10 of a million steps."""
    config = TrainConfig(schedule="cosine", learning_rate=2.0, warmup_steps=10, steps=1_000_000, minutes=1)
    assert rate_at(config, 10, 0.5) == pytest.approx(2.0)
    assert rate_at(config, 11, 0.55) == pytest.approx(1.951, abs=1e-3)
    assert rate_at(config, 15, 0.75) == pytest.approx(1.0)
    assert rate_at(config, 20, 1.0) == pytest.approx(0.0)


def test_constant_stays():
    config = TrainConfig(schedule="constant", learning_rate=0.3, warmup_steps=3, steps=10)
    assert [rate_at(config, step, step / 10) for step in (3, 4, 10)] == [0.3, 0.3, 0.3]
    assert math.isclose(rate_at(config, 1, 0.1), 0.1)
