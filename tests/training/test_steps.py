"""Updates of several steps: whose parameters, whose optimiser, how often, on which batches; resumed exactly."""

import json

import pytest
from small_tasks import Saddle, assert_same, killed_at, training, weights

SETTINGS = {"steps": 400, "learning_rate": 0.1, "validate_every": 100, "checkpoint_every": 100}


def test_alternating_minimax_finds_the_saddle_point(tmp_path):
    task = Saddle()
    training(tmp_path, task, **SETTINGS).run()
    assert float(task.model["x"].detach()) == pytest.approx(1.0, abs=5e-3)
    assert float(task.model["y"].detach()) == pytest.approx(-2.0, abs=5e-3)


def test_a_killed_run_of_two_steps_resumes_with_the_same_bits(tmp_path):
    settings = SETTINGS | {"steps": 30, "checkpoint_every": 7, "ema": 0.9}
    whole = training(tmp_path / "whole", Saddle(), **settings)
    whole.run()
    killed_at(tmp_path / "killed", Saddle(), 17, **settings)
    again = training(tmp_path / "killed", Saddle(), **settings)
    assert again.resume()
    assert again.progress.step == 14
    again.run()
    assert_same(weights(again), weights(whole))
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "killed")]
    assert models[0] == models[1]


def test_every_step_has_its_own_optimiser_and_rate_on_one_schedule(tmp_path):
    run = training(tmp_path, Saddle(), steps=10, learning_rate=0.1, warmup_steps=4)
    run.run()
    maximise, minimise = run.updates.optimizers
    assert (type(maximise).__name__, type(minimise).__name__) == ("Adam", "AdamW")
    assert minimise.defaults["betas"] == (0.5, 0.9)
    half = training(tmp_path / "half", Saddle(), steps=2, learning_rate=0.1, warmup_steps=4)
    half.run()
    rates = [optimizer.param_groups[0]["lr"] for optimizer in half.updates.optimizers]
    assert rates == pytest.approx([0.1, 0.05])  # half of 0.2 and of 0.1


def test_each_repetition_gets_a_group_of_batches_and_the_end_of_an_epoch_is_used_again(tmp_path):
    task = Saddle(repeats=2, batches=5)
    training(tmp_path, task, steps=3).run()
    assert task.taken == [
        *(("maximise", 0), ("maximise", 1), ("minimise", 0)),
        *(("maximise", 2), ("maximise", 3), ("minimise", 2)),
        *(("maximise", 4), ("maximise", 4), ("minimise", 4)),
    ]
    task = Saddle(repeats=2, batches=8)
    training(tmp_path / "accumulated", task, steps=1, gradient_accumulation=2).run()
    assert [batch for _, batch in task.taken] == [0, 1, 2, 3, 0, 1]


def test_each_loss_is_reported_by_its_own_count(tmp_path):
    task = Saddle(repeats=1)
    training(tmp_path, task, steps=1, log_every=1, schedule="constant").run()
    report = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[0])
    assert report["maximise"] == pytest.approx(-(4.5 + 15 - 12.5))
    y = 5 - 0.2  # the first update of Adam is as long as its rate
    assert report["minimise"] == pytest.approx(4.5 + 3 * y - y**2 / 2, rel=1e-5)
    assert report["points/s"] > 0
