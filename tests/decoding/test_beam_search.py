import math

import pytest
import torch

from saccade.decoding import BeamConfig, beam_search, greedy_search, score_targets
from saccade.errors import ConfigError, UserError


def gnmt(log_prob: float, length: int, alpha: float) -> float:
    return log_prob / ((5 + length) / 6) ** alpha


@pytest.mark.parametrize(("alpha", "seed"), [(0.0, 0), (0.6, 1), (2.0, 2), (-1.0, 3)])
def test_a_wide_beam_finds_what_exhaustive_search_finds(table_stepper, seed, alpha):
    stepper = table_stepper(seed, vocabulary=4)
    hypotheses = beam_search(
        *stepper.inputs(0, 1),
        BeamConfig(size=80, best=8, length_penalty=alpha, further=None),
        max_length=5,
        **stepper.special,
    )
    for source in (0, 1):
        outputs = stepper.everything(source, max_length=5)
        scores = {tokens: gnmt(log_prob, len(tokens) + 1, alpha) for tokens, log_prob in outputs.items()}
        expected = sorted(scores, key=scores.__getitem__, reverse=True)[:8]
        assert [tuple(hypothesis.tokens) for hypothesis in hypotheses[source]] == expected
        for hypothesis in hypotheses[source]:
            assert hypothesis.finished
            assert hypothesis.score == pytest.approx(scores[tuple(hypothesis.tokens)], abs=1e-5)
            assert hypothesis.log_prob == pytest.approx(outputs[tuple(hypothesis.tokens)], abs=1e-5)


@pytest.mark.parametrize(("again", "alpha", "winner"), [(0.9, 0.0, 0), (0.9, 3.0, 19), (0.0, -1.0, 1)])
def test_an_output_that_overtakes_later_is_waited_for(table_stepper, again, alpha, winner):
    """Token 3 comes first or not at all, and then again and again with probability `again`; `winner` is the best length."""
    stepper = table_stepper(vocabulary=5)
    stepper.table[:] = -torch.inf
    first = 0.4 if again else 0.7
    stepper.table[0, :, stepper.begin, stepper.eos] = math.log(1 - first)
    stepper.table[0, :, stepper.begin, 3] = math.log(first)
    stepper.table[0, :, 3, 3] = math.log(again) if again else -torch.inf
    stepper.table[0, :, 3, stepper.eos] = math.log(1 - again)
    scores = {0: gnmt(math.log(1 - first), 1, alpha)}
    for length in range(1, 20 if again else 2):
        scores[length] = gnmt(math.log(first * again ** (length - 1) * (1 - again)), length + 1, alpha)
    config = BeamConfig(size=4, length_penalty=alpha, further=None)
    [[best]] = beam_search(*stepper.inputs(0), config, max_length=20, **stepper.special)
    assert len(best.tokens) == winner == max(scores, key=scores.__getitem__)
    assert best.score == pytest.approx(scores[winner], abs=1e-5)


@pytest.mark.parametrize(("further", "length"), [(1, 0), (18, 19), (19, 19), (None, 19)])
def test_an_output_must_overtake_within_the_tokens_it_is_given(table_stepper, further, length):
    """ "3" nineteen times ties with nothing before the twentieth token, and only a search that looks so far ahead waits for it."""
    stepper = table_stepper(vocabulary=5)
    stepper.table[:] = -torch.inf
    stepper.table[0, :, stepper.begin, stepper.eos] = math.log(0.6)
    stepper.table[0, :, stepper.begin, 3] = math.log(0.4)
    stepper.table[0, :, 3, 3] = math.log(0.9)
    stepper.table[0, :, 3, stepper.eos] = math.log(0.1)
    config = BeamConfig(size=4, length_penalty=3.0, further=further)
    [[best]] = beam_search(*stepper.inputs(0), config, max_length=20, **stepper.special)
    assert len(best.tokens) == length


def test_a_beam_of_one_is_greedy_search(table_stepper):
    stepper = table_stepper(3, vocabulary=12)
    inputs = stepper.inputs(*range(40))
    narrow = beam_search(*inputs, BeamConfig(size=1), max_length=9, **stepper.special)
    greedy = greedy_search(*inputs, max_length=9, **stepper.special)
    assert [one for [one] in narrow] == greedy
    assert {one.finished for one in greedy} == {True, False}


def test_a_wider_beam_finds_outputs_at_least_as_probable_on_the_whole(table_stepper):
    stepper = table_stepper(5, vocabulary=12)
    means = []
    for size in (1, 3, 30):
        hypotheses = beam_search(*stepper.inputs(*range(60)), BeamConfig(size=size), max_length=20, **stepper.special)
        means.append(sum(best.log_prob for [best] in hypotheses) / len(hypotheses))
    assert means == sorted(means)
    assert means[0] < means[-1]


