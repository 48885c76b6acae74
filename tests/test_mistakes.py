"""What people do with a run by mistake: each ends in one sentence that says what to do instead."""

import io
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from saccade import cli
from saccade.runs.train import train


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """The one sentence of a command that fails."""

    def tell(*arguments: object, stdin: str = "") -> str:
        monkeypatch.setattr(sys, "argv", ["saccade", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(stdin.encode()), isatty=lambda: False))
        with pytest.raises(SystemExit) as caught:
            cli.main()
        out, said = capsys.readouterr()
        assert (out, said.count("\n")) == ("", 1)
        assert caught.value.code in (1, 2)
        return said

    return tell


def test_a_files_name_is_not_translated(told, tiny_run: Path, tmp_path: Path) -> None:
    (tmp_path / "my.en").write_text("1 2 3\n", encoding="utf-8")
    for command in ("predict", "look"):
        assert f"saccade predict {tiny_run} < {tmp_path / 'my.en'}" in told(command, tiny_run, tmp_path / "my.en")


@pytest.mark.parametrize("name", ["test:x", "test:-1", "valid:"])
def test_an_example_has_a_number(told, tiny_run: Path, name: str) -> None:
    assert f"{name} was asked for" in told("predict", tiny_run, name)


def test_names_of_examples_are_for_arguments_not_for_lines(tiny_run: Path, capfd, monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", ["saccade", "predict", str(tiny_run)])
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"test:x\n1 2\n"), isatty=lambda: False))
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert not caught.value.code
    assert capfd.readouterr().out.count("\n") == 2


def test_the_sentence_that_is_too_long_is_named(told, tiny_run: Path) -> None:
    said = told("predict", tiny_run, stdin="1 2\n" + "3 " * 400 + "\n4\n")
    assert "sentence 2 of 3 has 400 tokens" in said


def test_nothing_has_no_translation_to_score(told, tiny_run: Path, tmp_path: Path) -> None:
    for name, lines in (("a", "1 2\n\n"), ("b", "2 1\n3\n")):
        (tmp_path / name).write_text(lines, encoding="utf-8")
    assert "pair 2 of 2 has a translation and nothing to translate" in told(
        "score", tiny_run, tmp_path / "a", tmp_path / "b"
    )


def test_a_setting_out_of_range_is_told_in_its_own_words(told, tiny_run: Path) -> None:
    said = told("predict", tiny_run, "1 2", "--temperature", "-1")
    assert (
        said == "error: temperature = -1.0 (an option of predict) must be a number, at least 0.001 and at most 1000\n"
    )


@pytest.mark.parametrize("given", ["0.9", "0.9,0.98"])
def test_a_pair_of_numbers_is_told_by_an_example(told, given: str) -> None:
    assert "must be two numbers in brackets, such as [0.9, 0.98]" in told(
        "check", "digits-rnn", "--set", f"train.betas={given}"
    )


def test_a_file_is_no_run_and_no_place_for_one(told, tiny_run: Path, tmp_path: Path) -> None:
    assert "config.yaml is a file; give the directory" in told("predict", tiny_run / "config.yaml", "1")
    (tmp_path / "file").touch()
    assert "is a file: choose a new directory" in told("train", "digits-rnn", "--out", tmp_path / "file")


def test_another_recipe_is_not_gone_on_with(told, tiny_run: Path) -> None:
    said = told("train", "phrasebook-rnn", "--out", tiny_run, "--resume")
    assert f"saccade train digits-rnn --out {tiny_run} --resume" in said


def test_a_run_can_be_gone_on_with_by_its_own_name(tiny_run: Path) -> None:
    assert train(str(tiny_run), resume=True) == tiny_run
