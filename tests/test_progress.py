"""A bar on the terminal, and the results where they were sent."""

import os
import re
import subprocess
import sys
from threading import Thread

import pytest


def on_a_terminal(command, text, out):
    """Runs a command whose stderr is a terminal; what it said there."""
    terminal, end = os.openpty()
    said = []

    def listen():
        while not said or said[-1]:
            try:
                said.append(os.read(terminal, 4096))
            except OSError:  # nobody holds the other end any more
                return

    listener = Thread(target=listen, daemon=True)
    listener.start()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TERM": "xterm"}
    try:
        with out.open("wb") as file:
            finished = subprocess.run(
                command, input=text.encode(), stdout=file, stderr=end, env=environment, timeout=300
            )
    finally:
        os.close(end)
    listener.join(60)
    os.close(terminal)
    assert finished.returncode == 0
    return b"".join(said).decode()


@pytest.mark.parametrize("lines", [5, 2000])
def test_many_translations_are_counted_on_the_terminal_and_printed_elsewhere(tiny_run, lines, tmp_path):
    command = [sys.executable, "-m", "saccade", "predict", str(tiny_run), "--search", "sample"]
    said = on_a_terminal(command, "1 2 3\n" * lines, tmp_path / "out.txt")
    shares = {int(share) for share in re.findall(r"(\d+)%", said)}
    assert (100 in shares) == (lines > 100)
    assert any(0 < share < 100 for share in shares) == (lines > 100)
    printed = (tmp_path / "out.txt").read_text(encoding="utf-8").splitlines()
    assert len(printed) == lines


def test_an_evaluation_says_on_the_terminal_how_long_it_has_taken(tiny_run, tmp_path):
    said = on_a_terminal([sys.executable, "-m", "saccade", "evaluate", str(tiny_run)], "", tmp_path / "out.txt")
    assert "evaluating on the examples of the test set" in said
    assert re.search(r"0:00:0\d", said)
    assert (tmp_path / "out.txt").read_text(encoding="utf-8").startswith("measure\tvalue\n")
