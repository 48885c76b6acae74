import math
from collections import Counter

import pytest
import torch
from scipy.stats import chisquare
from transformers import TopKLogitsWarper, TopPLogitsWarper

from saccade.decoding import SamplingConfig, sample, score_targets
from saccade.decoding.sampling import draw
from saccade.errors import ConfigError

CUTS = [
    SamplingConfig(),
    SamplingConfig(temperature=0.5),
    SamplingConfig(temperature=2.0),
    SamplingConfig(top_k=3),
    SamplingConfig(top_k=1),
    SamplingConfig(top_k=100),
    SamplingConfig(top_p=0.7),
    SamplingConfig(top_p=0.01),
    SamplingConfig(temperature=1.5, top_k=5, top_p=0.8),
]


def reference(logits: list[float], config: SamplingConfig) -> dict[int, float]:
    """The cut distribution, one token after the other."""
    weights = {token: math.exp(value / config.temperature) for token, value in enumerate(logits)}
    likeliest = sorted(weights, key=weights.__getitem__, reverse=True)[: config.top_k]
    whole, reached, kept = sum(weights[token] for token in likeliest), 0.0, []
    for token in likeliest:
        if reached >= config.top_p * whole:
            break
        kept.append(token)
        reached += weights[token]
    return {token: weights[token] / reached for token in kept}


@pytest.mark.parametrize("config", CUTS, ids=str)
def test_the_truncated_distribution_is_the_one_computed_token_by_token(config):
    logits = torch.randn(9, generator=torch.Generator().manual_seed(1)) * 1.5
    grid = 4096
    uniform = (torch.arange(grid) + 0.5) / grid  # evenly spaced, so every share comes out to within a place or two
    counts = Counter(draw(logits.expand(grid, -1), uniform, config).tolist())
    expected = reference(logits.tolist(), config)
    assert set(counts) <= set(expected)
    for token, share in expected.items():
        assert counts[token] / grid == pytest.approx(share, abs=2 / grid)


@pytest.mark.parametrize("config", CUTS, ids=str)
def test_sampled_first_tokens_have_the_right_frequencies(table_stepper, config):
    stepper = table_stepper(3, vocabulary=8)
    draws = 1500
    many = SamplingConfig(draws, config.temperature, config.top_k, config.top_p)
    [hypotheses] = sample(*stepper.inputs(0), many, max_length=1, seed=1, **stepper.special)
    counts = Counter(hypothesis.tokens[0] if hypothesis.tokens else stepper.eos for hypothesis in hypotheses)
    logits = stepper.table[0, 0, stepper.begin].clone()
    logits[stepper.pad] = -torch.inf
    expected = reference(logits.tolist(), config)
    expected.pop(stepper.pad, None)
    assert set(counts) <= set(expected)
    if len(expected) > 1:
        observed = [counts[token] for token in expected]
        assert chisquare(observed, [share * draws for share in expected.values()]).pvalue > 1e-3


@pytest.mark.parametrize("scale", [0.1, 3.0])
def test_the_nucleus_is_hugging_faces_also_when_it_is_wide(scale):
    """At scale .1 the nucleus spans most of the vocabulary, at 3 some tens of tokens."""
    logits = torch.randn(1, 700, generator=torch.Generator().manual_seed(1)) * scale
    uniform = torch.linspace(0, 1, 8001)[:-1]
    for top_k, top_p in ((None, 0.9), (500, 0.9), (40, 0.5)):
        cut = logits if top_k is None else TopKLogitsWarper(top_k)(None, logits)
        kept = TopPLogitsWarper(top_p)(None, cut).isfinite()
        config = SamplingConfig(top_k=top_k, top_p=top_p)
        for row in range(len(logits)):
            drawn = draw(logits[row].expand(len(uniform), -1), uniform, config)
            assert set(drawn.tolist()) == set(kept[row].nonzero().squeeze(1).tolist())


def test_the_ends_of_the_unit_interval_never_draw_an_impossible_token():
    logits = torch.tensor([[-torch.inf, 0.3, -torch.inf, 0.1, -0.2, -torch.inf]])
    for config in (SamplingConfig(), SamplingConfig(top_k=5), SamplingConfig(top_p=0.99)):
        for uniform in (0.0, 1.0 - 2**-24):
            assert draw(logits, torch.tensor([uniform]), config).item() in (1, 3, 4)


def test_samples_carry_the_models_own_log_probabilities(table_stepper):
    stepper = table_stepper(2)
    config = SamplingConfig(samples=10, temperature=0.4, top_k=4)
    [hypotheses] = sample(*stepper.inputs(5), config, max_length=20, seed=3, **stepper.special)
    for hypothesis in hypotheses:
        assert hypothesis.finished
        targets, lengths = torch.tensor([[*hypothesis.tokens, 0]]), torch.tensor([len(hypothesis.tokens)])
        assert score_targets(*stepper.inputs(5), targets, lengths, eos=stepper.eos) == [hypothesis]


def test_the_seed_decides_the_samples(table_stepper):
    stepper = table_stepper(2, vocabulary=20)
    first, same, other = (
        sample(*stepper.inputs(0, 1), SamplingConfig(samples=3), max_length=9, seed=seed, **stepper.special)
        for seed in (1, 1, 2)
    )
    assert first == same
    assert first != other
    assert len({tuple(hypothesis.tokens) for hypothesis in first[0]}) == 3


def test_a_sample_does_not_depend_on_how_many_are_drawn(table_stepper):
    stepper = table_stepper(2, vocabulary=20)
    few, many = (
        sample(*stepper.inputs(0, 1), SamplingConfig(samples=count), max_length=9, seed=1, **stepper.special)
        for count in (2, 7)
    )
    assert few == [outputs[:2] for outputs in many]


def test_sampling_a_model_that_never_ends_stops_at_the_limit(table_stepper):
    stepper = table_stepper(1).without_eos()
    limits = torch.tensor([2, 4])
    hypotheses = sample(*stepper.inputs(0, 1), SamplingConfig(samples=2), max_length=limits, seed=0, **stepper.special)
    assert [[(len(hypothesis.tokens), hypothesis.finished) for hypothesis in row] for row in hypotheses] == [
        [(2, False)] * 2,
        [(4, False)] * 2,
    ]


def test_eos_at_once_gives_empty_samples(table_stepper):
    stepper = table_stepper(4).only_eos(source=0)
    [hypotheses] = sample(*stepper.inputs(0), SamplingConfig(samples=3), max_length=5, seed=0, **stepper.special)
    assert [(hypothesis.tokens, hypothesis.finished) for hypothesis in hypotheses] == [([], True)] * 3


@pytest.mark.parametrize("wrong", [{"samples": 0}, {"temperature": 0.0}, {"top_k": 0}, {"top_p": 0.0}, {"top_p": 1.1}])
def test_a_wrong_way_of_sampling_is_refused(wrong):
    [(name, value)] = wrong.items()
    with pytest.raises(ConfigError, match=f"{name} is {value}"):
        SamplingConfig(**wrong)
