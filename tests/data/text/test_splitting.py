"""Held-out pairs are cut from a corpus so that no sentence stands in two parts."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.data.text.pairs import Report
from saccade.data.text.splitting import split_pairs
from saccade.errors import UserError


def reader(pairs):
    def read(report):
        for pair in pairs:
            report.read += 1
            yield pair

    return read


def check_split(pairs, split):
    """No sentence in two parts, and every pair accounted for."""
    report = Report()
    parts = [list(split.train(report)), split.valid, split.test]
    assert all(parts)
    for side in (0, 1):
        sentences = [{pair[side].casefold() for pair in part} for part in parts]
        assert not sentences[0] & sentences[1]
        assert not sentences[0] & sentences[2]
        assert not sentences[1] & sentences[2]
    assert report.held_out == len(split.valid) + len(split.test)
    assert report.kept == len(parts[0])
    assert report.read == len(pairs)
    return parts


@pytest.mark.parametrize(("count", "size"), [(3, 1), (39, 1), (1000, 50)])
def test_a_corpus_of_any_size_is_cut_in_three(count, size):
    pairs = [(f"source {number}", f"target {number}") for number in range(count)]
    train, valid, test = check_split(pairs, split_pairs(reader(pairs), seed=1))
    assert (len(train), len(valid), len(test)) == (count - 2 * size, size, size)


def test_held_out_parts_have_a_largest_size():
    pairs = [(f"source {number}", f"target {number}") for number in range(500)]
    _, valid, test = check_split(pairs, split_pairs(reader(pairs), seed=1, largest=7))
    assert (len(valid), len(test)) == (7, 7)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 25), st.integers(0, 25)), min_size=3, max_size=60),
    st.integers(0, 9),
    st.sampled_from([0.0, 0.1]),
)
def test_no_sentence_stands_in_two_parts(numbers, seed, share):
    pairs = [(f"S{source}", f"{'t' if source % 2 else 'T'}{target}") for source, target in numbers]
    try:
        split = split_pairs(reader(pairs), seed, share)
    except UserError:
        # The pairs held out have 2 sentences each, and those touch every pair: so not more pairs than that can be apart.
        held_out = 2 * max(1, int(len(set(numbers)) * share))
        assert pairs_apart(numbers) <= 2 * held_out
    else:
        check_split(pairs, split)


def pairs_apart(numbers):
    sources, targets, count = set(), set(), 0
    for source, target in numbers:
        if source not in sources and target not in targets:
            count += 1
            sources.add(source)
            targets.add(target)
    return count


def test_more_repeated_pairs_than_are_ranked_do_not_prevent_the_split():
    pairs = [("yes", f"oui {number}") for number in range(1200)] + [
        (f"source {number}", "-" * number) for number in range(900)
    ]
    train, valid, test = check_split(pairs, split_pairs(reader(pairs), seed=1, largest=2))
    assert (len(valid), len(test)) == (2, 2)
    assert len(train) >= 896


@pytest.mark.parametrize(("different", "times"), [(1000, 8), (3, 100), (2500, 3)])
def test_repeated_pairs_take_nothing_from_training(different, times):
    pairs = [(f"source {number}", f"target {number}") for number in range(different)] * times
    train, valid, test = check_split(pairs, split_pairs(reader(pairs), seed=1, largest=300))
    assert len(valid) == len(test) == pytest.approx(max(1, different // 20), rel=0.1)
    assert len(train) == times * (different - len(valid) - len(test))


def test_the_split_depends_on_the_seed_and_not_on_the_order():
    pairs = [(f"source {number}", f"target {number}") for number in range(300)]
    first = split_pairs(reader(pairs), seed=1)
    again = split_pairs(reader(pairs[::-1]), seed=1)
    other = split_pairs(reader(pairs), seed=2)
    assert (first.valid, first.test) == (again.valid, again.test)
    assert set(first.valid) != set(other.valid)


def test_train_can_be_read_again():
    pairs = [(f"source {number}", f"target {number}") for number in range(30)]
    split = split_pairs(reader(pairs), seed=1)
    assert list(split.train()) == list(split.train())


@pytest.mark.parametrize(
    "pairs", [[], [("a", "b")] * 2, [("a", "b")] * 50, [("a", str(number)) for number in range(9)]]
)
def test_a_corpus_that_cannot_be_split_is_refused(pairs):
    with pytest.raises(UserError, match=f"{len(pairs)} pairs cannot be split"):
        split_pairs(reader(pairs), seed=1)


def test_one_part_alone_is_cut_off():
    pairs = [(f"source {number}", f"target {number}") for number in range(100)]
    both = split_pairs(reader(pairs), seed=1)
    for parts in (["valid"], ["test"]):
        split = split_pairs(reader(pairs), seed=1, parts=parts)
        cut, other = (split.valid, split.test) if parts == ["valid"] else (split.test, split.valid)
        assert cut == both.valid
        assert other == []
        assert len(list(split.train())) == 95
