"""Decoding from a cache against reading whole sentences, whatever becomes of the hypotheses on the way."""

import pytest
import torch

from saccade.models.shapes import Shapes
from saccade.models.transformer import Config, build


@pytest.fixture(params=["scaled-dot", "additive", "location"])
def model(request):
    torch.manual_seed(0)
    config = Config(size="tiny", layers=2, width=16, heads=2, feed_forward=24, score=request.param, positions="rotary")
    return build(config, Shapes(source_words=30, target_words=30)).eval()


def encoded(model, sentences=3):
    lengths = torch.tensor([7, 5, 6][:sentences])
    return model.encode(torch.randint(4, 30, (sentences, 7)), lengths)


@torch.no_grad()
def check(model, memory, steps, selections):
    """Steps with random words, rows selected before some of them; at the end all logits are those of the words read at once."""
    state, sentence = model.start(memory), torch.arange(len(memory.annotations))
    words = torch.empty(len(sentence), 0, dtype=torch.long)
    for number in range(steps):
        if number in selections:
            rows = torch.tensor(selections[number])
            state, sentence, words = model.select(state, rows), sentence[rows], words[rows]
        token = torch.randint(4, 30, (len(sentence),))
        words = torch.cat((words, token[:, None]), 1)
        logits, state = model.step(token, state)
        own = type(memory)(memory.annotations[sentence], memory.visible[sentence])
        expected = model.output(model.read(own, words)[0][:, -1])
        torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)


def test_hypotheses_side_by_side_left_out_and_reordered(model):
    beams = [0, 0, 1, 1, 2, 2]
    check(model, encoded(model), 6, {1: beams, 2: [1, 0, 2, 2, 5, 4], 3: [2, 3, 4, 5], 4: [3, 3]})


def test_sentences_with_unequal_numbers_of_hypotheses_and_in_any_order(model):
    check(model, encoded(model), 6, {1: [2, 0, 0, 1], 3: [3, 0, 3, 1], 5: [1]})


def test_more_steps_than_there_was_room_for(model):
    check(model, encoded(model, 2), 40, {1: [0, 0, 1, 1], 20: [1, 0, 3, 3]})


@torch.no_grad()
def test_a_state_stays_what_it_was_when_somebody_goes_on_from_it(model):
    state = model.start(encoded(model, 2))
    for _ in range(3):
        _, state = model.step(torch.tensor([5, 6]), state)
    once, after_once = model.step(torch.tensor([7, 8]), state)
    other, _ = model.step(torch.tensor([9, 10]), state)
    again, _ = model.step(torch.tensor([7, 8]), state)
    assert torch.equal(once, again)
    assert not torch.equal(once, other)
    following, _ = model.step(torch.tensor([11, 12]), after_once)
    expected, _ = model.step(torch.tensor([11, 12]), model.step(torch.tensor([7, 8]), state)[1])
    assert torch.equal(following, expected)
