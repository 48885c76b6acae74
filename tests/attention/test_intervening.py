"""Changed attention: the weights are those asked for, the rest follows from them, and afterwards nothing is left."""

import threading

import pytest
import torch
from torch import nn

from saccade.attention import Additive, Attend, Dot, MultiHead, record_attention
from saccade.attention.intervening import change_attention, cut, onto


class Reader(nn.Module):
    """A look with many heads, then one without heads over the same keys."""

    def __init__(self):
        super().__init__()
        self.many = MultiHead(8, 4)
        self.one = Attend(Additive(8))

    def forward(self, query, key):
        return self.one(query + self.many(query, key).context, key).context


@pytest.fixture
def reader():
    torch.manual_seed(0)
    return Reader().eval()


@pytest.fixture
def given():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(2, 9, 8, generator=generator), torch.randn(2, 11, 8, generator=generator)


def test_all_weight_lies_where_it_was_asked_for(reader, given):
    with (
        change_attention(reader, {"many": onto([2, 5], heads=[1]), "one": onto([4])}),
        record_attention(reader) as seen,
    ):
        context = reader(*given)
    (many,), (one,) = seen["many"], seen["one"]
    expected = torch.zeros(2, 9, 11)
    expected[..., [2, 5]] = 0.5
    assert torch.equal(many[:, 1], expected)
    assert torch.equal(one, torch.zeros(2, 9, 11).index_fill(2, torch.tensor([4]), 1.0))
    torch.testing.assert_close(context, given[1][:, 4:5].expand(2, 9, 8))


def test_heads_that_nobody_named_keep_their_weights(reader, given):
    with record_attention(reader) as before:
        reader(*given)
    with change_attention(reader, {"many": onto([0], heads=[2])}), record_attention(reader) as after:
        reader(*given)
    kept = [0, 1, 3]
    torch.testing.assert_close(after["many"][0][:, kept], before["many"][0][:, kept], rtol=0, atol=1e-6)
    assert not torch.allclose(after["many"][0][:, 2], before["many"][0][:, 2])


@pytest.mark.parametrize("heads", [[0], [3], [1, 2]])
def test_a_cut_head_is_a_zero_in_its_part_of_the_output_projection(reader, given, heads):
    with change_attention(reader, {"many": cut(heads)}):
        cut_off = reader.many(*given).context
    with torch.no_grad():
        for head in heads:
            reader.many.output.weight[:, 2 * head : 2 * head + 2] = 0
    torch.testing.assert_close(cut_off, reader.many(*given).context, rtol=0, atol=1e-6)


def test_a_cut_attention_without_heads_passes_nothing_on(reader, given):
    with change_attention(reader, {"one": cut([0])}):
        assert torch.equal(reader(*given), torch.zeros(2, 9, 8))


def test_no_change_gives_the_same_bits(reader, given):
    plain = reader(*given)
    with change_attention(reader, {}):
        assert torch.equal(reader(*given), plain)
    with change_attention(reader, {"one": lambda weights: weights}):
        assert torch.equal(reader(*given), plain)


def test_changes_within_changes_follow_each_other(reader, given):
    with change_attention(reader, {"one": onto([3])}), change_attention(reader, {"one": lambda weights: weights / 2}):
        torch.testing.assert_close(reader(*given), given[1][:, 3:4].expand(2, 9, 8) / 2)


def test_nothing_is_left_afterwards_even_after_an_error(reader, given):
    plain, names = reader(*given), list(reader.state_dict())
    own = [reader.many.selection, reader.one.selection]

    def fail():
        with change_attention(reader, {"many": cut([0]), "one": onto([1])}):
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        fail()
    assert [reader.many.selection, reader.one.selection] == own
    assert list(reader.state_dict()) == names
    assert torch.equal(reader(*given), plain)


def test_another_thread_is_not_changed(reader, given):
    plain, heard = reader(*given), []
    with change_attention(reader, {"one": onto([0])}):
        thread = threading.Thread(target=lambda: heard.append(reader(*given)))
        thread.start()
        thread.join()
    assert torch.equal(heard[0], plain)


def test_two_threads_change_one_after_the_other_and_leave_nothing(reader, given):
    own, inside, go_on, heard = reader.one.selection, threading.Event(), threading.Event(), []

    def first():
        with change_attention(reader, {"one": onto([0])}):
            inside.set()
            go_on.wait(10)

    def second():
        inside.wait(10)
        go_on_soon.start()
        with change_attention(reader, {"one": onto([3])}):
            heard.append(reader(*given))

    go_on_soon = threading.Timer(0.1, go_on.set)
    threads = [threading.Thread(target=work) for work in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.testing.assert_close(heard[0], given[1][:, 3:4].expand(2, 9, 8))
    assert reader.one.selection is own


def test_a_name_that_is_not_there_is_said_with_those_that_are(reader):
    with (
        pytest.raises(KeyError, match="no attention module is called 'few'; the model has: many, one"),
        change_attention(reader, {"few": cut([0])}),
    ):
        pass


def test_the_chunked_route_is_changed_too():
    torch.manual_seed(0)
    attend, query, key = Attend(Additive(8), route="chunked"), torch.randn(1, 6, 8), torch.randn(1, 5, 8)
    with change_attention(attend, {"": onto([2])}), record_attention(attend) as seen:
        context = attend(query, key).context
    torch.testing.assert_close(context, key[:, 2:3].expand(1, 6, 8))
    assert seen[""][0][..., 2].eq(1).all()


def test_a_fused_attention_leaves_its_kernel_for_the_while():
    torch.manual_seed(0)
    attend, query, key = Attend(Dot(8)).eval(), torch.randn(1, 20, 8), torch.randn(1, 20, 8)
    with torch.no_grad(), change_attention(attend, {"": onto([7])}):
        torch.testing.assert_close(attend(query, key).context, key[:, 7:8].expand(1, 20, 8))
