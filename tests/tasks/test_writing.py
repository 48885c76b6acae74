"""Searching many rows: sorted by length, given out in order, some at a time."""

import pytest

from saccade import load
from saccade.errors import UserError
from saccade.tasks import writing as generate
from saccade.tasks.translation import task as translation
from saccade.tasks.writing import found_in_order


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
    monkeypatch.setattr(generate, "_SORTED", 30)
    search = Search()
    answers = found_in_order([1] * 100, batch=1, search=search)
    assert search.asked == []
    searched = []
    for row in range(100):
        assert next(answers) == [row]
        searched.append(len(search.asked))
    assert sorted(set(searched)) == [8, 8 + 16, 8 + 16 + 30, 8 + 16 + 30 + 30, 100]


def test_a_sentence_that_is_too_long_is_refused_before_the_first_answer(tiny_run):
    run = load(tiny_run)
    with pytest.raises(UserError, match="sentence 2 of 2 has"):
        run.answers(["1 2 3", "4 " * 1000])


def test_nothing_to_translate_has_no_beginning_either(tiny_run):
    run = load(tiny_run)
    first, second = run.predict(["", "1 2"], prefix="1")
    assert (first.text, second.text[:1]) == ("", "1")
    with pytest.raises(UserError, match="must begin with 'no digits' and this model has no word 'no'"):
        run.answers(["1 2"], prefix="no digits")


def in_batches_of(size, run):
    decode = run.recipe.decode.model_copy(update={"batch_size": size})
    run.task.recipe = run.recipe.model_copy(update={"decode": decode})


def test_the_first_answer_does_not_wait_for_the_last(tiny_run, monkeypatch):
    run = load(tiny_run)
    calls = []
    monkeypatch.setattr(translation, "generate", lambda *search: calls.append(1) or generate.generate(*search))
    in_batches_of(2, run)
    answers = run.answers(["1 2 3"] * 40)
    next(answers)
    assert len(calls) == 8
    run.task.model.train()  # what somebody does in between
    assert len(list(answers)) == 39
    assert not run.task.model.training


def test_answers_one_by_one_are_the_predictions(tiny_run):
    run, lines = load(tiny_run), ["1 2 3 4", "", "5", *["6 7 8"] * 30]
    samples, translations = {}, {}
    for size in (1, 2, 7):
        in_batches_of(size, run)
        answers = list(run.answers(lines))
        assert [answer.source for answer in answers] == lines
        translations[size] = [answer.text for answer in answers]
        samples[size] = [answer.text for answer in run.predict(lines, search="sample", seed=3)]
    assert translations[1] == translations[2] == translations[7]
    assert samples[1] == samples[2] == samples[7]
