"""Against the rules of SQuAD's own script, in numbers computed by hand."""

import pytest

from saccade.metrics.spans import exact_match, f1, plain, score_spans


@pytest.mark.parametrize(
    ("written", "compared"),
    [
        ("The  Eiffel Tower!", "eiffel tower"),
        ("an apple, a day", "apple day"),
        ("U.S.A.", "usa"),
        ("another theme", "another theme"),
        ("well-known", "wellknown"),
        ("“the”", "“ ”"),  # only the marks of ASCII are taken out
    ],
)
def test_answers_are_compared_in_lower_case_without_marks_and_articles(written, compared):
    assert plain(written) == compared


def test_f1_counts_words_that_both_have():
    assert f1("the cat sat", ["a cat sat down"]) == pytest.approx(2 * (2 / 2) * (2 / 3) / (1 + 2 / 3))
    assert f1("cat cat", ["cat"]) == pytest.approx(2 / 3)
    assert f1("dog", ["cat"]) == 0


def test_the_best_reference_counts():
    assert exact_match("May 1843", ["1843", "May 1843"]) == 1
    assert f1("May 1843", ["1843", "June"]) == pytest.approx(2 / 3)


def test_no_answer_is_right_only_where_there_is_none():
    assert f1("", []) == exact_match("", []) == 1
    assert f1("cat", []) == f1("", ["cat"]) == 0
    assert f1("the", []) == 1  # an article alone is nothing, as in the script of SQuAD 2.0
    scores = score_spans(["", "cat", "dog"], [[], ["cat"], []])
    assert (scores.exact, scores.no_answer, scores.answered) == (pytest.approx(200 / 3), 50, 100)
