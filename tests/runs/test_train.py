"""How a training begins: what it says of runs that are not there or in use, and when it is stopped before its first step."""

import shutil

import pytest

from saccade.errors import ConfigError, UserError
from saccade.files import held
from saccade.runs import train as start
from saccade.training.checkpoint import Progress, RunDirectory


@pytest.mark.parametrize(("given", "named"), [("some/where", "some/where"), ("digits-rnn", "runs/digits-rnn")])
def test_a_run_that_is_not_there_is_named_as_it_was_given(given, named, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=f"^{named} holds no run to resume"):
        start.train(given, resume=True)


@pytest.mark.parametrize("written", [False, True])
def test_stopped_before_the_first_step_it_says_how_to_resume(written, tmp_path, monkeypatch, capsys):
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
    assert (f"resume with: saccade train '{tmp_path / 'my run'}' --resume" in said) == written


def test_a_run_is_not_resumed_by_a_recipe_that_is_not_there(tiny_run):
    with pytest.raises(ConfigError, match=r"there is no recipe .bogus.: "):
        start.train("bogus", out=tiny_run, resume=True)


def test_a_run_that_is_being_trained_is_not_resumed(tiny_run, tmp_path):
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


def test_a_place_where_another_process_prepares_a_run_is_refused(tmp_path, tiny_settings):
    (tmp_path / "run").mkdir()
    with held(tmp_path / "run") as free:
        assert free
        with pytest.raises(ConfigError, match="is being trained by another process"):
            start.train("digits-rnn", tiny_settings, tmp_path / "run")
    assert not any((tmp_path / "run").iterdir())


def test_a_run_without_resume_is_told_of_resume(tiny_run):
    with pytest.raises(ConfigError, match=f"is a run: resume it with `saccade train {tiny_run} --resume`"):
        start.train(tiny_run)


def test_a_run_killed_before_its_first_state_starts_again_and_says_so(tiny_run, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run, ignore=shutil.ignore_patterns("state", "model.safetensors", ".saved"))
    start.train(run, ["train.steps=2"], resume=True)
    captured = capsys.readouterr()
    assert "no state was saved; starting from step 0" in captured.err + captured.out
    assert RunDirectory(run).saved_steps() == [2]


def test_a_task_that_is_fitted_without_the_loop_is_a_finished_run(tmp_path, monkeypatch, capsys):
    class Forest:
        def __init__(self, recipe):
            self.recipe = recipe

        @classmethod
        def prepare(cls, recipe, directory, say):
            return cls(recipe)

        def fit(self, trainer):
            (trainer.directory / "forest.json").write_text("{}")
            trainer.say("grew a forest")

    monkeypatch.setattr(start, "task_class", lambda _: Forest)
    run = start.train("digits-rnn", out=tmp_path / "run")
    assert RunDirectory(run).is_fitted()
    assert not RunDirectory(run).model.exists()
    start.train(run, resume=True)
    captured = capsys.readouterr()
    said = " ".join((captured.out + captured.err).split())
    assert said.count("grew a forest") == 1
    assert "this run is finished" in said


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
