"""Replaying what was decoded."""

import torch

import saccade as library
from saccade.data.text.tokenizer import UNK
from saccade.decoding import Hypothesis
from saccade.tasks.translation.look import look, replay
from saccade.tasks.translation.task import Translation


def test_what_is_replayed_are_the_tokens_that_were_chosen_and_not_their_text(tiny_run, monkeypatch):
    """The text of an unknown word is "<unk>", which read again is no longer one token."""
    task = library.load(tiny_run).task
    one, two = task.vocabularies.target.encode("1 2")
    chosen = Hypothesis([one, UNK, two], 0.0, 0.0, True, [])
    monkeypatch.setattr(task, "predict", lambda sources: [Translation(sources[0], "1 <unk> 2", [chosen], [])])
    (attention,) = look(task, "1 2 3")
    assert list(attention.queries.words) == ["1", "<unk>", "2", "<end>"]
    assert attention.weights.shape == (1, 4, 4)


def test_sentences_of_a_batch_are_replayed_as_each_alone(tiny_run):
    task = library.load(tiny_run).task
    pairs = [("1 2 3", "3 2 1"), ("4", "4"), ("5 6 7 8 9", "9 8")]
    for (together,), pair in zip(replay(task, pairs), pairs, strict=True):
        ((alone,),) = replay(task, [pair])
        torch.testing.assert_close(torch.from_numpy(together.weights), torch.from_numpy(alone.weights))