def test_log_probabilities_add_up_and_equal_those_of_scoring(table_stepper):
    stepper = table_stepper(8)
    config = BeamConfig(size=6, best=6, length_penalty=0.6)
    for source, hypotheses in enumerate(
        beam_search(*stepper.inputs(0, 1, 2), config, max_length=30, **stepper.special)
    ):
        assert [hypothesis.score for hypothesis in hypotheses] == sorted(
            (hypothesis.score for hypothesis in hypotheses), reverse=True
        )
        for hypothesis in hypotheses:
            assert hypothesis.finished
            assert hypothesis.log_prob == sum(hypothesis.token_log_probs)
            assert len(hypothesis.token_log_probs) == len(hypothesis.tokens) + 1
            targets, lengths = torch.tensor([[*hypothesis.tokens, 0]]), torch.tensor([len(hypothesis.tokens)])
            [scored] = score_targets(*stepper.inputs(source), targets, lengths, eos=stepper.eos)
            assert scored.token_log_probs == hypothesis.token_log_probs


def test_a_model_that_never_ends_gives_unfinished_outputs_of_the_full_length(table_stepper):
    stepper = table_stepper(1).without_eos()
    config = BeamConfig(size=4, best=3, length_penalty=1.0)
    hypotheses = beam_search(*stepper.inputs(0, 1), config, max_length=torch.tensor([7, 2]), **stepper.special)
    for length, outputs in zip([7, 2], hypotheses, strict=True):
        assert [len(hypothesis.tokens) for hypothesis in outputs] == [length] * 3
        assert not any(hypothesis.finished for hypothesis in outputs)
        assert len({tuple(hypothesis.tokens) for hypothesis in outputs}) == 3
        assert outputs[0].score == pytest.approx(gnmt(outputs[0].log_prob, length, 1.0))
        assert outputs[0].score >= outputs[1].score >= outputs[2].score


def test_finished_outputs_rank_before_unfinished_ones(table_stepper):
    stepper = table_stepper(2, vocabulary=4)
    [hypotheses] = beam_search(*stepper.inputs(0), BeamConfig(size=16, best=16), max_length=3, **stepper.special)
    flags = [hypothesis.finished for hypothesis in hypotheses]
    assert flags == sorted(flags, reverse=True)
    assert {tuple(hypothesis.tokens) for hypothesis in hypotheses if hypothesis.finished} == set(
        stepper.everything(0, max_length=3)
    )
    unfinished = [hypothesis for hypothesis in hypotheses if not hypothesis.finished]
    assert {len(hypothesis.tokens) for hypothesis in unfinished} == {3}
    assert len(unfinished) == 8  # all of them: two tokens that are neither pad nor eos, three places
    assert max(hypothesis.log_prob for hypothesis in unfinished) > min(
        hypothesis.log_prob for hypothesis in hypotheses if hypothesis.finished
    )


def test_eos_at_once_gives_an_empty_output(table_stepper):
    stepper = table_stepper(4).only_eos(source=0)
    hypotheses = beam_search(*stepper.inputs(0, 1), BeamConfig(size=3, best=2), max_length=5, **stepper.special)
    [only] = hypotheses[0]
    assert (only.tokens, only.log_prob, only.score, only.finished, only.token_log_probs) == ([], 0.0, 0.0, True, [0.0])
    assert len(hypotheses[1]) == 2


def test_pad_is_never_written_however_probable(table_stepper):
    stepper = table_stepper(6)
    stepper.table[..., stepper.pad] = 20.0
    for outputs in beam_search(*stepper.inputs(0, 1, 2), BeamConfig(size=4, best=4), max_length=4, **stepper.special):
        assert len(outputs) == 4
        assert all(stepper.pad not in hypothesis.tokens for hypothesis in outputs)


def test_pad_and_eos_take_no_place_from_the_outputs_that_go_on(table_stepper):
    stepper = table_stepper(6)
    stepper.table[0, 0, stepper.begin] = torch.tensor([9.0, -9.0, 8.0, 5.0, 4.0, 3.0])
    stepper.table[0, 1, :, stepper.eos] = torch.tensor([-9.0, -9.0, -9.0, -9.0, -9.0, 9.0])
    [hypotheses] = beam_search(*stepper.inputs(0), BeamConfig(size=3, best=3), max_length=2, **stepper.special)
    assert [hypothesis.tokens for hypothesis in hypotheses if hypothesis.finished] == [
        [],
        [5],
    ]  # 5 comes last of the three that go on
    assert stepper.steps == [1, 3]


