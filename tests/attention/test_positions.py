"""Positions, against loops, Hugging Face's models, and the properties they are used for."""

import numpy as np
import pytest
import torch

from saccade.attention import (
    Around2d,
    CalendarDay,
    Learned,
    Learned2d,
    MultiHead,
    RelativeBias,
    Rotary,
    Sinusoidal,
    Sinusoidal2d,
)

from . import reference
from .cases import EXACT


@pytest.mark.parametrize(("size", "base", "first"), [(6, 10000.0, 0), (2, 10000.0, 5), (8, 100.0, 1000)])
def test_sinusoidal_is_the_table_of_the_paper(size, base, first):
    table = Sinusoidal(size, base).double()(7, first)
    expected = torch.from_numpy(reference.sinusoids(range(first, first + 7), size, base))
    torch.testing.assert_close(table, expected, **EXACT)


def test_sinusoidal_is_the_table_of_marian_which_keeps_sines_and_cosines_apart():
    from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

    theirs = MarianSinusoidalPositionalEmbedding(50, 12).create_weight()
    ours = Sinusoidal(12)(50)
    torch.testing.assert_close(torch.cat((ours[:, 0::2], ours[:, 1::2]), dim=1), theirs, rtol=1e-6, atol=1e-6)


def test_sinusoidal_far_positions_are_exact_in_single_precision():
    far = Sinusoidal(64)(4, first=100_000)
    expected = torch.from_numpy(reference.sinusoids(range(100_000, 100_004), 64, 10000.0))
    torch.testing.assert_close(far.double(), expected, rtol=0, atol=1e-7)


def test_sinusoidal_one_step_at_a_time_is_the_whole():
    positions = Sinusoidal(8)
    assert torch.equal(torch.cat([positions(1, first=t) for t in range(5)]), positions(5))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_fixed_positions_answer_in_the_dtype_of_the_module(dtype):
    assert Sinusoidal(4).to(dtype)(3).dtype == dtype
    assert Sinusoidal2d(4).to(dtype)(3, 2).dtype == dtype
    assert CalendarDay(4).to(dtype)(torch.arange(3)).dtype == dtype
    assert Rotary(4)(torch.randn(3, 4).to(dtype)).dtype == dtype
    assert RelativeBias(2).to(dtype)(3, 4).dtype == dtype
    assert Around2d(2).to(dtype)(3, 4).dtype == dtype


def test_sinusoidal_2d_tells_rows_in_the_first_half_and_columns_in_the_second():
    table = Sinusoidal2d(8).double()(3, 4)
    rows, columns = (torch.from_numpy(reference.sinusoids(range(n), 4, 10000.0)) for n in (3, 4))
    for row in range(3):
        for column in range(4):
            expected = torch.cat((rows[row], columns[column]))
            torch.testing.assert_close(table[row * 4 + column], expected, **EXACT)


def test_learned_2d_tells_rows_in_the_first_half_and_columns_in_the_second():
    positions = Learned2d(6, rows=5, columns=4)
    table = positions(3, 4)
    assert table.shape == (12, 6)
    for row in range(3):
        for column in range(4):
            expected = torch.cat((positions.row_table[row], positions.column_table[column]))
            assert torch.equal(table[row * 4 + column], expected)
    table.sum().backward()
    assert positions.row_table.grad[:3].tolist() == [[4.0] * 3] * 3
    assert positions.row_table.grad[3:].abs().max() == 0


def test_calendar_day_is_the_table_at_the_given_days():
    days = torch.tensor([[3, 18, 364], [1, 2, 700]])
    encoded = CalendarDay(6).double()(days)
    assert encoded.shape == (2, 3, 6)
    for b in range(2):
        expected = torch.from_numpy(reference.sinusoids(days[b].tolist(), 6, 1000.0))
        torch.testing.assert_close(encoded[b], expected, **EXACT)


