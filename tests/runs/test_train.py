"""How a training begins: what it says of runs that are not there or in use, and when somebody stops it before its first step."""

import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest

from saccade.errors import ConfigError, UserError
from saccade.files import held
from saccade.runs import train as start
from saccade.training.checkpoint import Progress, RunDirectory


@pytest.mark.parametrize(("given", "named"), [("some/where", "some/where"), ("digits-rnn", "runs/digits-rnn")])
def test_a_run_that_is_not_there_is_named_as_it_was_given(given, named, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=f"^{named} holds no run to go on with"):
        start.train(given, resume=True)


@pytest.mark.parametrize("written", [False, True])
def test_stopped_before_the_first_step_it_says_how_to_go_on(written, tmp_path, monkeypatch, capsys):
    def interrupted(recipe, directory, *_, **__):
        if written:
            directory.config.write_text(recipe.to_yaml())
        raise KeyboardInterrupt

    monkeypatch.setattr(start, "open_task", interrupted)
    with pytest.raises(KeyboardInterrupt):
        start.train("digits-rnn", out=tmp_path / "my run")
    captured = capsys.readouterr()
    said = " ".join((captured.out + captured.err).split())
    assert ("stopped before training began" in said) == written
    assert (f"go on with: saccade train '{tmp_path / 'my run'}' --resume" in said) == written


def test_a_run_is_not_gone_on_with_by_a_recipe_that_is_not_there(tiny_run):
    with pytest.raises(ConfigError, match=r"there is no recipe .bogus.: "):
        start.train("bogus", out=tiny_run, resume=True)


def test_a_run_that_is_being_trained_is_not_gone_on_with(tiny_run, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    before = (run / "metrics.jsonl").read_text()
    with held(run) as free:
        assert free
        with pytest.raises(ConfigError, match="is being trained by another process: wait until it ends"):
            start.train(run, ["train.steps=8"], resume=True)
    assert (run / "metrics.jsonl").read_text() == before
    assert "steps: 8" not in (run / "config.yaml").read_text()
    assert start.train(run, ["train.steps=8"], resume=True) == run  # and it is free again


def test_of_two_trainings_into_one_place_one_trains_and_the_other_is_refused(saccade, tiny_settings, tmp_path):
    settings = [part for setting in tiny_settings for part in ("--set", setting)]
    command = [sys.executable, "-m", "saccade", "train", "digits-rnn", *settings, "--out", str(tmp_path / "run")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    both = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) for _ in range(2)]
    said = [process.communicate(timeout=300)[1] for process in both]
    codes = [process.returncode for process in both]
    assert sorted(codes) == [0, 2]
    refused = said[codes.index(2)]
    assert "Traceback" not in refused
    assert "is being trained by another process" in " ".join(refused.split()) or "holds a run already" in refused
    assert saccade("evaluate", tmp_path / "run").returncode == 0


def test_a_training_that_cannot_begin_leaves_an_empty_directory_as_it_was(tmp_path, monkeypatch):
    def failing(*_):
        raise UserError("no data")

    monkeypatch.setattr(start, "task_class", lambda _: type("Failing", (), {"prepare": failing}))
    (tmp_path / "there").mkdir()
    for name in ("there", "not-there"):
        with pytest.raises(UserError, match="no data"):
            start.train("digits-rnn", out=tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
    assert not any((tmp_path / "there").iterdir())


def test_a_run_that_was_deleted_while_it_was_trained_is_not_made_again(tmp_path):
    directory = RunDirectory(tmp_path / "run")
    for save in (lambda: directory.save_state({}, Progress(step=1), keep=2), lambda: directory.save_model({})):
        with pytest.raises(UserError, match="is gone: it was deleted or moved"):
            save()
    assert not directory.path.exists()


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (5, "the rate was still rising at the end: train.warmup_steps is 5"),
        (6, "rose for most of the training"),
        (10, ""),
    ],
)
def test_it_says_when_the_warm_up_was_too_long(steps, said, capsys):
    from saccade.training.config import TrainConfig
    from saccade.training.reporter import Reporter

    start._say_what_was_short(Progress(step=steps), TrainConfig(warmup_steps=5), Reporter())
    captured = capsys.readouterr()
    assert said in " ".join((captured.out + captured.err).split())
    assert bool(captured.out + captured.err) == bool(said)


@pytest.mark.parametrize("with_mark", [False, True])
def test_what_took_the_place_of_a_run_that_was_moved_while_its_data_were_prepared_is_left_alone(
    tmp_path, monkeypatch, with_mark
):
    def prepare(recipe, directory, say):
        directory.rename(tmp_path / "moved")
        directory.mkdir()
        (directory / "thesis.txt").write_text("written for years")
        if with_mark:  # another training begins there
            (directory / ".unready").write_text("")

    monkeypatch.setattr(start, "task_class", lambda _: type("Slow", (), {"prepare": staticmethod(prepare)}))
    with pytest.raises(UserError, match="was deleted or moved while its data were prepared: delete what is left"):
        start.train("digits-rnn", out=tmp_path / "run")
    assert (tmp_path / "run" / "thesis.txt").read_text() == "written for years"
    assert not (tmp_path / "run" / "config.yaml").exists()


@pytest.mark.parametrize("put_back", [False, True])
def test_a_run_that_is_moved_while_it_is_trained_is_not_written_into_another_one(put_back, tmp_path):
    directory = RunDirectory(tmp_path / "run")
    with directory.made_and_held() as free:
        assert free
        directory.write_metrics(step=1)
        directory.path.rename(tmp_path / "moved")
        directory.path.mkdir()
        for write in (
            lambda: directory.write_metrics(step=2),
            lambda: directory.save_state({}, Progress(step=2), keep=2),
            lambda: directory.save_model({}),
            directory.be_there,
        ):
            with pytest.raises(UserError, match="is gone: it was deleted or moved"):
                write()
        assert not any(directory.path.iterdir())
        if put_back:
            directory.path.rmdir()
            (tmp_path / "moved").rename(directory.path)
            directory.write_metrics(step=2)
            assert len(directory.metrics.read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("changes", "progress", "said"),
    [
        ([], Progress(step=6), "--set train.steps=12"),
        (["train.minutes=2"], Progress(step=3, seconds=130.0), "--set train.minutes=4"),
        (["train.patience=1"], Progress(step=4, validations_since_best=1), "--set train.patience=null"),
    ],
)
def test_a_finished_run_says_how_to_train_it_further(changes, progress, said, tmp_path):
    from saccade.config.recipe import load

    config = load("digits-rnn", ["train.steps=6", *changes]).train
    training = SimpleNamespace(config=config, progress=progress, directory=RunDirectory(tmp_path / "my run"))
    assert start._further(training) == f"saccade train '{tmp_path / 'my run'}' --resume {said}"
