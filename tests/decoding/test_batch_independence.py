"""What comes out for a sentence never depends on the sentences around it: equal to the last bit, alone and in a batch."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.decoding import BeamConfig, Prefix, SamplingConfig, beam_search, greedy_search, sample

batches = st.lists(
    st.tuples(st.integers(0, 63), st.integers(1, 8), st.lists(st.integers(3, 5), max_size=3)), min_size=1, max_size=10
)


def forced(prefixes: list[list[int]]) -> Prefix:
    width = max(map(len, prefixes))
    tokens = torch.tensor([[*prefix, *[0] * (width - len(prefix))] for prefix in prefixes], dtype=torch.long)
    return Prefix(tokens.view(len(prefixes), width), torch.tensor([len(prefix) for prefix in prefixes]))


def tables(table_stepper, seed: int, tied: bool):
    stepper = table_stepper(seed)
    if tied:
        stepper.table = stepper.table.sign()  # few distinct numbers: equal scores everywhere
    return stepper


def together_and_alone(search, batch):
    """`search(sources, max_length, prefix, numbers)` over the batch at once, and sentence by sentence."""
    sources, limits, prefixes = zip(*batch, strict=True)
    together = search(sources, torch.tensor(limits), forced(list(prefixes)), torch.arange(len(batch)))
    alone = []
    for number, (source, limit, prefix) in enumerate(batch):
        alone += search([source], limit, forced([prefix]), torch.tensor([number]))
    return together, alone


@settings(max_examples=25, deadline=None)
@given(
    batch=batches,
    seed=st.integers(0, 99),
    size=st.integers(1, 9),
    best=st.integers(1, 9),
    alpha=st.sampled_from([0.0, 0.6, -0.5]),
    tied=st.booleans(),
)
def test_beam_search(table_stepper, batch, seed, size, best, alpha, tied):
    stepper = tables(table_stepper, seed, tied)
    config = BeamConfig(size=size, best=min(best, size), length_penalty=alpha)

    def search(sources, max_length, prefix, numbers):
        return beam_search(*stepper.inputs(*sources), config, max_length=max_length, prefix=prefix, **stepper.special)

    together, alone = together_and_alone(search, batch)
    assert together == alone
    for outputs, (_, limit, prefix) in zip(together, batch, strict=True):
        assert outputs
        for hypothesis in outputs:
            assert hypothesis.tokens[: len(prefix)] == prefix
            assert len(hypothesis.token_log_probs) <= max(limit, len(prefix))
            assert stepper.pad not in hypothesis.tokens


@settings(max_examples=15, deadline=None)
@given(batch=batches, seed=st.integers(0, 99), tied=st.booleans())
def test_greedy_search(table_stepper, batch, seed, tied):
    stepper = tables(table_stepper, seed, tied)

    def search(sources, max_length, prefix, numbers):
        return greedy_search(*stepper.inputs(*sources), max_length=max_length, prefix=prefix, **stepper.special)

    together, alone = together_and_alone(search, batch)
    assert together == alone


@settings(max_examples=15, deadline=None)
@given(
    batch=batches,
    seed=st.integers(0, 99),
    config=st.builds(
        SamplingConfig,
        samples=st.integers(1, 3),
        temperature=st.sampled_from([0.5, 1.0]),
        top_k=st.sampled_from([None, 3]),
        top_p=st.sampled_from([0.8, 1.0]),
    ),
)
def test_sampling(table_stepper, batch, seed, config):
    stepper = table_stepper(seed)

    def search(sources, max_length, prefix, numbers):
        inputs = stepper.inputs(*sources)
        return sample(
            *inputs, config, max_length=max_length, seed=seed, numbers=numbers, prefix=prefix, **stepper.special
        )

    together, alone = together_and_alone(search, batch)
    assert together == alone


@pytest.mark.parametrize("size", [5])
def test_a_batch_of_64(table_stepper, size):
    stepper = table_stepper(11, vocabulary=30)
    config = BeamConfig(size=size, best=size, length_penalty=0.6)
    together = beam_search(*stepper.inputs(*range(64)), config, max_length=25, **stepper.special)
    alone = [beam_search(*stepper.inputs(source), config, max_length=25, **stepper.special)[0] for source in range(64)]
    assert together == alone