def test_calendar_day_takes_parts_of_days():
    expected = torch.from_numpy(reference.sinusoids([0.25, 3.5], 4, 1000.0))
    torch.testing.assert_close(CalendarDay(4).double()(torch.tensor([0.25, 3.5])), expected, **EXACT)


def test_learned_positions_are_rows_of_a_table():
    positions = Learned(4, longest=6)
    assert torch.equal(positions(3), positions.table[:3])
    assert torch.equal(positions(2, first=4), positions.table[4:6])
    assert positions(3).requires_grad


def test_learned_positions_beyond_their_table_are_refused():
    with pytest.raises(ValueError, match=r"has 6 positions and 7 are needed: .*sinusoidal"):
        Learned(4, longest=6)(7)
    with pytest.raises(ValueError, match="has 6 positions and 8 are needed"):
        Learned(4, longest=6)(3, first=5)
    with pytest.raises(ValueError, match="has 2 rows and 3 are needed"):
        Learned2d(4, rows=2, columns=3)(3, 3)
    with pytest.raises(ValueError, match="has 3 columns and 5 are needed"):
        Learned2d(4, rows=2, columns=3)(2, 5)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: Sinusoidal(5)(2), "size must be even; got 5"),
        (lambda: CalendarDay(3)(torch.arange(2)), "size must be even; got 3"),
        (lambda: Sinusoidal2d(6), "multiple of 4; got 6"),
        (lambda: Learned2d(5, 2, 2), "size must be even; got 5"),
        (lambda: Rotary(3), "must be even; got 3"),
        (lambda: Rotary(2)(torch.randn(1, 3, 8)), "heads of size 2 and got vectors of size 8"),
    ],
)
def test_sizes_that_cannot_be_split_are_refused(make, what):
    with pytest.raises(ValueError, match=what):
        make()


# Rotary


def test_rotary_turns_pairs_as_the_paper_says():
    vectors = torch.randn(2, 3, 5, 6, dtype=torch.float64)
    turned = Rotary(6, base=100.0)(vectors, first=3)
    for index in [(0, 0, 0), (1, 2, 4), (0, 1, 3)]:
        expected = reference.rotate(vectors[index].numpy(), 3 + index[-1], 100.0)
        torch.testing.assert_close(turned[index], torch.from_numpy(expected), **EXACT)


