"""The command line as a person or a script meets it: what is printed where, exit codes, and a quick start."""

import functools
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import saccade
from saccade import cli
from saccade.cli import options
from saccade.config import files as recipe_files
from saccade.config import recipe as config
from saccade.errors import ConfigError, UserError
from saccade.tasks.inputs import Text
from saccade.tasks.task import Typed

HEAVY = {"torch", "numpy", "matplotlib", "sklearn", "tokenizers", "transformers"}


def run(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "saccade", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)  # type: ignore[call-overload]


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Recipes that `saccade recipes` finds."""
    (tmp_path / "captioning.yaml").write_text("description: A picture in, [one] sentence out.\ntask: captioning\n")
    (tmp_path / "translation.yaml").write_text("description: A sentence in, a sentence out.\ntask: translation\n")
    monkeypatch.setattr(recipe_files, "FOLDER", tmp_path)
    return tmp_path


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full disk here")
def test_a_full_disk_is_a_sentence(tiny_run):
    command = [sys.executable, "-m", "saccade", "predict", str(tiny_run), "1 2"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (1, "error: the disk is full; free some space or write elsewhere\n")


def exit_of(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["saccade", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return int(caught.value.code or 0)


def test_the_version_is_printed_alone() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"saccade {saccade.__version__}\n", "")


def test_help_names_every_command_in_one_line_each() -> None:
    done = run("--help", env={**os.environ, "COLUMNS": "120"})
    assert done.returncode == 0
    cli.runs.register([])
    for command in cli.app.registered_commands:
        assert command.callback is not None
        name = command.name or command.callback.__name__
        (line,) = [line for line in done.stdout.splitlines() if re.match(rf"\W*{name}\b", line)]
        assert (command.callback.__doc__ or "").strip() in line
    assert "Example" in done.stdout
    assert "--install-completion" in done.stdout


@pytest.mark.parametrize(
    ("command", "absent"),
    [
        ("--help", {"pydantic", "yaml"}),
        ("--version", {"pydantic", "yaml", "rich"}),
        ("recipes", {"saccade.config.recipe"}),
    ],
)
def test_a_quick_command_imports_nothing_heavy(command: str, absent: set[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "saccade", command], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "typer" in imported
    assert not imported & (HEAVY | absent)


def test_recipes_are_plain_lines_when_nobody_watches(
    shipped: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert exit_of(monkeypatch, "recipes") == 0
    assert capsys.readouterr().out == (
        "captioning\tA picture in, [one] sentence out.\ntranslation\tA sentence in, a sentence out.\n"
    )


def test_recipes_are_a_table_on_a_terminal(
    shipped: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert exit_of(monkeypatch, "recipes") == 0
    lines = re.sub(r"\x1b\[\d*m", "", capsys.readouterr().out).splitlines()
    assert [line.rstrip() for line in lines] == [
        "captioning    A picture in, [one] sentence out.",
        "translation   A sentence in, a sentence out.",
    ]


def test_recipe_names_are_completed(shipped: Path) -> None:
    assert options.recipe_names("tr") == [("translation", "A sentence in, a sentence out.")]
    assert [name for name, _ in options.recipe_names("")] == ["captioning", "translation"]


@pytest.mark.parametrize(("words", "offered"), [("saccade recip", ["recipes"]), ("saccade check tr", ["translation"])])
def test_the_shell_completes_commands_and_recipes(words: str, offered: list[str], shipped: Path) -> None:
    program = (
        "import pathlib, sys, saccade.cli, saccade.config.files; sys.argv = ['saccade']; "
        f"saccade.config.files.FOLDER = pathlib.Path({str(shipped)!r}); saccade.cli.main()"
    )
    asked = {"_SACCADE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | asked, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == offered


def test_check_prints_the_whole_recipe(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def load(*arguments: object) -> SimpleNamespace:
        calls.append(arguments)
        return SimpleNamespace(to_yaml=lambda: "task: translation\n")

    monkeypatch.setattr(config, "load", load)
    assert exit_of(monkeypatch, "check", "translation", "--set", "a.b=1", "--set", "c=[1, 2]") == 0
    assert exit_of(monkeypatch, "check", "translation") == 0
    assert calls == [("translation", ["a.b=1", "c=[1, 2]"]), ("translation", [])]
    assert capsys.readouterr() == ("task: translation\n" * 2, "")


def test_a_wrong_recipe_ends_in_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text("task: [1\n")
    for recipe in ("wrong.yaml", "none.yaml", "no-such-recipe", "."):
        done = run("check", recipe, cwd=tmp_path)
        assert done.returncode == 2
        assert done.stdout == ""
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["chekc"], ["check"], ["--nope"], ["check", "a", "--set"], ["recipes", "a"]])
def test_wrong_usage_exits_with_2_and_no_traceback(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("error", "code"), [(UserError("the disk is full"), 1), (ConfigError("bad place"), 2)])
def test_a_mistake_is_one_line_on_stderr(
    error: UserError, code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "load", functools.partial(_raise, error))
    assert exit_of(monkeypatch, "check", "translation") == code
    assert capsys.readouterr() == ("", f"error: {error}\n")


def test_a_recipe_without_its_files_is_shown_and_told_what_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for recipe, place in (("translation", "data.source"), ("captions", "data.images"), ("images", "data.train")):
        assert exit_of(monkeypatch, "check", recipe) == 2
        shown, said = capsys.readouterr()
        assert "\ntrain:\n" in shown
        assert f"--set {place}=" in said
    assert exit_of(monkeypatch, "check", "translation", "--set", "model.widht=3") == 2
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (["phrasebook-rnn", "data.digits=5"], "digits = 5 is for data.corpus=digits"),
        (["phrasebook-rnn", f"data.source={__file__}"], "is for your own files and data.corpus is phrasebook"),
        (["translation", f"data.source={__file__}", "data.examples=1000"], "examples = 1000 is for built-in corpora"),
        (["translation", f"data.source={__file__}", f"data.valid_target={__file__}"], "given without valid_source"),
        (["shapes-soft", "data.corpus=files"], "name your files"),
        (
            ["phrasebook-transformer", "model.max_length=100"],
            "max_length = 100 is for positions=learned or score=location",
        ),
        (["phrasebook-rnn", "model.reach=3"], "reach = 3 is for selection=local-m or local-p"),
        (["phrasebook-rnn", "model.max_length=30"], "max_length = 30 is for attention=location"),
        (["phrasebook-rnn", "model.input_feeding=false"], "input_feeding = false is for order=luong"),
        (
            ["phrasebook-rnn", "model.attention=none", "model.order=luong"],
            'order = "luong" is for models with attention',
        ),
        (["phrasebook-rnn", "objective.reinforce=2"], "objective.reinforce = 2 is for model.selection=hard"),
        (["phrasebook-transformer", "model.attention=dot"], "did you mean model.attention of model.name=seq2seq?"),
        (["phrasebook-transformer", "model.atention=dot"], "did you mean model.attention of model.name=seq2seq?"),
        (["phrasebook-rnn", "lr=0.1"], "did you mean train.learning_rate?"),
        (["phrasebook-rnn", "train.batch_size=8"], "did you mean data.batch_tokens?"),
    ],
    ids=str,
)
def test_a_setting_that_would_change_nothing_is_refused(settings: list[str], told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)):
        config.load(settings[0], settings[1:])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--search greedy --beam 4", "beam is for search beam and search is greedy: leave one of them out"),
        ("--beam 4 --temperature 0.5", "temperature is for search sample and beam is for beam"),
        ("--search sample --length-penalty 1", "length_penalty is for search beam and search is sample"),
        ("--search greedy --best 3", "greedy search has one answer"),
    ],
)
def test_options_of_two_searches_are_refused(
    options: str, told: str, tiny_run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert exit_of(monkeypatch, "predict", str(tiny_run), "1 2", *options.split()) == 2
    assert told in capsys.readouterr().err


def test_an_interrupt_exits_with_130_quietly(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "load", functools.partial(_raise, KeyboardInterrupt()))
    assert exit_of(monkeypatch, "check", "translation") == 128 + signal.SIGINT
    assert capsys.readouterr() == ("", "")


def test_a_reader_that_goes_away_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "saccade", "--version"], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60
    )
    os.close(writer)
    assert done.stderr == ""


def _raise(error: BaseException, *_: object, **__: object) -> None:
    raise error


@pytest.mark.parametrize(
    ("name", "said"), [("a.en", "to read its lines, run `saccade predict r < "), ("a.png", "is an image")]
)
def test_a_file_is_no_sentence_to_translate(name, said, tmp_path):
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(UserError, match=said):
        Text().from_command_line(Typed([str(tmp_path / name)], command="saccade predict r"))
