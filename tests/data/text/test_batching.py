from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.utils.rnn import pad_sequence

from saccade.data.text.batching import TokenBatches, collate
from saccade.data.text.shards import TokenPairs, write_shards
from saccade.data.text.tokenizer import BOS, EOS, PAD

corpora = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=120)
budgets, pools, shuffles = st.integers(1, 200), st.integers(1, 150), st.booleans()


def lengths(corpus):
    return np.array([source for source, _ in corpus]), np.array([target for _, target in corpus])


def realistic(count, seed=0):
    """Sentence lengths like those of news text: log-normal, the target a little longer than the source."""
    generator = np.random.default_rng(seed)
    source = np.clip(generator.lognormal(2.9, 0.5, count), 1, 250).astype(int)
    return source, np.clip(source * generator.lognormal(0.05, 0.15, count), 1, 250).astype(int)


@settings(max_examples=50, deadline=None)
@given(corpora, budgets, pools, shuffles)
def test_every_example_comes_exactly_once_an_epoch(corpus, budget, pool, shuffle):
    batches = TokenBatches(*lengths(corpus), budget, pool, seed=3, shuffle=shuffle)
    for number in (0, 1):
        assert sorted(np.concatenate(batches.epoch(number)).tolist()) == list(range(len(corpus)))


@settings(max_examples=50, deadline=None)
@given(corpora, budgets, pools, shuffles)
def test_no_batch_is_over_budget_except_a_single_long_example(corpus, budget, pool, shuffle):
    for batch in TokenBatches(*lengths(corpus), budget, pool, shuffle=shuffle).epoch(0):
        longest = max(max(corpus[index]) + 1 for index in batch)
        assert len(batch) * longest <= budget or len(batch) == 1


@settings(max_examples=40, deadline=None)
@given(corpora, budgets)
def test_batches_are_as_full_as_the_sorted_order_allows(corpus, budget):
    batches = TokenBatches(*lengths(corpus), budget, pool=len(corpus), shuffle=False).epoch(0)
    for batch, following in pairwise(batches):
        grown = [*batch, following[0]]
        assert len(grown) * max(max(corpus[index]) + 1 for index in grown) > budget


@settings(max_examples=40, deadline=None)
@given(corpora, budgets, pools, shuffles, st.integers(1, 5))
def test_processes_together_see_the_batches_of_one(corpus, budget, pool, shuffle, world):
    def epoch(shard):
        return TokenBatches(*lengths(corpus), budget, pool, 5, shuffle, shard).epoch(2)

    whole = epoch((0, 1))
    slices = [epoch((rank, world)) for rank in range(world)]
    assert {len(part) for part in slices} == {len(whole)}
    for number, batch in enumerate(whole):
        parts = [part[number] for part in slices]
        assert sorted(np.concatenate(parts).tolist()) == sorted(batch.tolist())
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_an_epoch_depends_on_its_number_and_the_seed_alone():
    sizes = realistic(500)

    def epoch(seed, number):
        return [batch.tolist() for batch in TokenBatches(*sizes, 512, 100, seed).epoch(number)]

    batches = TokenBatches(*sizes, 512, 100, seed=1)
    later, first = batches.epoch(7), batches.epoch(0)
    np.random.seed(4)
    assert [batch.tolist() for batch in later] == epoch(1, 7)
    assert [batch.tolist() for batch in first] == epoch(1, 0)
    assert epoch(1, 0) != epoch(1, 7)
    assert epoch(1, 0) != epoch(2, 0)
    assert {tuple(sorted(batch)) for batch in epoch(1, 0)} != {tuple(sorted(batch)) for batch in epoch(1, 7)}


def test_without_shuffling_every_epoch_is_the_same():
    batches = TokenBatches(*realistic(500), 512, 100, shuffle=False)
    assert [batch.tolist() for batch in batches.epoch(0)] == [batch.tolist() for batch in batches.epoch(9)]


def test_shuffled_batches_do_not_come_sorted_by_length():
    source, target = realistic(2000)
    means = [source[batch].mean() for batch in TokenBatches(source, target, 512, 2000).epoch(0)]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.5


def test_padding_share_is_the_share_of_padding_in_the_tensors():
    source, target = realistic(200)
    pairs = TokenPairs.from_lists([([9] * s, [9] * t) for s, t in zip(source, target, strict=True)])
    for shard in ((0, 1), (1, 2)):
        batches = TokenBatches(*pairs.lengths, 256, 50, seed=1, shard=shard)
        tensors = [collate(pairs, batch) for batch in TokenBatches(*pairs.lengths, 256, 50, seed=1).epoch(0)]
        padding = sum(int((side == PAD).sum()) for batch in tensors for side in (batch.source, batch.target_out))
        everything = sum(batch.source.numel() + batch.target_out.numel() for batch in tensors)
        assert batches.padding_share(0) == pytest.approx(padding / everything)


def test_sorted_pools_leave_little_padding():
    sizes = realistic(29_000)
    assert 1 - TokenBatches(*sizes, 4096).padding_share(0) > 0.93
    assert 1 - TokenBatches(*sizes, 4096, pool=64).padding_share(0) < 0.75


def test_lengths_of_one_side_only_are_refused():
    with pytest.raises(ValueError, match="2 source lengths and 1"):
        TokenBatches(np.array([1, 2]), np.array([1]), 10)
    with pytest.raises(ValueError, match="rank"):
        TokenBatches(np.array([1]), np.array([1]), 10, shard=(2, 2))


@pytest.mark.parametrize("on_disk", [True, False])
def test_a_batch_is_shifted_ended_and_padded(tmp_path, on_disk):
    rows = [([5, 6, 7], [8]), ([9], [10, 11]), ([4], [4])]
    pairs = write_shards(tmp_path / "a", rows, 100) if on_disk else TokenPairs.from_lists(rows)
    batch = collate(pairs, np.array([1, 0]))
    assert batch.source.tolist() == [[9, EOS, PAD, PAD], [5, 6, 7, EOS]]
    assert batch.source_lengths.tolist() == [2, 4]
    assert batch.target_in.tolist() == [[BOS, 10, 11], [BOS, 8, PAD]]
    assert batch.target_out.tolist() == [[10, 11, EOS], [8, EOS, PAD]]
    assert batch.target_lengths.tolist() == [3, 2]
    assert batch.indices.tolist() == [1, 0]
    assert {tensor.dtype for tensor in vars(batch).values()} == {torch.int64}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(*[st.lists(st.integers(4, 99), max_size=9)] * 2), min_size=1, max_size=8))
def test_padding_is_that_of_torch(rows):
    batch = collate(TokenPairs.from_lists(rows), range(len(rows)))

    def padded(sequences):
        return pad_sequence([torch.tensor(ids) for ids in sequences], batch_first=True)

    assert torch.equal(batch.source, padded([[*source, EOS] for source, _ in rows]))
    assert torch.equal(batch.target_in, padded([[BOS, *target] for _, target in rows]))
    assert torch.equal(batch.target_out, padded([[*target, EOS] for _, target in rows]))


def test_an_empty_slice_is_a_batch_without_rows():
    batch = collate(TokenPairs.from_lists([([5], [6])]), np.array([], np.int64))
    assert batch.source.shape == batch.target_in.shape == batch.target_out.shape == (0, 1)
    assert batch.source_lengths.shape == batch.indices.shape == (0,)


def test_a_batch_moves_to_a_device_whole():
    batch = collate(TokenPairs.from_lists([([5], [6])]), [0]).to("meta")
    assert all(tensor.device.type == "meta" for tensor in vars(batch).values())
