"""The Transformer against torch.nn.Transformer and a Hugging Face Marian model with the same weights, and against its own steps."""

import itertools

import pytest
import torch
from torch import nn
from transformers import MarianConfig, MarianMTModel

from saccade.attention import all_scores, record_attention
from saccade.layers.dropout import Dropout
from saccade.models.transformer import Config, Transformer

NORMS, POSITIONS, ACTIVATIONS = ("pre", "post"), ("sinusoidal", "learned", "rotary"), ("relu", "gelu", "gated")


def make(dtype=torch.float64, **more) -> Transformer:
    torch.manual_seed(0)
    sizes = {"layers": 2, "width": 16, "heads": 2, "feed_forward": 24} | more
    if "learned" in more.values() or "location" in more.values():
        sizes["max_length"] = 32
    return Transformer(Config(**sizes), source_words=11, target_words=13).to(dtype).eval()


def a_batch():
    torch.manual_seed(1)
    lengths = torch.tensor([7, 3, 5])
    source = torch.randint(4, 11, (3, 7))
    source[torch.arange(7) >= lengths[:, None]] = 0
    return source, lengths, torch.randint(4, 13, (3, 6))


def logits(model, source, lengths, target):
    return model.output(model.read(model.encode(source, lengths), target)[0])


def copy_attention(ours, theirs: nn.MultiheadAttention) -> None:
    ours.load_state_dict(type(ours).from_torch(theirs).state_dict())


def copy_rest(ours, theirs, norms) -> None:
    ours.feed_forward.expand.load_state_dict(theirs.linear1.state_dict())
    ours.feed_forward.contract.load_state_dict(theirs.linear2.state_dict())
    for around, norm in zip(norms, (theirs.norm1, theirs.norm2, getattr(theirs, "norm3", None)), strict=False):
        around.norm.load_state_dict(norm.state_dict())


@pytest.mark.parametrize(("norm", "activation"), itertools.product(NORMS, ("relu", "gelu")))
def test_equals_torchs_transformer_with_its_weights(norm, activation):
    ours = make(norm=norm, activation=activation)
    theirs = (
        nn.Transformer(16, 2, 2, 2, 24, 0.0, activation, batch_first=True, norm_first=norm == "pre").double().eval()
    )
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.3)
    for mine, layer in zip(ours.encoder.layers, theirs.encoder.layers, strict=True):
        copy_attention(mine.self_attention, layer.self_attn)
        copy_rest(mine, layer, (mine.around_self_attention, mine.around_feed_forward))
    for mine, layer in zip(ours.decoder.layers, theirs.decoder.layers, strict=True):
        copy_attention(mine.self_attention, layer.self_attn)
        copy_attention(mine.cross_attention, layer.multihead_attn)
        copy_rest(mine, layer, (mine.around_self_attention, mine.around_cross_attention, mine.around_feed_forward))
    # torch norms the end of both stacks even in post-norm, where the paper does not
    for mine, stack in ((ours.encoder, theirs.encoder), (ours.decoder, theirs.decoder)):
        if norm == "pre":
            mine.norm.load_state_dict(stack.norm.state_dict())
        else:
            stack.norm = None

    source, lengths, target = a_batch()
    x = ours._embed(ours.source_embedding(source), ours.source_positions, 0)
    y = ours._embed(ours.target_embedding(target), ours.target_positions, 0)
    hidden = torch.arange(7) >= lengths[:, None]
    future = nn.Transformer.generate_square_subsequent_mask(6, dtype=torch.float64)
    expected = theirs(x, y, tgt_mask=future, src_key_padding_mask=hidden, memory_key_padding_mask=hidden)
    torch.testing.assert_close(ours.read(ours.encode(source, lengths), target)[0], expected, atol=1e-10, rtol=0)


def test_equals_a_hugging_face_marian_model_with_its_weights(tmp_path):
    from transformers import MarianConfig, MarianMTModel

    torch.manual_seed(2)
    config = MarianConfig(
        vocab_size=13, d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=24, decoder_ffn_dim=24, activation_function="relu", scale_embedding=True, pad_token_id=0, eos_token_id=2,
        decoder_start_token_id=1, forced_eos_token_id=None, max_position_embeddings=32, dropout=0.0, share_encoder_decoder_embeddings=True,
    )  # fmt: skip
    MarianMTModel(config).save_pretrained(tmp_path)
    theirs = MarianMTModel.from_pretrained(tmp_path, local_files_only=True).double().eval()
    for name, parameter in theirs.named_parameters():
        if "embed_positions" not in name:
            nn.init.normal_(parameter, std=0.3)
    ours = make(norm="post", positions="learned", shared=True)
    ours = Transformer(
        Config(
            layers=2, width=16, heads=2, feed_forward=24, max_length=32, norm="post", positions="learned", shared=True
        ),
        13,
        13,
    )
    ours = ours.double().eval()
    take_marian_weights(ours, theirs)

    source, lengths, target = a_batch()
    seen = (torch.arange(7) < lengths[:, None]).long()
    expected = theirs(input_ids=source, attention_mask=seen, decoder_input_ids=target).logits
    torch.testing.assert_close(logits(ours, source, lengths, target), expected, atol=1e-5, rtol=0)


