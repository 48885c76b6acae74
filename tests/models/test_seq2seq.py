"""The recurrent encoder-decoder in both orders, against torch's own cells and against its own step-by-step self."""

import itertools

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from saccade.attention import all_scores, all_selections, record_attention
from saccade.data.text.tokenizer import BOS
from saccade.layers.recurrent import GRUCell, LSTMCell, RecurrentEncoder
from saccade.models.seq2seq import Config, Seq2Seq

SCORES = ["none", *all_scores()]
ORDERS = [("bahdanau", True), ("luong", False), ("luong", True)]


def make(attention="additive", selection="soft", order="bahdanau", input_feeding=True, **more) -> Seq2Seq:
    torch.manual_seed(0)
    if selection.startswith("local"):
        more["reach"] = 2
    config = Config(
        attention=attention,
        selection=selection,
        order=order,
        input_feeding=input_feeding,
        embedding=6,
        hidden=8,
        **more,
    )
    return Seq2Seq(config, source_words=11, target_words=13).double().eval()


def a_batch():
    torch.manual_seed(1)
    lengths = torch.tensor([7, 3, 5])
    source = torch.randint(4, 11, (3, 7))
    source[torch.arange(7) >= lengths[:, None]] = 0
    return source, lengths, torch.randint(4, 13, (3, 6))


def logits(model, source, lengths, target):
    return model.output(model.read(model.encode(source, lengths), target)[0])


@pytest.mark.parametrize(("ours", "theirs"), [(GRUCell, nn.GRUCell), (LSTMCell, nn.LSTMCell)])
def test_cells_equal_torchs(ours, theirs):
    torch.manual_seed(0)
    reference = theirs(5, 4).double()
    cell = ours(5, 4).double()
    cell.load_state_dict(reference.state_dict())
    x, h = torch.randn(3, 5).double(), torch.randn(3, 4).double()
    state = cell.start(h)
    expected = reference(x, h) if ours is GRUCell else torch.cat(reference(x, (h, torch.zeros_like(h))), -1)
    torch.testing.assert_close(cell(cell.gates(x), state), expected, atol=1e-12, rtol=0)
    torch.testing.assert_close(
        cell(cell.gates(x[:, :2]) + cell.more_gates(x.shape[1] - 2)(x[:, 2:]), state), expected, atol=1e-12, rtol=0
    )


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_a_cell_unrolled_equals_torchs_whole_layer(cell):
    torch.manual_seed(0)
    whole = (nn.GRU if cell == "gru" else nn.LSTM)(5, 4, batch_first=True).double()
    ours = (GRUCell if cell == "gru" else LSTMCell)(5, 4).double()
    ours.load_state_dict({name.removesuffix("_l0"): tensor for name, tensor in whole.state_dict().items()})
    x = torch.randn(2, 9, 5).double()
    state, outputs = ours.start(torch.zeros(2, 4).double()), []
    for gates in ours.gates(x).unbind(1):
        state = ours(gates, state)
        outputs.append(ours.output(state))
    torch.testing.assert_close(torch.stack(outputs, 1), whole(x)[0], atol=1e-12, rtol=0)


@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_the_encoder_equals_torchs_own_network_over_packed_sequences(cell, dtype, close):
    torch.manual_seed(0)
    encoder, lengths = RecurrentEncoder(cell, 5, 8, layers=2, dropout=0.0).to(dtype), torch.tensor([3, 6, 1])
    x = torch.randn(3, 6, 5, dtype=dtype).requires_grad_()
    outputs, last = encoder.network(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
    h = last[0] if cell == "lstm" else last
    expected = pad_packed_sequence(outputs, batch_first=True)[0], torch.cat((h[-2], h[-1]), dim=-1)
    got, inputs = encoder(x, lengths), (x, *encoder.parameters())
    weights = [torch.randn_like(each) for each in expected]
    gradients = (torch.autograd.grad(each, inputs, weights) for each in (got, expected))
    for mine, other in zip((*got, *next(gradients)), (*expected, *next(gradients)), strict=True):
        torch.testing.assert_close(mine, other, atol=close, rtol=0)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_whoever_listens_to_the_encoders_network_or_to_a_cell_is_heard(cell):
    model, heard = make("additive", cell=cell), []
    expected = logits(model, *a_batch())
    for part in (model.encoder.network, model.decoder.cells[0]):
        part.register_forward_hook(lambda module, *_: heard.append(module))
    torch.testing.assert_close(logits(model, *a_batch()), expected, atol=1e-10, rtol=0)
    assert {model.encoder.network, model.decoder.cells[0]} == set(heard)


def test_what_stands_in_the_padding_reaches_no_gradient():
    encoder, x = RecurrentEncoder("gru", 5, 8, layers=1, dropout=0.0), torch.randn(2, 3, 5)
    x[1, 2] = torch.nan
    annotations, last = encoder(x, torch.tensor([3, 2]))
    (annotations.sum() + last.sum()).backward()
    assert annotations.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in encoder.parameters())


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_the_encoder_does_not_see_padding(cell):
    torch.manual_seed(0)
    encoder = RecurrentEncoder(cell, 5, 8, layers=2, dropout=0.0).double()
    x = torch.randn(1, 4, 5).double()
    alone, last = encoder(x, torch.tensor([4]))
    padded, last_padded = encoder(torch.cat((x, torch.randn(1, 3, 5).double()), 1), torch.tensor([4]))
    torch.testing.assert_close(padded[:, :4], alone, atol=1e-12, rtol=0)
    torch.testing.assert_close(last_padded, last, atol=1e-12, rtol=0)
    assert (padded[:, 4:] == 0).all()


