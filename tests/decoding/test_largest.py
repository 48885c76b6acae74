"""The faster topk gives what torch.topk gives."""

import pytest
import torch

from saccade.decoding.largest import largest


@pytest.mark.parametrize("vocabulary", [3, 500, 2560, 2561, 8063])
@pytest.mark.parametrize("count", [1, 7])
def test_it_gives_what_topk_gives(vocabulary, count):
    generator = torch.Generator().manual_seed(1)
    values = torch.stack(
        [torch.randperm(vocabulary, generator=generator) for _ in range(6)]
    ).float()  # no two are equal
    result, expected = largest(values, count), values.topk(min(count, vocabulary))
    assert torch.equal(result[0], expected.values)
    assert torch.equal(result[1], expected.indices)


def test_equal_numbers_are_returned_once():
    values = torch.zeros(2, 4000)
    values[0, -3:] = -torch.inf
    values[1] = -torch.inf
    value, index = largest(values, 7)
    assert torch.equal(value, values.gather(1, index))
    assert torch.equal(value[0], torch.zeros(7))
    assert all(len(set(row)) == 7 for row in index.tolist())