def take_marian_weights(ours: Transformer, theirs) -> None:
    """Marian's layout is ours under other names; its sinusoids put all sines before all cosines, so they are taken as a table."""
    names = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "output"}
    with torch.no_grad():
        ours.target_embedding.weight.copy_(theirs.model.shared.weight)
        ours.output.bias.copy_(theirs.final_logits_bias[0])
        for positions, stack in (
            (ours.source_positions, theirs.model.encoder),
            (ours.target_positions, theirs.model.decoder),
        ):
            positions.table.copy_(stack.embed_positions.weight)
    for stack, other in ((ours.encoder, theirs.model.encoder), (ours.decoder, theirs.model.decoder)):
        for mine, layer in zip(stack.layers, other.layers, strict=True):
            attentions = [
                (mine.self_attention, layer.self_attn, mine.around_self_attention, layer.self_attn_layer_norm)
            ]
            if hasattr(layer, "encoder_attn"):
                attentions.append(
                    (
                        mine.cross_attention,
                        layer.encoder_attn,
                        mine.around_cross_attention,
                        layer.encoder_attn_layer_norm,
                    )
                )
            for attention, source, around, norm in attentions:
                for theirs_name, our_name in names.items():
                    getattr(attention, our_name).load_state_dict(getattr(source, theirs_name).state_dict())
                around.norm.load_state_dict(norm.state_dict())
            mine.feed_forward.expand.load_state_dict(layer.fc1.state_dict())
            mine.feed_forward.contract.load_state_dict(layer.fc2.state_dict())
            mine.around_feed_forward.norm.load_state_dict(layer.final_layer_norm.state_dict())


@pytest.mark.parametrize(("norm", "positions", "activation"), itertools.product(NORMS, POSITIONS, ACTIVATIONS))
def test_cached_steps_give_what_the_whole_gives(norm, positions, activation):
    model = make(norm=norm, positions=positions, activation=activation)
    source, lengths, target = a_batch()
    state, steps = model.start(model.encode(source, lengths)), []
    for token in target.unbind(1):
        out, state = model.step(token, state)
        steps.append(out)
    torch.testing.assert_close(torch.stack(steps, 1), logits(model, source, lengths, target), atol=1e-10, rtol=0)


@pytest.mark.parametrize("score", all_scores())
def test_any_score_can_stand_in_for_the_scaled_dot(score):
    model = make(score=score)
    source, lengths, target = a_batch()
    changed = target.clone()
    changed[:, 4:] = 4 + (changed[:, 4:] - 3) % 9
    before, after = (logits(model, source, lengths, words) for words in (target, changed))
    torch.testing.assert_close(after[:, :4], before[:, :4], atol=0, rtol=0)
    assert not torch.equal(after[:, 4:], before[:, 4:])


@pytest.mark.parametrize("positions", POSITIONS)
def test_padding_changes_nothing(positions):
    model = make(positions=positions)
    source, lengths, target = a_batch()
    together = logits(model, source, lengths, target)
    for row, length in enumerate(lengths):
        alone = logits(model, source[row : row + 1, :length], lengths[row : row + 1], target[row : row + 1])
        torch.testing.assert_close(together[row : row + 1], alone, atol=1e-12, rtol=0)


def test_rows_can_be_taken_while_decoding():
    model = make()
    source, lengths, target = a_batch()
    _, state = model.step(target[:, 0], model.start(model.encode(source, lengths)))
    rows = torch.tensor([2, 0, 0])
    picked, _ = model.step(target[rows, 1], model.select(state, rows))
    whole, _ = model.step(target[:, 1], state)
    torch.testing.assert_close(picked, whole[rows], atol=1e-12, rtol=0)


def test_attention_is_recorded_by_layer_and_changes_nothing():
    model = make()
    batch = a_batch()
    unwatched = logits(model, *batch)
    with record_attention(model, only="decoder.*cross*") as maps:
        watched = logits(model, *batch)
    assert torch.equal(watched, unwatched)
    assert list(maps) == ["decoder.layers.0.cross_attention", "decoder.layers.1.cross_attention"]
    assert maps["decoder.layers.1.cross_attention"][0].shape == (3, 2, 6, 7)


def test_sizes_by_name_and_by_number():
    assert Config(size="base").sizes.width == 512
    assert Config(size="tiny", layers=1).sizes.layers == 1
    with pytest.raises(ValueError, match="multiple of"):
        Config(width=30, heads=4)