def test_sentences_that_are_done_are_not_stepped_any_more(table_stepper):
    stepper = table_stepper(7, vocabulary=8).without_eos().only_eos(source=0)
    limits = torch.tensor([6, 6, 2, 4])
    beam_search(*stepper.inputs(0, 1, 2, 3), BeamConfig(size=3), max_length=limits, **stepper.special)
    assert stepper.steps == [4, 3 * 3, 2 * 3, 2 * 3, 1 * 3, 1 * 3]


def test_the_best_output_does_not_depend_on_how_many_are_asked_for(table_stepper):
    stepper = table_stepper(9, vocabulary=9)
    inputs = stepper.inputs(*range(30))
    many = beam_search(*inputs, BeamConfig(size=5, best=5, length_penalty=0.8), max_length=12, **stepper.special)
    one = beam_search(*inputs, BeamConfig(size=5, best=1, length_penalty=0.8), max_length=12, **stepper.special)
    finished = [number for number, outputs in enumerate(many) if outputs[0].finished]
    assert len(finished) > 20
    assert [many[number][0] for number in finished] == [one[number][0] for number in finished]


def covering(covering_stepper):
    """Token 3 has .6 and leaves half of a position uncovered, token 4 has .4 and leaves a quarter; then comes the end."""
    table = torch.full((5, 5), -torch.inf)
    table[1, 3], table[1, 4] = math.log(0.6), math.log(0.4)
    table[3, 2] = table[4, 2] = 0.0
    attention = torch.zeros(5, 3)
    attention[1] = torch.tensor([0.5, 0.5, 1.0])  # the last position is padding
    attention[3] = torch.tensor([0.5, 0.0, 1.0])
    attention[4] = torch.tensor([0.25, 0.75, 1.0])
    return covering_stepper(table, attention)


@pytest.mark.parametrize(("weight", "winner"), [(0.0, 3), (0.5, 3), (2.0, 4)])
def test_the_coverage_penalty_is_the_one_computed_by_hand(covering_stepper, weight, winner):
    stepper = covering(covering_stepper)
    config = BeamConfig(size=2, best=2, coverage_penalty=weight, length_penalty=1.0)
    [hypotheses] = beam_search(*stepper.inputs(0), config, max_length=4, **stepper.special)
    expected = {
        3: math.log(0.6) / (7 / 6) + weight * math.log(0.5),  # covered 1 and .5
        4: math.log(0.4) / (7 / 6) + weight * math.log(0.75),  # covered .75 and 1.25
    }
    assert hypotheses[0].tokens == [winner]
    for hypothesis in hypotheses:
        assert hypothesis.score == pytest.approx(expected[hypothesis.tokens[0]], abs=1e-6)


def test_a_position_never_attended_to_keeps_the_score_finite(covering_stepper):
    stepper = covering(covering_stepper)
    stepper.attention[:, 1] = 0
    [hypotheses] = beam_search(
        *stepper.inputs(0), BeamConfig(size=2, best=2, coverage_penalty=0.2), max_length=4, **stepper.special
    )
    assert len(hypotheses) == 2
    assert all(math.isfinite(hypothesis.score) for hypothesis in hypotheses)


def test_a_coverage_penalty_needs_a_stepper_that_tracks_coverage(table_stepper):
    stepper = table_stepper()
    with pytest.raises(ConfigError, match=r"coverage_penalty is 0\.2, but TableStepper does not track coverage"):
        beam_search(*stepper.inputs(0), BeamConfig(coverage_penalty=0.2), max_length=3, **stepper.special)


@pytest.mark.parametrize("wrong", [{"size": 0}, {"best": 6}, {"best": 0}, {"coverage_penalty": -1.0}])
def test_a_wrong_beam_is_refused(wrong):
    with pytest.raises(ConfigError, match=str(next(iter(wrong.values())))):
        BeamConfig(**wrong)


def test_scores_that_are_not_numbers_are_reported_and_not_searched(table_stepper):
    stepper = table_stepper()
    stepper.table[0, 1] = torch.nan
    with pytest.raises(UserError, match="NaN"):
        beam_search(*stepper.inputs(0, 1), BeamConfig(), max_length=3, **stepper.special)


def test_no_sentences_give_no_outputs(table_stepper):
    stepper = table_stepper()
    assert beam_search(*stepper.inputs(), BeamConfig(), max_length=3, **stepper.special) == []
