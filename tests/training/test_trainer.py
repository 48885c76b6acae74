"""What the trainer says before and after the loop."""

import pytest

from saccade.config.recipe import load
from saccade.training.checkpoint import Progress, RunDirectory
from saccade.training.config import TrainConfig
from saccade.training.reporter import Reporter
from saccade.training.trainer import Trainer, too_short
from saccade.training.world import World


@pytest.mark.parametrize(
    ("steps", "minutes", "said"),
    [
        (5, None, "the learning rate was still rising at the end: train.warmup_steps is 5 of 5 steps"),
        (6, None, "rose for most of the training"),
        (10, None, ""),
        (5, 1.0, ""),  # a budget shortens the warm-up
    ],
)
def test_it_says_when_the_warm_up_was_too_long(steps, minutes, said):
    sentences = too_short(Progress(step=steps), TrainConfig(warmup_steps=5, minutes=minutes))
    assert bool(sentences) == bool(said)
    assert said in "".join(sentences)


@pytest.mark.parametrize(
    ("changes", "progress", "said"),
    [
        ([], Progress(step=6), "--set train.steps=12"),
        (["train.minutes=2"], Progress(step=3, seconds=130.0), "--set train.minutes=4"),
        (["train.patience=1"], Progress(step=4, validations_since_best=1), "--set train.patience=null"),
    ],
)
def test_a_finished_run_says_how_to_train_it_further(changes, progress, said, tmp_path):
    config = load("digits-rnn", ["train.steps=6", *changes]).train
    trainer = Trainer(config, RunDirectory(tmp_path / "my run"), Reporter(quiet=True), World())
    trainer.progress = progress
    assert trainer.further() == f"saccade train '{tmp_path / 'my run'}' --resume {said}"
