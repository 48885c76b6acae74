"""Names and texts of strangers on a terminal and in a spreadsheet: shown, never obeyed."""

import json
import sys
from types import SimpleNamespace

import pytest
from rich.console import Console

from saccade import cli
from saccade.cli.printing import _table, print_columns, print_json
from saccade.errors import UserError
from saccade.metrics.classes import score_classes
from saccade.printable import cell, spreadsheet_cell, visible
from saccade.tasks.image_classes.task import Classified
from saccade.training.reporter import Reporter

ESCAPE = "cat\x1b]0;owned\x07\x9b2J\u202e"
SPELLED = r"cat\x1b]0;owned\x07\x9b2J\u202e"


def test_orders_to_a_terminal_are_spelled_out():
    assert visible(ESCAPE) == SPELLED
    assert visible("é\t😀\n") == "é\t😀\n"
    assert cell("a\tb\nc\u2028d") == r"a\tb\nc\u2028d"


def test_a_class_name_orders_a_terminal_nothing(capsys):
    assert Classified("", (f"{ESCAPE}\n\t",), (1.0,)).lines() == [f"{SPELLED}\\n\\t\t1.0000"]
    print_columns([("class", [ESCAPE])])
    print_json({"class": ESCAPE})
    table, printed = capsys.readouterr().out.split("\n", 2)[1:]
    assert table == SPELLED
    assert not {"\x1b", "\x9b", "\u202e"} & set(printed)
    assert json.loads(printed) == {"class": ESCAPE}


def test_a_class_name_is_no_markup_of_a_table():
    console = Console(width=80)
    with console.capture() as captured:
        console.print(_table([("[/bold]", ["[red]x[/y]"])]))
    assert "[/bold]" in captured.get()
    assert "[red]x[/y]" in captured.get()


def test_errors_and_notices_order_a_terminal_nothing(monkeypatch, capsys):
    def fails():
        raise UserError(f"{ESCAPE} is not there")

    monkeypatch.setattr(sys, "argv", ["saccade"])
    monkeypatch.setattr(cli, "app", fails)
    monkeypatch.setattr(cli, "runs", SimpleNamespace(register=lambda _: None))
    with pytest.raises(SystemExit):
        cli.main()
    assert capsys.readouterr().err == f"error: {SPELLED} is not there\n"
    Reporter().say(ESCAPE)
    assert "\x1b" not in capsys.readouterr().err


@pytest.mark.parametrize("text", ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)"])
def test_a_name_is_no_formula_of_a_spreadsheet(text):
    assert spreadsheet_cell(text) == f"'{text}"
    import numpy as np

    judged = np.log(np.array([[0.1, 0.9]], np.float32))
    scores = score_classes(judged, np.array([0]), (text, "dog"), [f"{text}\n.png"])
    line = scores.mistake_lines()[1]
    assert line.split("\t")[1:4] == [f"'{text}\\n.png", f"'{text}", "dog"]
