"""The captioners: their equations by torch's own parts, steps against the whole, and what they minimise beside the words."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from saccade.attention import record_attention
from saccade.data.image_shape import ImageShape
from saccade.data.text.tokenizer import BOS, UNK
from saccade.models import caption_transformer, show_attend_tell, show_tell
from saccade.models.shapes import Shapes

WORDS = 13
CNN = {"name": "cnn", "cell": 4, "width": 6}
VIT = {"name": "vit", "cell": 4, "width": 8, "layers": 1, "heads": 2}
SMALL = {"embedding": 5, "hidden": 7}
TINY = {"layers": 2, "width": 8, "heads": 2, "feed_forward": 12}
VARIANTS = {
    "none": (show_tell, SMALL | {"encoder": CNN}),
    "soft": (show_attend_tell, SMALL | {"encoder": CNN, "attention": 4}),
    "hard": (show_attend_tell, SMALL | {"encoder": CNN, "attention": 4, "selection": "hard"}),
    "transformer": (caption_transformer, TINY | {"encoder": CNN}),
    "patches": (caption_transformer, TINY | {"encoder": VIT, "tied": False}),
}
every_captioner = pytest.mark.parametrize("name", VARIANTS)


def make(name: str, **more):
    torch.manual_seed(0)
    module, settings = VARIANTS[name]
    return (
        module.build(module.Config(**{**settings, **more}), Shapes(ImageShape(3, 12, 16), target_words=WORDS))
        .double()
        .eval()
    )


def a_batch(rows: int = 3, length: int = 6):
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(rows, 3, 12, 16, generator=generator).double()
    return images, torch.randint(4, WORDS, (rows, length), generator=generator)


def logits(model, images, target):
    return model.word_logits(model.read(model.encode(model.features(images)), target).readouts)


def torch_cell(cell) -> nn.LSTMCell:
    theirs = nn.LSTMCell(cell.input_size, cell.size).double()
    theirs.load_state_dict(cell.state_dict())
    return theirs


@every_captioner
@pytest.mark.parametrize(("rows", "length"), [(3, 6), (1, 1)])
def test_steps_give_what_the_whole_gives(name, rows, length):
    model, (images, target) = make(name), a_batch(rows, length)
    state, steps = model.start(model.encode(model.features(images))), []
    for token in target.unbind(1):
        out, state = model.step(token, state)
        steps.append(out)
    torch.testing.assert_close(torch.stack(steps, 1), logits(model, images, target), atol=1e-10, rtol=0)


@every_captioner
def test_a_later_word_changes_no_earlier_logit(name):
    model, (images, target) = make(name), a_batch()
    changed = target.clone()
    changed[:, 4:] = 4 + (changed[:, 4:] - 3) % (WORDS - 4)
    before, after = (logits(model, images, words) for words in (target, changed))
    torch.testing.assert_close(after[:, :4], before[:, :4], atol=1e-12, rtol=0)
    assert not torch.equal(after[:, 4:], before[:, 4:])


@every_captioner
def test_selected_rows_go_on_as_their_own(name):
    model, (images, target) = make(name), a_batch()
    _, state = model.step(torch.full((3,), BOS), model.start(model.encode(model.features(images))))
    rows = torch.tensor([2, 0, 0])
    picked, _ = model.step(target[rows, 0], model.select(state, rows))
    whole, _ = model.step(target[:, 0], state)
    torch.testing.assert_close(picked, whole[rows], atol=1e-12, rtol=0)


@every_captioner
def test_no_row_depends_on_the_others(name):
    model, (images, target) = make(name), a_batch()
    alone = torch.cat([logits(model, images[row : row + 1], target[row : row + 1]) for row in range(3)])
    torch.testing.assert_close(logits(model, images, target), alone, atol=1e-10, rtol=0)


@every_captioner
def test_the_unknown_word_is_never_written(name):
    model, (images, target) = make(name), a_batch()
    scores = logits(model, images, target)
    assert (scores[..., UNK] == -math.inf).all()
    assert scores[..., :UNK].isfinite().all()
    assert scores[..., UNK + 1 :].isfinite().all()


@every_captioner
def test_being_watched_changes_nothing_and_every_cell_can_be_looked_at(name):
    model, (images, target) = make(name), a_batch()
    unwatched = logits(model, images, target)
    with record_attention(model, "decoder.*") as maps:
        watched = logits(model, images, target)
    assert torch.equal(watched, unwatched)
    over_image = [each for each in maps if "self" not in each]
    layers = ["decoder.layers.0.cross_attention", "decoder.layers.1.cross_attention"]
    assert over_image == {"none": [], "transformer": layers, "patches": layers}.get(name, ["decoder.attention"])
    for each in over_image:
        weights = maps.joined(each)
        assert weights.shape[-2:] == (6, 12)
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    assert model.encode(model.features(images)).visible.shape == (3, 1, 12)


def test_without_attention_it_is_torchs_lstm():
    model, (images, target) = make("none"), a_batch()
    decoder = model.decoder
    annotations = nn.functional.layer_norm(model.features(images), (6,))
    begin = decoder.begin(annotations.mean(1))
    lstm = nn.LSTM(5, 7, batch_first=True).double()
    lstm.load_state_dict({f"{name}_l0": tensor for name, tensor in decoder.cell.state_dict().items()})
    embedded = model.target_embedding(target)
    tops, _ = lstm(embedded, (begin[None, :, :7].contiguous(), begin[None, :, 7:].contiguous()))
    expected = model.output(torch.tanh(embedded + decoder.from_state(tops)))
    torch.testing.assert_close(logits(model, images, target)[..., 4:], expected[..., 4:], atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", ["soft", "hard"])
def test_attending_is_the_papers_equations(name):
    """Word by word and cell by cell, with torch's own cell."""
    model, (images, target) = make(name), a_batch()
    decoder, score = model.decoder, model.decoder.attention.score
    annotations = nn.functional.layer_norm(model.features(images), (6,))
    cell, (h, c) = torch_cell(decoder.cell), decoder.begin(annotations.mean(1)).chunk(2, -1)
    expected = []
    for token in target.unbind(1):
        hidden = [torch.tanh(h @ score.query_weight + annotations[:, i] @ score.key_weight) for i in range(12)]
        alpha = torch.cat([each @ score.v for each in hidden], 1).softmax(1)
        if name == "hard":
            alpha = nn.functional.one_hot(alpha.argmax(1), 12).double()
        seen = sum(alpha[:, i : i + 1] * annotations[:, i] for i in range(12))
        z = torch.sigmoid(decoder.gate(h)) * seen
        word = model.target_embedding(token)
        h, c = cell(torch.cat((word, z), 1), (h, c))
        expected.append(
            model.output(torch.tanh(word + decoder.from_state(h) + z @ decoder.from_context.weight.t()))[..., 4:]
        )
    torch.testing.assert_close(logits(model, images, target)[..., 4:], torch.stack(expected, 1), atol=1e-10, rtol=0)


