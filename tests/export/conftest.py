"""Runs to export. Most have made-up weights: what is computed is as good a test, and nothing is trained."""

import shutil
from pathlib import Path

import pytest
import torch

from saccade import load
from saccade.config.recipe import load as load_recipe
from saccade.data.text.tokenizer import EOS
from saccade.files import write_text
from saccade.runs.train import train
from saccade.tasks.translation.task import TranslationTask
from saccade.training.checkpoint import RunDirectory
from saccade.training.weights import own_tensors

SMALL = ["model.name=transformer", "model.layers=2", "model.width=16", "model.heads=2", "model.feed_forward=24"]


@pytest.fixture(scope="session")
def random_run(tmp_path_factory):
    """Makes runs whose weights are all random, norms and biases too, so that no two of them can be mixed up unseen.

    `ending` is how much more probable than by chance an output is to end.
    """
    prepared: dict[tuple[str, ...], Path] = {}

    def make(*changes, ending=0.0):
        path = tmp_path_factory.mktemp("random") / "run"
        recipe = load_recipe("digits-rnn", [*SMALL, "data.examples=50", "decode.max_length=12", *changes])
        data = tuple(change for change in changes if change.startswith("data."))
        if data in prepared:
            shutil.copytree(prepared[data], path)
            task = TranslationTask.reopen(recipe, path)
        else:
            task = TranslationTask.prepare(recipe, path, lambda line: None)
            prepared[data] = path.with_name("prepared")
            shutil.copytree(path, prepared[data])
        torch.manual_seed(3)
        for parameter in task.model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        task.model.output.bias.data[EOS] += ending
        RunDirectory(path).save_model(own_tensors(task.model))
        write_text(path / "config.yaml", recipe.to_yaml())
        return load(path)

    return make


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """Half knows how to reverse digits: sure enough to end its sentences, unsure enough for a beam to matter."""
    changes = ["model.name=transformer", "model.layers=1", "model.width=32", "model.heads=2", "model.feed_forward=64"]
    changes += ["model.dropout=0.0", "data.examples=3000", "train.steps=150", "train.validate_every=150"]
    changes += ["train.threads=1", "train.precision=fp32", "decode.valid_sentences=5"]
    return load(train("digits-rnn", changes, tmp_path_factory.mktemp("runs") / "half"))
