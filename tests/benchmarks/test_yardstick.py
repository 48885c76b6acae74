"""The yardstick itself: what it counts, how it takes ratios, and that its pictures show what was measured."""

import json
import os
from pathlib import Path

import pytest
import torch

from benchmarks import picture, quality, report
from benchmarks.measure import rounds, rounds_apart, times_faster
from benchmarks.pairs import LONGEST, TOKENS, VOCABULARY, batches, useful_tokens
from benchmarks.training import arithmetic
from saccade.models.transformer import Size


def test_a_ratio_is_taken_within_each_round_so_a_slow_minute_hurts_both():
    seconds = {"ours": [1.0, 10.0, 1.0], "theirs": [2.0, 20.0, 2.0]}
    assert times_faster(seconds, "ours", than="theirs") == 2.0


def test_every_variant_runs_once_to_warm_up_and_once_a_round_in_both_directions():
    order = []
    seconds = rounds({name: lambda name=name: order.append(name) for name in "ab"}, repeats=2)
    assert "".join(order) == "ab" + "ab" + "ba"
    assert {name: len(times) for name, times in seconds.items()} == {"a": 2, "b": 2}


def write_down(path: str, name: str):
    """Work for a process of its own: a line with its name and the process's number."""

    def work() -> None:
        print("a library that talks")
        with Path(path).open("a", encoding="utf-8") as lines:
            lines.write(f"{name} {os.getpid()}\n")

    return work


def fail():
    raise FileNotFoundError("no such peer")


@pytest.mark.parametrize("busy", [False, True])
def test_variants_in_processes_of_their_own_take_turns(tmp_path, busy):
    path, here = tmp_path / "lines", "tests.benchmarks.test_yardstick:write_down"
    seconds = rounds_apart(here, {name: (path, name) for name in "ab"}, repeats=2, busy=busy)
    names, processes = zip(*(line.split() for line in path.read_text(encoding="utf-8").splitlines()), strict=True)
    assert sorted(names[:2]) == ["a", "b"]
    assert names[2:] == ("a", "b", "b", "a")
    assert len({*processes, str(os.getpid())}) == 3
    assert all(len(times) == 2 and min(times) >= 0 for times in seconds.values())


def test_a_variant_that_fails_ends_the_measurement():
    with pytest.raises(RuntimeError, match="fail"):
        rounds_apart("tests.benchmarks.test_yardstick:fail", {"a": ()}, repeats=1, busy=False)


def test_the_best_peer_is_the_one_we_beat_by_least():
    rows = report.contenders({"saccade": [1.0], "slow": [3.0], "fast": [1.5]}, 60, "tokens")
    assert report.against_best(rows) == 1.5
    assert [row["tokens/s"] for row in rows] == [60, 20, 40]


def test_batches_are_the_same_for_the_same_seed_and_look_like_multi30k():
    first, again, other = batches(30), batches(30), batches(30, seed=2)
    assert all(torch.equal(a.source, b.source) for a, b in zip(first, again, strict=True))
    assert not all(torch.equal(a.source, b.source) for a, b in zip(first, other, strict=True))
    lengths = torch.cat([batch.source_lengths for batch in first]).double() - 1
    assert 12 < lengths.mean() < 16
    assert lengths.max() <= LONGEST
    assert all(batch.target_in.numel() <= TOKENS and batch.source.max() < VOCABULARY for batch in first)
    assert useful_tokens(first) == sum(int((batch.target_out != 0).sum()) for batch in first)


def test_arithmetic_is_that_of_the_formula_on_paper():
    (batch,) = batches(1)
    source, target = batch.source_lengths.double(), batch.target_lengths.double()
    one = Size(layers=1, width=2, heads=1, feed_forward=3)
    encoder = source * (4 * 4 + 2 * 2 * 3) + 2 * 2 * source**2
    cross = source * 2 * 4 + target * 2 * 4 + 2 * 2 * source * target
    decoder = target * (4 * 4 + 2 * 2 * 3) + 2 * 2 * target**2 / 2
    words = target * 2 * VOCABULARY
    assert arithmetic(one, [batch]) == pytest.approx(6 * float((encoder + cross + decoder + words).sum()))


def test_a_bar_counts_as_reached_only_at_its_goal_and_in_equal_quality():
    assert picture.Bar("", 1.5, "peer", 1.5).is_reached
    assert not picture.Bar("", 1.4, "peer", 1.5).is_reached
    assert not picture.Bar("", 0.9, "peer", None).is_reached
    assert not picture.Bar("", 9.0, "peer", 4.0, as_good=False).is_reached


def test_the_picture_draws_what_was_measured_and_nothing_else(tmp_path, monkeypatch):
    rows = report.contenders({"saccade": [1.0], "JoeyNMT": [3.0], "torch.nn": [1.2]}, 60, "tokens")
    found = {"sizes": {"tiny": {"against the best peer": 1.2, "goal": 1.5, "contenders": rows}}}
    (tmp_path / "training.json").write_text(json.dumps(found), encoding="utf-8")
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    monkeypatch.setattr(picture, "RESULTS", tmp_path)
    assert list(picture.training()) == [picture.Bar("training a Transformer, tiny", 1.2, "torch.nn", 1.5)]
    picture.main()
    assert (tmp_path / "speed.png").stat().st_size > 1000


def test_the_cost_of_layers_is_drawn_from_what_was_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(picture, "IMAGES", tmp_path)
    measured = {"n": [256, 512], "seconds": {"self-attention, n²d": [0.1, 0.4]}}
    picture.draw_complexity(measured | {name: {"self-attention, n²d": 2.0} for name in ("fitted exponent", "theory")})
    assert (tmp_path / "complexity.png").stat().st_size > 1000


def test_the_time_to_a_mark_lies_between_the_budgets_around_it():
    ends = [{"minutes": 32.0, "BLEU": 36.0}, {"minutes": 8.0, "BLEU": 32.0}]
    assert quality.minutes_to(34.0, ends) == pytest.approx(16.0)
    assert quality.minutes_to(32.0, ends) == pytest.approx(8.0)
    assert quality.minutes_to(37.0, ends) is None
    assert quality.minutes_to(30.0, ends) is None
    assert quality.minutes_to(34.0, [{"minutes": 4.0, "BLEU": 35.0}, {"minutes": 6.0, "BLEU": 33.0}, *ends]) is None
    shown = quality.row("saccade", ends)
    assert [shown[f"minutes to {mark}"] for mark in (30, 37)] == ["under 8", "over 32"]
    assert quality.times_sooner(
        34.0, {"saccade": ends, "Hugging Face": [{**end, "BLEU": end["BLEU"] - 1} for end in ends]}
    ) == (pytest.approx(2**0.5))