def test_the_doubly_stochastic_term_is_that_of_a_plain_loop():
    model, (images, target) = make("soft", evenness=0.7), a_batch()
    with record_attention(model) as maps:
        reading = model.read(model.encode(model.features(images)), target)
    alpha = maps.joined("decoder.attention").numpy()
    expected = 0.0
    for caption in alpha:
        expected += 0.7 * len(caption) * np.mean([(1 - caption[:, cell].sum()) ** 2 for cell in range(12)])
    assert float(reading.penalty.detach()) == pytest.approx(expected)
    assert float(make("soft", evenness=0.0).read(model.encode(model.features(images)), target).penalty.detach()) == 0.0


def test_hard_attention_minimises_less_entropy():
    images, target = a_batch()
    readings = []
    for weight in (0.0, 0.5):
        model = make("hard", entropy=weight)
        readings.append(model.read(model.encode(model.features(images)), target))
    soft = make("soft")  # of the same seed, so its first look has the same weights
    with record_attention(soft) as maps:
        soft.read(soft.encode(soft.features(images)), target[:, :1])
        first = maps.joined("decoder.attention")
    one = make("hard", entropy=0.5, evenness=0.0)
    penalty = one.read(one.encode(one.features(images)), target[:, :1]).penalty
    torch.testing.assert_close(penalty, 0.5 * (first * first.log()).sum())
    assert readings[1].penalty < readings[0].penalty


def test_hard_attention_samples_half_of_the_batches_and_is_soft_in_the_others():
    model, (images, target) = make("hard").train(), a_batch()
    encoded = model.encode(model.features(images))
    torch.manual_seed(3)
    sampled = 0
    for _ in range(100):
        with record_attention(model) as maps:
            reading = model.read(encoded, target)
        weights = maps.joined("decoder.attention")
        one_hot = bool(((weights == 0) | (weights == 1)).all())
        assert reading.log_prob.shape == (target.shape if one_hot else ())
        sampled += one_hot
    assert 35 < sampled < 65


def test_predicting_hard_attention_takes_the_likeliest_cell():
    model, (images, target) = make("hard"), a_batch()
    with record_attention(model) as maps:
        model.read(model.encode(model.features(images)), target)
    weights = maps.joined("decoder.attention")
    assert (weights.amax(-1) == 1).all()
    assert torch.equal(logits(model, images, target), logits(model, images, target))  # nothing is drawn


def test_the_baseline_begins_as_a_guess_and_is_kept_with_the_weights():
    model = make("hard")
    assert float(model.baseline) == pytest.approx(math.log(WORDS))
    assert "baseline" in model.state_dict()
    assert "baseline" not in make("soft").state_dict()


def test_patches_and_words_need_no_convolution():
    assert not any(isinstance(module, nn.Conv2d) for module in make("patches").modules())
    assert any(isinstance(module, nn.Conv2d) for module in make("transformer").modules())


def test_tied_output_is_the_embedding():
    for name in ("none", "transformer"):
        model = make(name)
        assert model.output.weight is model.target_embedding.weight
    model = make("patches")
    assert model.output.weight is not model.target_embedding.weight
