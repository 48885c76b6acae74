import pytest
import torch

from saccade.decoding import greedy_search, score_targets
from saccade.errors import ConfigError


def test_greedy_search_takes_the_most_probable_token_at_every_step(table_stepper):
    stepper = table_stepper(0)
    hypotheses = greedy_search(*stepper.inputs(*range(20)), max_length=6, **stepper.special)
    assert {hypothesis.finished for hypothesis in hypotheses} == {True, False}
    for source, hypothesis in enumerate(hypotheses):
        last, written = stepper.begin, []
        while len(written) < 6 and last != stepper.eos:
            choices = [token for token in range(6) if token != stepper.pad]
            last = max(choices, key=lambda token: stepper.log_prob(source, len(written), last, token))
            written.append(last)
        assert hypothesis.tokens == [token for token in written if token != stepper.eos]
        assert hypothesis.finished == (stepper.eos in written)
        assert (
            hypothesis.score
            == hypothesis.log_prob
            == pytest.approx(stepper.log_prob_of(source, tuple(written)), abs=1e-5)
        )
        assert len(hypothesis.token_log_probs) == len(written)


def test_eos_at_once_gives_an_empty_greedy_output(table_stepper):
    stepper = table_stepper(4).only_eos(source=0)
    [hypotheses] = greedy_search(*stepper.inputs(0), max_length=5, **stepper.special)
    assert (hypotheses.tokens, hypotheses.log_prob, hypotheses.finished) == ([], 0.0, True)


def test_each_sentence_has_its_own_limit_and_leaves_when_it_is_done(table_stepper):
    stepper = table_stepper(1).without_eos()
    hypotheses = greedy_search(*stepper.inputs(0, 1, 2), max_length=torch.tensor([3, 1, 5]), **stepper.special)
    assert [len(hypothesis.tokens) for hypothesis in hypotheses] == [3, 1, 5]
    assert not any(hypothesis.finished for hypothesis in hypotheses)
    assert stepper.steps == [3, 2, 2, 1, 1]


def test_pad_is_never_written_by_greedy_search(table_stepper):
    stepper = table_stepper(6)
    stepper.table[..., stepper.pad] = 20.0
    hypotheses = greedy_search(*stepper.inputs(*range(9)), max_length=5, **stepper.special)
    assert all(stepper.pad not in hypothesis.tokens for hypothesis in hypotheses)


@pytest.mark.parametrize("max_length", [0, torch.tensor([4, -1])])
def test_a_limit_without_room_is_refused(table_stepper, max_length):
    stepper = table_stepper()
    with pytest.raises(ConfigError, match="max_length is"):
        greedy_search(*stepper.inputs(0, 1), max_length=max_length, **stepper.special)


def test_one_token_cannot_be_both_eos_and_pad(table_stepper):
    stepper = table_stepper()
    with pytest.raises(ConfigError, match="both token 2"):
        greedy_search(*stepper.inputs(0), max_length=3, eos=2, pad=2)


def test_no_sentences_give_no_greedy_outputs(table_stepper):
    stepper = table_stepper()
    assert greedy_search(*stepper.inputs(), max_length=3, **stepper.special) == []


def test_scoring_gives_the_log_probability_of_every_token_and_the_end(table_stepper):
    stepper = table_stepper(2)
    targets = [[3, 4, 5], [], [5, 5]]
    padded = torch.tensor([[*target, *[stepper.pad] * (3 - len(target))] for target in targets])
    scored = score_targets(*stepper.inputs(0, 1, 2), padded, torch.tensor([3, 0, 2]), eos=stepper.eos)
    for source, (target, hypothesis) in enumerate(zip(targets, scored, strict=True)):
        path = [stepper.begin, *target, stepper.eos]
        expected = [stepper.log_prob(source, at, path[at], path[at + 1]) for at in range(len(path) - 1)]
        assert hypothesis.tokens == target
        assert hypothesis.finished
        assert hypothesis.token_log_probs == pytest.approx(expected, abs=1e-5)
        assert hypothesis.score == hypothesis.log_prob == sum(hypothesis.token_log_probs)


def test_a_target_that_the_model_rules_out_gets_a_finite_score(table_stepper):
    stepper = table_stepper(2).without_eos()
    [scored] = score_targets(*stepper.inputs(0), torch.tensor([[3]]), torch.tensor([1]), eos=stepper.eos)
    assert scored.token_log_probs[1] == -1e4


def test_a_target_with_eos_inside_is_refused(table_stepper):
    stepper = table_stepper(2)
    with pytest.raises(ConfigError, match="contains eos"):
        score_targets(*stepper.inputs(0), torch.tensor([[3, stepper.eos]]), torch.tensor([2]), eos=stepper.eos)
