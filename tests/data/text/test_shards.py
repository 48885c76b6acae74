import json
import multiprocessing
import pickle
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.data.text import shards
from saccade.data.text.shards import TokenPairs, write_shards
from saccade.errors import UserError

PAIRS = [([5, 6, 7], [8]), ([9], [10, 11]), ([], [12]), ([4, 4, 4, 4], [])]
ids = st.lists(st.integers(0, 69_999), max_size=6)


def as_lists(pairs: TokenPairs) -> list[tuple[list[int], list[int]]]:
    return [(source.tolist(), target.tolist()) for source, target in (pairs[index] for index in range(len(pairs)))]


@settings(max_examples=40, deadline=None)
@given(pairs=st.lists(st.tuples(ids, ids), min_size=1), flush=st.sampled_from([1, 7, 1 << 20]))
def test_what_is_written_is_read(tmp_path_factory, pairs, flush):
    place = tmp_path_factory.mktemp("shards") / "train"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "FLUSH_TOKENS", flush)
        written = write_shards(place, iter(pairs), vocabulary_size=70_000)
    in_memory = TokenPairs.from_lists(pairs)
    for read in (written, TokenPairs.open(place), in_memory):
        assert as_lists(read) == pairs
        assert read.lengths[0].tolist() == [len(source) for source, _ in pairs]
        assert read.lengths[1].tolist() == [len(target) for _, target in pairs]
        assert read.fingerprint == in_memory.fingerprint


@pytest.mark.parametrize(("vocabulary_size", "itemsize"), [(65_536, 2), (65_537, 4)])
def test_small_vocabularies_take_two_bytes_a_token(tmp_path, vocabulary_size, itemsize):
    pairs = [([vocabulary_size - 1, 0], [1])]
    assert as_lists(write_shards(tmp_path / "a", pairs, vocabulary_size)) == pairs
    assert (tmp_path / "a" / "source.tokens").stat().st_size == 2 * itemsize


def test_a_token_that_does_not_fit_is_refused(tmp_path):
    with pytest.raises(OverflowError):
        write_shards(tmp_path / "a", [([65_536], [1])], vocabulary_size=8000)
    assert list(tmp_path.iterdir()) == []


def test_the_fingerprint_tells_pairs_apart():
    variants = [PAIRS, PAIRS[:-1], PAIRS[::-1], [([5, 6], [7, 8])], [([5], [6, 7, 8])], [([5, 6], []), ([], [7, 8])]]
    assert len({TokenPairs.from_lists(pairs).fingerprint for pairs in variants}) == len(variants)


@pytest.mark.parametrize("on_disk", [True, False])
def test_indices_count_from_either_end_and_stop_there(tmp_path, on_disk):
    pairs = write_shards(tmp_path / "a", PAIRS, 100) if on_disk else TokenPairs.from_lists(PAIRS)
    assert pairs[-1][0].tolist() == [4, 4, 4, 4]
    for index in (4, -5):
        with pytest.raises(IndexError, match="4 pairs"):
            pairs[index]
    assert len(list(pairs)) == 4


def test_views_are_of_the_file_and_cannot_be_written(tmp_path):
    source, _ = write_shards(tmp_path / "a", PAIRS, 100)[0]
    assert source.base is not None
    with pytest.raises(ValueError, match="read-only"):
        source[0] = 1


def test_memory_does_not_grow_with_the_corpus(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "FLUSH_TOKENS", 10_000)
    pair = (list(range(50)), list(range(50)))
    tracemalloc.start()
    write_shards(tmp_path / "a", (pair for _ in range(10_000)), 100)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (tmp_path / "a" / "source.tokens").stat().st_size == 1_000_000
    assert peak < 500_000


def test_an_interrupted_corpus_leaves_nothing_behind(tmp_path):
    def pairs():
        yield PAIRS[0]
        assert not (tmp_path / "a").exists()
        raise UserError("line 2 is wrong")

    with pytest.raises(UserError, match="line 2 is wrong"):
        write_shards(tmp_path / "a", pairs(), 100)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_corpus_leaves_the_older_one_whole(tmp_path):
    def pairs():
        yield PAIRS[1]
        raise KeyboardInterrupt

    write_shards(tmp_path / "a", PAIRS, 100)
    with pytest.raises(KeyboardInterrupt):
        write_shards(tmp_path / "a", pairs(), 100)
    assert as_lists(TokenPairs.open(tmp_path / "a")) == PAIRS
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_newer_corpus_replaces_an_older_one(tmp_path):
    older = write_shards(tmp_path / "a", PAIRS, 100, origin="first")
    newer = write_shards(tmp_path / "a", PAIRS[:2], 100, origin="second")
    assert as_lists(newer) == PAIRS[:2]
    assert (older.origin, newer.origin) == ("first", "second")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_an_empty_directory_may_be_filled_and_no_other(tmp_path):
    (tmp_path / "empty").mkdir()
    assert as_lists(write_shards(tmp_path / "empty", PAIRS, 100)) == PAIRS
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(UserError, match="is not a tokenised corpus"):
        write_shards(tmp_path / "mine", PAIRS, 100)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"


def test_no_pairs_are_refused(tmp_path):
    with pytest.raises(UserError, match="no pairs"):
        write_shards(tmp_path / "a", [], 100)
    assert list(tmp_path.iterdir()) == []
    assert len(TokenPairs.from_lists([])) == 0


@pytest.mark.parametrize("damage", ["header", "version", "dtype", "tokens", "offsets", "missing", "everything"])
def test_an_incomplete_corpus_is_refused(tmp_path, damage):
    place = tmp_path / "a"
    write_shards(place, PAIRS, 100)
    if damage == "header":
        (place / "header.json").write_text('{"version": 1, "pai')
    elif damage in ("version", "dtype"):
        header = json.loads((place / "header.json").read_text())
        (place / "header.json").write_text(json.dumps({**header, damage: {"version": 2, "dtype": "|O"}[damage]}))
    elif damage in ("tokens", "offsets"):
        file = place / f"target.{damage}"
        file.write_bytes(file.read_bytes()[:-1])
    elif damage == "missing":
        (place / "source.offsets").unlink()
    else:
        place = Path(tmp_path / "nowhere")
    with pytest.raises(UserError, match="is not a complete tokenised corpus"):
        TokenPairs.open(place)


def total(pairs: TokenPairs) -> int:
    return int(sum(source.sum() + target.sum() for source, target in pairs))


def test_another_process_maps_the_files_itself(tmp_path):
    big = np.arange(100_000) % 100
    pairs = write_shards(tmp_path / "a", [(big.tolist(), [1])], 100)
    expected = total(pairs)
    assert len(pickle.dumps(pairs)) < 2000
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(total, [pairs, TokenPairs.open(tmp_path / "a")]) == [expected, expected]
