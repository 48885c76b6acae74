"""Starting from another run: its weights where they fit, its vocabulary, and clear words where they do not."""

import pytest
import torch

import saccade
from saccade.config.recipe import load
from saccade.errors import ConfigError
from saccade.runs.starting import StartingWeights, _matches
from saccade.runs.train import open_task, train
from saccade.training.checkpoint import RunDirectory
from saccade.training.reporter import Reporter
from saccade.training.weights import own_tensors
from saccade.training.world import World


class Said(Reporter):
    def __init__(self):
        super().__init__(quiet=True)
        self.lines = []

    def say(self, sentence):
        self.lines.append(sentence)


def started(path, settings, *changes, recipe="digits-rnn"):
    """A new run, prepared and not trained yet, and what was said."""
    path.mkdir()
    reporter = Said()
    task = open_task(load(recipe, [*settings, *changes]), RunDirectory(path), reporter, World(), new=True)
    return task, reporter.lines


def test_the_loss_before_the_first_update_is_the_other_runs(tiny_run, tiny_settings, tmp_path):
    task, said = started(tmp_path / "run", tiny_settings, f"start.from={tiny_run}", "train.seed=7")
    other = saccade.load(tiny_run).task
    batch = other.batch(other.epoch(0, 0, 1)[0])
    losses = [of.steps()[0].loss(batch).total for of in (task, other) if of.model.eval()]
    assert torch.equal(*losses)
    count = len(own_tensors(task.model))
    assert any(line.startswith(f"taken from {tiny_run}: {count} of its {count} tensors (") for line in said)
    assert "not taken: nothing; trained from scratch: nothing" in said


def test_the_vocabulary_is_taken_instead_of_learned(tiny_run, tiny_settings, tmp_path):
    few = "data.examples=10"
    _, said = started(tmp_path / "run", tiny_settings, few, f"start.from={tiny_run}")
    started(tmp_path / "learned", tiny_settings, few)
    theirs, taken, learned = (
        (run / "tokenizer.json").read_bytes() for run in (tiny_run, tmp_path / "run", tmp_path / "learned")
    )
    assert taken == theirs != learned
    assert any(line.startswith(f"vocabulary taken from {tiny_run}") for line in said)


def test_a_vocabulary_of_another_kind_is_refused(tiny_run, tiny_settings, tmp_path):
    with pytest.raises(
        ConfigError, match=r"start\.from = .* has a vocabulary with data\.lowercase false, .* set data\.lowercase=false"
    ):
        started(tmp_path / "run", tiny_settings, f"start.from={tiny_run}", "data.lowercase=true")


def test_a_shape_that_does_not_fit_is_refused_and_nothing_is_written(tiny_run, tiny_settings, tmp_path):
    settings = [*tiny_settings, "model.hidden=24", f"start.from={tiny_run}"]
    with pytest.raises(
        ConfigError,
        match=r"has the shape .*16.* there and .*24.* here .*: leave it out, .*start\.weights=-",
    ):
        train("digits-rnn", settings, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_does_not_match_stays_new(tiny_run, tiny_settings, tmp_path):
    task, said = started(
        tmp_path / "run", tiny_settings, "train.seed=7", f"start.from={tiny_run}", "start.weights=encoder.*"
    )
    fresh, _ = started(tmp_path / "fresh", tiny_settings, "train.seed=7")
    theirs = own_tensors(saccade.load(tiny_run).task.model)
    for name, tensor in own_tensors(task.model).items():
        source = theirs if name.startswith("encoder.") else own_tensors(fresh.model)
        assert torch.equal(tensor, source[name]), name
    assert any(line.startswith("not taken: ") and "trained from scratch: " in line for line in said)
    with pytest.raises(
        ConfigError, match=r"no tensor that matches start\.weights = bert\.\* and is in this model: it has decoder"
    ):
        started(tmp_path / "none", tiny_settings, f"start.from={tiny_run}", "start.weights=bert.*")


def test_a_run_killed_before_its_first_state_starts_from_the_other_again(tiny_run, tiny_settings, tmp_path):
    started(tmp_path / "run", tiny_settings, f"start.from={tiny_run}", "train.seed=7")
    recipe = load(tmp_path / "run" / "config.yaml")
    task = open_task(recipe, RunDirectory(tmp_path / "run"), Said(), World(), new=False)
    theirs = own_tensors(saccade.load(tiny_run).task.model)
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in own_tensors(task.model).items())


def test_a_folder_of_hugging_face_is_read_in_our_names(tmp_path):
    from transformers import ViTConfig, ViTForImageClassification

    from saccade.models import hugging_face

    config = ViTConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=8, patch_size=4
    )
    ViTForImageClassification(config).save_pretrained(tmp_path)
    model, _ = hugging_face.from_hugging_face(tmp_path)
    fresh, _ = hugging_face.from_hugging_face(tmp_path)
    for parameter in fresh.parameters():
        torch.nn.init.ones_(parameter)
    said = []
    StartingWeights(tmp_path, "-output.*", said.append).load_into(fresh)
    for name, tensor in own_tensors(fresh).items():
        assert torch.equal(tensor, torch.ones_like(tensor) if name.startswith("output.") else own_tensors(model)[name])
    assert "not taken: output.* (2); trained from scratch: output.* (2)" in said


def test_what_is_no_run_and_a_pattern_without_a_run_are_refused(tmp_path):
    with pytest.raises(
        ConfigError, match=r"is neither a run \(it has no config\.yaml\) nor a folder in Hugging Face's format"
    ):
        StartingWeights(tmp_path, "*", print)
    with pytest.raises(ConfigError, match=r"start .*: weights = \"encoder\.\*\" needs start\.from"):
        load("digits-rnn", ["start.weights=encoder.*"])
    with pytest.raises(ConfigError, match=r"start\.from = .*: there is no folder"):
        load("digits-rnn", [f"start.from={tmp_path}/nothing"])


@pytest.mark.parametrize(
    ("name", "pattern", "expected"),
    [
        ("encoder.x", "*", True),
        ("encoder.x", "encoder.*, norm.*", True),
        ("output.x", "encoder.*, norm.*", False),
        ("output.x", "-output.*", False),
        ("encoder.x", "-output.*", True),
        ("encoder.bias", "encoder.*, -*.bias", False),
    ],
)
def test_patterns_choose_and_leave_out(name, pattern, expected):
    assert _matches(name, pattern) == expected