def test_shared_embeddings_are_one_tensor():
    model = make(shared=True)
    assert model.source_embedding.weight is model.target_embedding.weight is model.output.weight


def test_hidden_units_are_dropped_at_a_rate_of_their_own_where_one_is_given():
    for given, expected in ((None, 0.3), (0.0, 0.0), (0.5, 0.5)):
        model = make(dropout=0.3, feed_forward_dropout=given)
        rates = {name: module.rate for name, module in model.named_modules() if isinstance(module, Dropout)}
        assert {rate for name, rate in rates.items() if ".feed_forward.dropout" in name} == {expected}
        assert {rate for name, rate in rates.items() if ".feed_forward.dropout" not in name} == {0.3}


def test_small_weights_are_those_that_hugging_face_starts_from():
    torch.manual_seed(0)
    model = Transformer(Config(width=64, heads=2, feed_forward=64, layers=1, initial="small"), 500, 400)
    theirs = MarianMTModel(
        MarianConfig(vocab_size=400, d_model=64, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=64, pad_token_id=0)
    )
    for ours, other in (
        (model.encoder.layers[0].self_attention.query, theirs.model.encoder.layers[0].self_attn.q_proj),
        (model.encoder.layers[0].feed_forward.expand, theirs.model.encoder.layers[0].fc1),
        (model.target_embedding, theirs.model.shared),
    ):
        assert ours.weight.std().item() == pytest.approx(other.weight.std().item(), rel=0.1)
    assert not model.target_embedding.weight[0].any()


def packed_and_padded(model, source, lengths, target, target_lengths):
    """Readouts of all words that are no padding, both ways, and the gradients of all weights."""
    inside = torch.arange(target.shape[1]) < target_lengths[:, None]
    wanted = torch.randn(int(target_lengths.sum()), model.output.in_features).to(model.output.weight)
    for readouts in (
        model.read_packed(source, lengths, target, target_lengths),
        model.read(model.encode(source, lengths), target)[0][inside],
    ):
        learned = [weights for weights in model.parameters() if weights.requires_grad]
        yield readouts, torch.autograd.grad((readouts * wanted).sum(), learned, allow_unused=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("norm", "positions"), itertools.product(NORMS, POSITIONS))
def test_sentences_packed_without_padding_are_read_as_padded_ones(norm, positions, dtype):
    model = make(dtype, norm=norm, positions=positions)
    source, lengths, target = a_batch()
    packed, padded = packed_and_padded(model, source, lengths, target, torch.tensor([2, 6, 5]))
    tolerance = {"rtol": 1e-10, "atol": 1e-10} if dtype is torch.float64 else {"rtol": 1e-4, "atol": 1e-4}
    torch.testing.assert_close(packed[0], padded[0], **tolerance)
    for mine, other in zip(packed[1], padded[1], strict=True):
        assert (mine is None) == (other is None)
        if mine is not None:
            torch.testing.assert_close(mine, other, **tolerance)


@pytest.mark.parametrize("score", sorted(all_scores()))
def test_every_score_reads_packed_sentences(score):
    model = make(score=score)
    packed, padded = packed_and_padded(model, *a_batch(), torch.tensor([1, 6, 3]))
    torch.testing.assert_close(packed[0], padded[0], rtol=1e-10, atol=1e-10)


def test_packed_sentences_are_recorded_as_padded_ones():
    model = make(torch.float32)
    source, lengths, target = a_batch()
    with record_attention(model) as padded:
        model.read(model.encode(source, lengths), target)
    with record_attention(model) as packed:
        model.read_packed(source, lengths, target, torch.full((3,), 6))
    assert list(packed) == list(padded)
    for name in packed:
        inside = (
            torch.arange(padded[name][0].shape[2]) < (lengths if "encoder" in name else torch.full((3,), 6))[:, None]
        )
        torch.testing.assert_close(
            packed[name][0].transpose(1, 2)[inside], padded[name][0].transpose(1, 2)[inside], rtol=1e-4, atol=1e-5
        )


def test_hooks_are_called_for_packed_sentences_too():
    model = make(torch.float32)
    source, lengths, target = a_batch()
    called = []
    for name, module in model.named_modules():
        module.register_forward_hook(lambda *_, name=name: called.append(name))
    model.read(model.encode(source, lengths), target)
    padded, called[:] = sorted(called), []
    model.read_packed(source, lengths, target, torch.full((3,), 6))
    assert sorted(called) == padded


def test_packed_gradients_are_the_same_every_time_in_many_threads():
    model = make(torch.float32, positions="learned")
    source, lengths = torch.randint(4, 11, (200, 9)), torch.randint(1, 10, (200,))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        found = []
        for _ in range(3):
            readouts = model.read_packed(source, lengths, source, lengths)
            found.append(torch.autograd.grad(readouts.sin().sum(), model.source_positions.table)[0])
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(each, found[0]) for each in found)