@pytest.mark.parametrize(("attention", "order"), [("none", ORDERS[0]), *itertools.product(all_scores(), ORDERS)])
def test_steps_give_what_the_whole_gives(attention, order):
    model = make(attention, order=order[0], input_feeding=order[1])
    source, lengths, target = a_batch()
    whole = logits(model, source, lengths, target)
    state, steps = model.start(model.encode(source, lengths)), []
    for token in target.unbind(1):
        out, state = model.step(token, state)
        steps.append(out)
    torch.testing.assert_close(torch.stack(steps, 1), whole, atol=1e-10, rtol=0)


@pytest.mark.parametrize(("selection", "order"), itertools.product(all_selections(), ORDERS))
def test_every_selection_steps_as_it_reads(selection, order):
    model = make(selection=selection, order=order[0], input_feeding=order[1], layers=2, cell="lstm")
    source, lengths, target = a_batch()
    whole = logits(model, source, lengths, target)
    state, steps = model.start(model.encode(source, lengths)), []
    for token in target.unbind(1):
        out, state = model.step(token, state)
        steps.append(out)
    torch.testing.assert_close(torch.stack(steps, 1), whole, atol=1e-10, rtol=0)


@pytest.mark.parametrize("attention", SCORES)
def test_a_later_word_changes_no_earlier_logit(attention):
    model = make(attention)
    source, lengths, target = a_batch()
    changed = target.clone()
    changed[:, 4:] = 4 + (changed[:, 4:] - 3) % 9
    before, after = (logits(model, source, lengths, words) for words in (target, changed))
    torch.testing.assert_close(after[:, :4], before[:, :4], atol=0, rtol=0)
    assert not torch.equal(after[:, 4:], before[:, 4:])


@pytest.mark.parametrize("attention", SCORES)
def test_padding_changes_nothing(attention):
    model = make(attention)
    source, lengths, target = a_batch()
    together = logits(model, source, lengths, target)
    for row, length in enumerate(lengths):
        alone = logits(model, source[row : row + 1, :length], lengths[row : row + 1], target[row : row + 1])
        torch.testing.assert_close(together[row : row + 1], alone, atol=1e-12, rtol=0)


@pytest.mark.parametrize("order", ORDERS)
def test_selected_rows_go_on_as_their_own(order):
    model = make(order=order[0], input_feeding=order[1])
    source, lengths, target = a_batch()
    _, state = model.step(torch.full((3,), BOS), model.start(model.encode(source, lengths)))
    rows = torch.tensor([2, 0, 0])
    picked, _ = model.step(target[rows, 0], model.select(state, rows))
    whole, _ = model.step(target[:, 0], state)
    torch.testing.assert_close(picked, whole[rows], atol=1e-12, rtol=0)


@pytest.mark.parametrize(("selection", "order"), itertools.product(all_selections(), ORDERS))
def test_hard_attention_gives_a_log_probability_per_word_and_the_others_nothing(selection, order):
    model = make(selection=selection, order=order[0], input_feeding=order[1]).train()
    source, lengths, target = a_batch()
    _, log_prob = model.read(model.encode(source, lengths), target)
    assert log_prob.shape == (target.shape if selection == "hard" else ())
    assert (log_prob <= 0).all()


def test_attention_is_recorded_under_its_name_and_changes_nothing():
    model = make()
    source, lengths, target = a_batch()
    unwatched = logits(model, source, lengths, target)
    with record_attention(model) as maps:
        watched = logits(model, source, lengths, target)
    assert torch.equal(watched, unwatched)
    assert list(maps) == ["decoder.attention"]
    weights = maps.joined("decoder.attention")
    assert weights.shape == (3, 6, 7)
    assert (weights[1, :, 3:] == 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 6).double())


def test_without_attention_there_is_nothing_to_record():
    model = make("none")
    with record_attention(model) as maps:
        logits(model, *a_batch())
    assert len(maps) == 0


def test_tied_output_is_the_target_embedding():
    model = make()
    assert model.output.weight is model.target_embedding.weight
    assert make(tied=False).output.weight is not make(tied=False).target_embedding.weight
