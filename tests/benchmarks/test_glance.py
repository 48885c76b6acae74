"""The table of results at a glance: its numbers are those of the benchmarks' files and of the pages it links to."""

import json
import re

import pytest

from benchmarks import glance, picture, report

PAGES = glance.PAGE.parent


def section(page: str, anchor: str) -> str:
    """The text under one heading, up to the next heading of the same level or above."""
    lines = (PAGES / page).read_text(encoding="utf-8").splitlines()
    levels = {number: len(line) - len(line.lstrip("#")) for number, line in enumerate(lines) if line.startswith("#")}
    start = next(number for number in levels if lines[number].lstrip("# ").lower().replace(" ", "-") == anchor)
    ends = (number for number in levels if number > start and levels[number] <= levels[start])
    return "\n".join(lines[start : next(ends, len(lines))])


def test_the_page_shows_the_table_that_the_measurements_give():
    page = glance.PAGE.read_text(encoding="utf-8")
    assert page == glance.with_table(page), "run python -m benchmarks.glance"


def test_table_and_picture_show_the_same_speeds():
    page = glance.PAGE.read_text(encoding="utf-8")
    bars = [*picture.training(), *picture.recurrent(), *picture.decoding(), *picture.vision(), *picture.quality()]
    assert len(bars) > 10
    assert [bar for bar in bars if f"{bar.times:.2f}" not in page] == []


def test_every_evaluation_of_the_table_stands_in_its_section():
    for row in (report.kept("evaluations") or {})["rows"]:
        text = section("quality.md", row["section"])
        figures = re.findall(r"\d+(?:\.\d+)?", f"{row['ours']} {row['beside']}")
        assert [figure for figure in figures if figure not in text] == [], row["system"]


def test_a_missed_goal_is_bold(tmp_path, monkeypatch):
    rows = report.contenders({"saccade": [1.0], "GRUCell loop": [1.2]}, 60, "tokens")
    measured = {"machine": {"processor": "AMD EPYC"}, "against the best peer": 1.2, "goal": 2.0, "contenders": rows}
    (tmp_path / "recurrent.json").write_text(json.dumps(measured), encoding="utf-8")
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    (row,) = glance.rows()
    assert (row.setting, row.ours, row.beside) == ("AVX2", "**1.20** × faster", "GRUCell loop; goal 2")


def test_a_page_without_markers_is_refused():
    with pytest.raises(SystemExit, match="needs the two lines"):
        glance.with_table("# Results\n")
