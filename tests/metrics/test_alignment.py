import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.errors import UserError
from saccade.metrics.alignment import alignment_error_rate, corpus_alignment_error_rate, hard_alignment

WEIGHTS = np.array(
    [
        [0.7, 0.2, 0.1],
        [0.6, 0.3, 0.1],
        [0.0, 0.4, 0.6],
        [0.0, 0.0, 0.0],
    ]
)
LINKS = st.frozensets(st.tuples(st.integers(0, 4), st.integers(0, 4)))


def test_every_target_word_is_linked_to_the_source_it_looks_at_most():
    assert hard_alignment(WEIGHTS[:3]) == {(0, 0), (0, 1), (2, 2)}


def test_a_word_that_looks_at_nothing_stays_unlinked():
    assert not any(target == 3 for _, target in hard_alignment(WEIGHTS))


def test_a_link_needs_at_least_the_threshold():
    assert hard_alignment(WEIGHTS, threshold=0.6) == {(0, 0), (0, 1), (2, 2)}
    assert hard_alignment(WEIGHTS, threshold=0.65) == {(0, 0)}


def test_the_other_direction_keeps_only_links_that_both_find():
    # Source 0 looks at target 0, source 1 at target 2, source 2 at target 2.
    assert hard_alignment(WEIGHTS, reverse=WEIGHTS.T) == {(0, 0), (2, 2)}


@pytest.mark.parametrize(
    ("weights", "reverse"), [(WEIGHTS[None], None), (np.zeros((2, 0)), None), (WEIGHTS, WEIGHTS), (WEIGHTS[0], None)]
)
def test_weights_of_another_shape_are_refused(weights, reverse):
    with pytest.raises(UserError, match="shape"):
        hard_alignment(weights, reverse=reverse)


def test_the_error_rate_of_a_worked_example():
    # A has 4 links, S has 3. A ∩ S = {(0, 0), (1, 1)}: 2. A ∩ P = those and (2, 1): 3. AER = 1 - (2 + 3) / (4 + 3) = 2 / 7.
    predicted = {(0, 0), (1, 1), (2, 1), (3, 3)}
    sure = {(0, 0), (1, 1), (2, 2)}
    possible = {*sure, (2, 1), (3, 2)}
    assert alignment_error_rate(predicted, sure, possible) == pytest.approx(2 / 7)


def test_without_possible_links_it_is_one_minus_f1():
    # Precision 2/4, recall 2/3: F1 = 2 * 2 / (4 + 3).
    predicted, sure = {(0, 0), (1, 1), (2, 1), (3, 3)}, {(0, 0), (1, 1), (2, 2)}
    assert alignment_error_rate(predicted, sure) == pytest.approx(1 - 4 / 7)


def test_sure_links_count_as_possible_even_when_not_listed_there():
    assert alignment_error_rate({(0, 0)}, {(0, 0)}, possible={(1, 1)}) == 0


def test_perfect_is_zero_nothing_right_is_one_and_nothing_asked_is_zero():
    assert alignment_error_rate({(0, 0)}, {(0, 0)}) == 0
    assert alignment_error_rate({(0, 1)}, {(0, 0)}) == 1
    assert alignment_error_rate(set(), {(0, 0)}) == 1
    assert alignment_error_rate(set(), set()) == 0


@given(LINKS, LINKS, LINKS)
def test_the_error_rate_lies_between_zero_and_one(predicted, sure, possible):
    assert 0 <= alignment_error_rate(predicted, sure, possible) <= 1


def test_a_corpus_sums_counts_before_dividing():
    # First pair: agreed 2 of 2. Second: agreed 2 * 1 of 3 + 3. Together 4 / 8, while the mean of the rates would be 1 / 3.
    predicted = [{(0, 0)}, {(0, 0), (1, 0), (2, 0)}]
    sure = [{(0, 0)}, {(0, 0), (1, 1), (2, 2)}]
    assert corpus_alignment_error_rate(predicted, sure) == pytest.approx(0.5)


def test_a_corpus_needs_as_many_predictions_as_references():
    with pytest.raises(UserError, match="one of each per sentence pair"):
        corpus_alignment_error_rate([set()], [set(), set()])