def test_rotary_is_that_of_llama():
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    query, key = torch.randn(2, 3, 9, 8), torch.randn(2, 3, 9, 8)
    config = LlamaConfig(hidden_size=24, num_attention_heads=3, head_dim=8)
    rotary = Rotary(8)
    for first in (0, 40):
        cos, sin = LlamaRotaryEmbedding(config)(query, torch.arange(first, first + 9)[None])
        their_query, their_key = apply_rotary_pos_emb(query, key, cos, sin)
        torch.testing.assert_close(rotary(query, first), their_query, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(rotary(key, first), their_key, rtol=1e-5, atol=1e-5)


def test_rotary_products_depend_on_the_distance_alone():
    rotary = Rotary(8)
    query, key = torch.randn(1, 8, dtype=torch.float64), torch.randn(1, 8, dtype=torch.float64)

    def product(i, j):
        return (rotary(query, first=i) * rotary(key, first=j)).sum()

    torch.testing.assert_close(product(3, 1), product(103, 101), **EXACT)
    torch.testing.assert_close(product(0, 7), product(20, 27), **EXACT)
    assert abs(product(3, 1) - product(1, 3)) > 1e-3


def test_rotary_keeps_lengths_and_leaves_position_zero_alone():
    vectors = torch.randn(2, 6, 4, dtype=torch.float64)
    turned = Rotary(4)(vectors)
    torch.testing.assert_close(turned.norm(dim=-1), vectors.norm(dim=-1), **EXACT)
    assert torch.equal(turned[:, 0], vectors[:, 0])


# Relative


@pytest.mark.parametrize("both_ways", [True, False])
@pytest.mark.parametrize(("buckets", "farthest"), [(32, 128), (8, 20)])
def test_relative_bias_is_that_of_t5(both_ways, buckets, farthest):
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    config = T5Config(
        num_heads=3,
        d_kv=2,
        d_model=6,
        is_decoder=not both_ways,
        relative_attention_num_buckets=buckets,
        relative_attention_max_distance=farthest,
    )
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    ours = RelativeBias(3, buckets, farthest, both_ways)
    torch.nn.init.normal_(theirs.relative_attention_bias.weight)
    ours.table.data.copy_(theirs.relative_attention_bias.weight)
    for queries, keys in [(5, 7), (1, 1), (300, 300), (40, 200)]:
        assert torch.equal(ours(queries, keys), theirs.compute_bias(queries, keys)[0])


def test_relative_bias_from_a_later_query_is_those_rows():
    bias = RelativeBias(2)
    assert torch.equal(bias(1, 9, first_query=6), bias(9, 9)[:, 6:7])


def test_relative_bias_depends_on_the_distance_alone_and_knows_its_direction():
    bias = RelativeBias(2)(20, 20)
    assert torch.equal(bias[:, 1:, 1:], bias[:, :-1, :-1])
    assert not torch.equal(bias, bias.transpose(1, 2))
    causal = RelativeBias(2, both_ways=False)(20, 20)
    future = torch.ones(20, 20).triu().bool()
    assert torch.equal(causal[0][future], causal[0, 0, 0].expand(int(future.sum())))


def test_around_2d_falls_with_the_squared_distance_from_the_place_of_the_head():
    around = Around2d(6, spacing=2.0, sharpness=0.5).double()
    assert around.centre.tolist() == [[-1, -2], [-1, 0], [-1, 2], [1, -2], [1, 0], [1, 2]]
    bias = around(3, 4)
    for head, query, key in np.ndindex(6, 12, 12):
        offset = np.subtract(np.divmod(key, 4), np.divmod(query, 4))
        expected = -0.5 * np.sum((offset - around.centre[head].detach().numpy()) ** 2)
        assert bias[head, query, key].item() == pytest.approx(expected, abs=1e-12)


def test_nine_sharp_heads_around_a_cell_are_a_convolution():
    """Cordonnier 2020, theorem 1: what head h does to its values is what a 3 × 3 kernel does at the offset of h."""
    torch.manual_seed(0)
    layer = MultiHead(18, 9).double()
    around = Around2d(9, spacing=1.0, sharpness=200.0).double()
    image = torch.randn(2, 18, 6, 7).double()
    seen = layer(image.flatten(2).transpose(1, 2), bias=around(6, 7)[None]).context.transpose(1, 2).unflatten(2, (6, 7))
    by_head = [  # W_output of a head times its W_value: (18, 18)
        out @ value
        for out, value in zip(layer.output.weight.split(2, dim=1), layer.value.weight.split(2, dim=0), strict=True)
    ]
    kernel = torch.stack(by_head, dim=-1).unflatten(-1, (3, 3))
    expected = torch.nn.functional.conv2d(image, kernel)
    torch.testing.assert_close(seen[:, :, 1:-1, 1:-1], expected, atol=1e-10, rtol=0)


def test_a_table_kept_from_predicting_is_fit_for_training_and_for_another_dtype():
    positions = Sinusoidal(6)
    with torch.inference_mode():
        first = positions(3).clone()
    weight = torch.ones(6, requires_grad=True)
    (positions(3) * weight).sum().backward()
    torch.testing.assert_close(weight.grad, first.sum(0))
    longer = positions(300)
    assert positions(1, 300).data_ptr() - positions(1, 299).data_ptr() == 6 * 4  # rows of one table, not a new one each
    assert torch.equal(longer[:3], positions(3))
    assert torch.equal(positions(2, first=297), longer[297:299])
    assert positions.double()(3).dtype == torch.float64
