"""train.ema against a computation by hand; exact when resumed."""

import pytest
import torch
from safetensors.torch import load_file
from small_tasks import Line, assert_same, killed_at, training, weights

from saccade.config.recipe import load
from saccade.errors import ConfigError
from saccade.tasks.task import Validation


class NotesWeights(Line):
    """Keeps the weights after each update, and those that are validated; the later, the better."""

    def __init__(self):
        super().__init__()
        self.trained, self.validated = [self.copy()], []

    def copy(self):
        return {name: parameter.detach().clone() for name, parameter in self.model.named_parameters()}

    def batch(self, work):
        self.trained.append(self.copy())
        return work

    def validate(self):
        self.validated.append(self.copy())
        return Validation({}, len(self.validated))


def test_the_average_is_validated_and_saved_and_the_weights_train_on(tmp_path):
    task = NotesWeights()
    run = training(tmp_path, task, steps=6, validate_every=3, ema=0.3)
    run.run()
    trained = [*task.trained[2:], weights(run)]  # after updates 1 to 6
    expected = task.trained[0]
    for step, after in enumerate(trained, start=1):
        decay = min(0.3, (1 + step) / (10 + step))
        expected = {name: decay * expected[name] + (1 - decay) * after[name] for name in after}
        if step == 3:
            torch.testing.assert_close(task.validated[0], expected)
    torch.testing.assert_close(task.validated[1], expected)
    assert_same(load_file(tmp_path / "model.safetensors"), task.validated[1])
    plain = training(tmp_path / "plain", steps=6, validate_every=3)
    plain.run()
    assert_same(weights(run), weights(plain))  # averaging changes nothing of the training itself


def test_a_killed_run_with_an_average_resumes_with_the_same_bits(tmp_path):
    whole = training(tmp_path / "whole", ema=0.9)
    whole.run()
    killed_at(tmp_path / "killed", Line(), 18, ema=0.9)
    again = training(tmp_path / "killed", ema=0.9)
    assert again.resume()
    again.run()
    assert_same(weights(again), weights(whole))
    assert again.average is not None
    assert whole.average is not None
    assert_same(again.average.tensors, whole.average.tensors)
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "killed")]
    assert models[0] == models[1]


def test_two_kinds_of_average_are_refused():
    with pytest.raises(ConfigError, match=r"ema = 0\.99 and average = 5 both average weights: leave one of them out"):
        load("digits-rnn", ["train.ema=0.99", "train.average=5"])
