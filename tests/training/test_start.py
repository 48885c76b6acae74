"""How a training begins: what it says of runs that are not there, and when somebody stops it before its first step."""

import pytest

from saccade.errors import ConfigError
from saccade.training import start


@pytest.mark.parametrize(("given", "named"), [("some/where", "some/where"), ("digits-rnn", "runs/digits-rnn")])
def test_a_run_that_is_not_there_is_named_as_it_was_given(given, named, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=f"^{named} holds no run to go on with"):
        start.train(given, resume=True)


@pytest.mark.parametrize("written", [False, True])
def test_stopped_before_the_first_step_it_says_how_to_go_on(written, tmp_path, monkeypatch, capsys):
    def interrupted(recipe, directory, *_, **__):
        if written:
            directory.path.mkdir(parents=True)
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
