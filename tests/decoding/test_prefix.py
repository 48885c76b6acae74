import pytest
import torch

from saccade.decoding import BeamConfig, Prefix, SamplingConfig, beam_search, greedy_search, sample, score_targets
from saccade.errors import ConfigError


def one_prefix(*tokens: int) -> Prefix:
    return Prefix(torch.tensor([tokens], dtype=torch.long), torch.tensor([len(tokens)]))


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_a_wide_beam_finds_the_best_of_all_outputs_that_begin_with_the_prefix(table_stepper, alpha):
    stepper = table_stepper(5, vocabulary=5)
    outputs = {
        tokens: log_prob for tokens, log_prob in stepper.everything(0, max_length=5).items() if tokens[:2] == (3, 4)
    }
    scores = {tokens: log_prob / ((5 + len(tokens) + 1) / 6) ** alpha for tokens, log_prob in outputs.items()}
    config = BeamConfig(size=100, best=5, length_penalty=alpha)
    [hypotheses] = beam_search(*stepper.inputs(0), config, max_length=5, prefix=one_prefix(3, 4), **stepper.special)
    assert [tuple(hypothesis.tokens) for hypothesis in hypotheses] == sorted(
        scores, key=scores.__getitem__, reverse=True
    )[:5]
    assert [hypothesis.score for hypothesis in hypotheses] == pytest.approx(
        sorted(scores.values(), reverse=True)[:5], abs=1e-5
    )


def test_forcing_what_would_be_found_anyway_changes_nothing(table_stepper):
    stepper = table_stepper(10, vocabulary=12)
    inputs = stepper.inputs(*range(20))
    greedy = greedy_search(*inputs, max_length=8, **stepper.special)
    beam = beam_search(*inputs, BeamConfig(size=4), max_length=8, **stepper.special)
    for hypotheses, again in ((greedy, greedy_search), ([best for [best] in beam], None)):
        lengths = torch.tensor([len(hypothesis.tokens) // 2 for hypothesis in hypotheses])
        tokens = torch.tensor([(hypothesis.tokens + [stepper.pad] * 8)[:8] for hypothesis in hypotheses])
        prefix = Prefix(tokens, lengths)
        if again:
            assert greedy_search(*inputs, max_length=8, prefix=prefix, **stepper.special) == hypotheses
            continue
        forced = beam_search(*inputs, BeamConfig(size=4), max_length=8, prefix=prefix, **stepper.special)
        # With its beginning given, the beam can only do as well or better.
        assert all(best.score >= free.score for [best], free in zip(forced, hypotheses, strict=True) if free.finished)


def test_scores_include_the_prefix_as_scoring_does(table_stepper):
    stepper = table_stepper(5)
    prefix = Prefix(torch.tensor([[5, 5, 5], [3, 0, 0], [0, 0, 0]]), torch.tensor([3, 1, 0]))
    inputs = stepper.inputs(0, 1, 2)
    by_beam = beam_search(*inputs, BeamConfig(size=3), max_length=9, prefix=prefix, **stepper.special)
    by_chance = sample(*inputs, SamplingConfig(), max_length=30, seed=4, prefix=prefix, **stepper.special)
    greedy = [[hypothesis] for hypothesis in greedy_search(*inputs, max_length=9, prefix=prefix, **stepper.special)]
    for hypotheses in (by_beam, by_chance, greedy):
        for source, ([hypothesis], start) in enumerate(zip(hypotheses, [[5, 5, 5], [3], []], strict=True)):
            assert hypothesis.tokens[: len(start)] == start
            targets, lengths = torch.tensor([[*hypothesis.tokens, 0]]), torch.tensor([len(hypothesis.tokens)])
            [scored] = score_targets(*stepper.inputs(source), targets, lengths, eos=stepper.eos)
            written = len(hypothesis.token_log_probs)
            assert hypothesis.token_log_probs == scored.token_log_probs[:written]


def test_a_prefix_that_the_model_rules_out_is_written_all_the_same(table_stepper):
    stepper = table_stepper(5)
    stepper.table[..., 4] = -torch.inf
    [[best]] = beam_search(*stepper.inputs(0), BeamConfig(), max_length=6, prefix=one_prefix(3, 4), **stepper.special)
    greedy = greedy_search(*stepper.inputs(0), max_length=6, prefix=one_prefix(3, 4), **stepper.special)[0]
    for hypothesis in (best, greedy):
        assert hypothesis.tokens[:2] == [3, 4]
        assert 4 not in hypothesis.tokens[2:]
        assert hypothesis.token_log_probs[1] == -1e4


def test_a_prefix_longer_than_the_limit_is_written_in_full(table_stepper):
    stepper = table_stepper(5)
    prefix = one_prefix(3, 4, 5)
    [[best]] = beam_search(*stepper.inputs(0), BeamConfig(), max_length=2, prefix=prefix, **stepper.special)
    [greedy] = greedy_search(*stepper.inputs(0), max_length=2, prefix=prefix, **stepper.special)
    assert best == greedy
    assert (best.tokens, best.finished) == ([3, 4, 5], False)


def test_a_shared_prefix_is_stepped_once_per_sentence_and_not_per_hypothesis(table_stepper):
    stepper = table_stepper(5, vocabulary=9).without_eos()
    prefix = Prefix(torch.full((2, 3), 4), torch.tensor([3, 3]))
    beam_search(*stepper.inputs(0, 1), BeamConfig(size=4), max_length=5, prefix=prefix, **stepper.special)
    assert stepper.steps == [2, 2, 2, 2, 8]


@pytest.mark.parametrize("token", [0, 2])
def test_a_prefix_with_eos_or_pad_in_it_is_refused(table_stepper, token):
    stepper = table_stepper()
    with pytest.raises(ConfigError, match=r"eos \(2\) or pad \(0\)"):
        greedy_search(*stepper.inputs(0), max_length=5, prefix=one_prefix(3, token), **stepper.special)


def test_a_prefix_of_the_wrong_shape_is_refused(table_stepper):
    stepper = table_stepper()
    with pytest.raises(ValueError, match="for 2 sentences"):
        greedy_search(*stepper.inputs(0, 1), max_length=5, prefix=one_prefix(3), **stepper.special)
    too_long = Prefix(torch.tensor([[3]]), torch.tensor([2]))
    with pytest.raises(ValueError, match="not between 0 and 1"):
        greedy_search(*stepper.inputs(0), max_length=5, prefix=too_long, **stepper.special)
