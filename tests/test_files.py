"""Files and directories are complete or absent."""

import subprocess
import sys

import pytest

from saccade.files import replacing, replacing_directory, write_text


def test_what_a_killed_process_left_half_written_is_removed(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    living = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    for process in (dead, living):
        (tmp_path / f".x.txt.{process.pid}.partial").touch()
    (tmp_path / ".other.txt.1.partial").touch()
    write_text(tmp_path / "x.txt", "whole")
    living.communicate(b"\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".other.txt.1.partial",
        f".x.txt.{living.pid}.partial",
        "x.txt",
    ]


def test_an_error_changes_nothing(tmp_path):
    write_text(tmp_path / "x.txt", "before")

    def write_half():
        with replacing(tmp_path / "x.txt") as aside:
            aside.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_half()
    assert [path.name for path in tmp_path.iterdir()] == ["x.txt"]
    assert (tmp_path / "x.txt").read_text() == "before"


def test_weights_have_the_permissions_of_other_files(tiny_run):
    ordinary = (tiny_run / "config.yaml").stat().st_mode
    weights = [tiny_run / "model.safetensors", *(tiny_run / "state").glob("*.safetensors")]
    assert {path.stat().st_mode for path in weights} == {ordinary}


def test_a_directory_replaces_another_when_it_is_complete_and_not_before(tmp_path):
    def write(text, fails=False):
        with replacing_directory(tmp_path / "x") as aside:
            (aside / "a.txt").write_text(text)
            if fails:
                raise ZeroDivisionError

    write("first")
    with pytest.raises(ZeroDivisionError):
        write("half", fails=True)
    assert (tmp_path / "x" / "a.txt").read_text() == "first"
    write("second")
    assert (tmp_path / "x" / "a.txt").read_text() == "second"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
