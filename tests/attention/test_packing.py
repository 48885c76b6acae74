"""Sequences that stand one after the other in one row: attended, recorded and sampled as each would be alone."""

import pytest
import torch

from saccade.attention import (
    CAUSAL,
    Hard,
    MultiHead,
    Packed,
    Packing,
    Perceptron,
    Rotary,
    ScaledDot,
    record_attention,
)
from saccade.kernels import sentences

TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


def packed_case(lengths=(3, 1, 6), other=(2, 5, 4), size=16, dtype=torch.float32):
    sequences, sources = Packing(torch.tensor(lengths)), Packing(torch.tensor(other))
    return (
        sequences,
        sources,
        torch.randn(1, sum(lengths), size, dtype=dtype),
        torch.randn(1, sum(other), size, dtype=dtype),
    )


def test_packing_reverses_padding():
    packing = Packing(torch.tensor([3, 1, 2]))
    row = torch.arange(12.0).view(1, 6, 2)
    padded = packing.pad(row)
    assert padded.shape == (3, 3, 2)
    assert torch.equal(padded[1], torch.tensor([[6.0, 7.0], [0.0, 0.0], [0.0, 0.0]]))
    assert torch.equal(packing.pack(padded), row)
    assert packing.positions.tolist() == [0, 1, 2, 0, 0, 1]
    assert packing.starts.tolist() == [0, 3, 4, 6]
    heads = torch.randn(1, 4, 6, 2)
    assert torch.equal(packing.pad(heads)[0, :, :3], heads[0, :, :3])
    assert torch.equal(packing.pack(packing.pad(heads)), heads)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("score", [ScaledDot, Perceptron])
def test_packed_sequences_attend_as_each_does_alone(score, rotary, dtype):
    torch.manual_seed(1)
    sequences, sources, x, other = packed_case(dtype=dtype)
    layer = MultiHead(16, 2, score=score, rotary=Rotary(8) if rotary else None).to(dtype)
    across = MultiHead(16, 2, score=score).to(dtype)
    own = layer(x, band=CAUSAL, packed=Packed(sequences, sequences)).context
    seen = across(x, other, packed=Packed(sequences, sources)).context
    for begin, end, first, last in zip(
        sequences.starts[:-1], sequences.starts[1:], sources.starts[:-1], sources.starts[1:], strict=True
    ):
        alone = x[:, begin:end]
        torch.testing.assert_close(own[:, begin:end], layer(alone, band=CAUSAL).context, **TOLERANCE)
        torch.testing.assert_close(seen[:, begin:end], across(alone, other[:, first:last]).context, **TOLERANCE)


@pytest.mark.parametrize("longest", [6, sentences.LONGEST_SHORT + 1])
def test_packed_sequences_are_recorded_with_a_row_each(longest):
    sequences, sources, x, other = packed_case((3, 1, 6), (2, 5, longest))
    layer = MultiHead(16, 2)
    expected = layer(x, other, packed=Packed(sequences, sources)).context
    with record_attention(layer) as maps:
        found = layer(x, other, packed=Packed(sequences, sources)).context
    assert torch.equal(found, expected)
    (weights,) = maps[""]
    assert weights.shape == (3, 2, 6, longest)
    with record_attention(layer) as alone:
        layer(x[:, 3:4], other[:, 2:7])
    torch.testing.assert_close(weights[1:2, :, :1, :5], alone[""][0], **TOLERANCE)
    assert (weights[1, :, :, 5:] == 0).all()


def test_sampled_looks_of_packed_sequences_keep_their_log_probability():
    sequences, _, x, _ = packed_case()
    layer = MultiHead(16, 2, selection=Hard()).train()
    attended = layer(x, packed=Packed(sequences, sequences))
    assert attended.log_prob.shape == (1, 2, 10)
    assert (attended.log_prob[..., 3] == 0).all()  # a sequence of one has one key to choose


def test_packed_sequences_take_no_mask_of_their_own():
    sequences, _, x, _ = packed_case()
    with pytest.raises(ValueError, match="pad them instead"):
        MultiHead(16, 2)(x, visible=torch.ones(1, 10, dtype=torch.bool), packed=Packed(sequences, sequences))


@pytest.mark.parametrize("lengths", [[6, 6], [3, 3], [-1, 11]])
def test_lengths_that_are_not_those_of_the_row_are_refused(lengths):
    sequences, x = Packing(torch.tensor(lengths)), torch.randn(1, 10, 16)
    with pytest.raises(ValueError, match=r"one row|0 or more"):
        MultiHead(16, 2)(x, packed=Packed(sequences, sequences))


def test_sequences_of_another_batch_or_number_are_refused():
    five, ten = Packing(torch.tensor([5, 5])), Packing(torch.tensor([10]))
    with pytest.raises(ValueError, match="one row"):
        MultiHead(16, 2)(torch.randn(4, 10, 16), packed=Packed(five, five))
    with pytest.raises(ValueError, match="same sequences"):
        MultiHead(16, 2)(torch.randn(1, 10, 16), packed=Packed(five, ten))
