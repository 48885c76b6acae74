"""The largest of many numbers are those that torch finds."""

import pytest
import torch

from saccade.decoding.largest import largest


@pytest.mark.parametrize("vocabulary", [3, 64, 500, 2560, 2561, 8000, 8063])
@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("seed", range(3))
def test_it_finds_what_topk_finds(vocabulary, count, seed):
    generator = torch.Generator().manual_seed(seed)
    values = torch.stack(
        [torch.randperm(vocabulary, generator=generator) for _ in range(6)]
    ).float()  # no two are equal
    found, expected = largest(values, count), values.topk(min(count, vocabulary))
    assert torch.equal(found[0], expected.values)
    assert torch.equal(found[1], expected.indices)


def test_equal_numbers_are_found_once_each():
    values = torch.zeros(2, 4000)
    values[0, -3:] = -torch.inf
    values[1] = -torch.inf
    value, index = largest(values, 7)
    assert torch.equal(value, values.gather(1, index))
    assert torch.equal(value[0], torch.zeros(7))
    assert all(len(set(row)) == 7 for row in index.tolist())
