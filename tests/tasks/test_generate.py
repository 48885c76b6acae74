"""Searching many rows: sorted by length, given out in order, some at a time."""

import pytest

from saccade import load
from saccade.errors import UserError
from saccade.tasks import generate
from saccade.tasks.generate import found_in_order


class Search:
    """Finds the row's own number, and remembers what it was asked."""

    def __init__(self):
        self.asked = []

    def __call__(self, rows):
        self.asked.append(rows)
        return [[row] for row in rows]


def test_rows_are_searched_by_length_and_given_out_in_order():
    search = Search()
    assert list(found_in_order([3, 0, 1, 2, 1], batch=2, search=search)) == [[0], None, [2], [3], [4]]
    assert search.asked == [[2, 4], [3, 0]]


def test_nothing_is_searched_before_it_is_needed(monkeypatch):
    monkeypatch.setattr(generate, "_SORTED", 4)
    search = Search()
    answers = found_in_order([1] * 20, batch=1, search=search)
    assert search.asked == []
    assert next(answers) == [0]
    assert len(search.asked) == 8  # eight batches are the least
    assert list(answers) == [[row] for row in range(1, 20)]


def test_a_sentence_that_is_too_long_is_refused_before_the_first_answer(tiny_run):
    run = load(tiny_run)
    with pytest.raises(UserError, match="sentence 2 of 2 has"):
        run.answers(["1 2 3", "4 " * 1000])


def test_answers_one_by_one_are_the_predictions(tiny_run, monkeypatch):
    run, lines = load(tiny_run), ["1 2 3 4", "", "5", *["6 7 8"] * 30]
    monkeypatch.setattr(generate, "_SORTED", 3)
    one_by_one = list(run.answers(lines, batch=2))
    assert [each.source for each in one_by_one] == lines
    assert [each.text for each in one_by_one] == [each.text for each in run.predict(lines, batch=7)]
    samples = [each.text for each in run.predict(lines, batch=2, search="sample", seed=3)]
    monkeypatch.undo()
    assert samples == [each.text for each in run.predict(lines, search="sample", seed=3)]
