"""A person's table to a forecast: train, predict, evaluate, look; and what is told of the same day."""

import json

import numpy as np
import pytest
import torch

import saccade as library
from saccade.errors import ConfigError, UserError
from saccade.runs.train import train
from saccade.tasks.forecasting.evaluating import parts

QUICK = ["train.steps=60", "train.validate_every=30", "train.learning_rate=3e-3", "train.warmup_steps=0"]


@pytest.fixture(scope="module")
def tides(tmp_path_factory):
    quick = ["data.rows=900", "data.season=12", "data.look_back=48", "data.horizon=6", "model.layers=1"]
    quantiles = "objective.quantiles=[0.1,0.5,0.9]"
    return library.load(train("tides", [*QUICK, *quick, quantiles], tmp_path_factory.mktemp("runs") / "tides"))


@pytest.fixture(scope="module")
def companies(tmp_path_factory):
    changes = ["train.steps=150", "train.validate_every=150", "data.rows=1200"]
    return library.load(train("companies", changes, tmp_path_factory.mktemp("runs") / "companies"))


def test_it_beats_no_change_and_stands_among_the_yardsticks(tides):
    scores = tides.evaluate("test")
    assert scores.skill > 50
    assert set(scores.yardsticks) == {"no change", "the last 12 rows again", "a ridge"}
    assert scores.windows == 180 - 6 + 1
    (inside,) = scores.coverage.values()
    assert 30 < inside <= 100
    json.dumps(scores.to_dict())


def test_the_errors_are_those_of_every_window_computed_at_once(tides):
    told, truths = [], []
    for values, after in parts(tides.task.windows, "test"):
        with torch.no_grad():
            told.append(tides.task.told(values)[..., 1].numpy())
        truths.append(after.numpy())
    wanted = np.mean((np.concatenate(told) - np.concatenate(truths)) ** 2)
    assert tides.evaluate("test").model.mse == pytest.approx(wanted, rel=1e-4)


def test_a_forecast_is_a_table_with_dates_and_the_ends_of_intervals(tides):
    (answer,) = tides.predict([tides.held_out("test:0").content.timeline])
    lines = [line.split("\t") for line in answer.lines()]
    assert lines[0][:4] == ["date", "gauge A", "gauge A low", "gauge A high"]
    assert len(lines) == 7
    assert lines[1][0] > tides.held_out("test:0").content.timeline.labels(slice(-1, None))[0]
    assert np.isfinite(float(lines[1][1]))


def test_a_gap_at_the_start_of_a_window_is_read_as_it_is_judged(tides):
    windows = tides.task.windows
    place = windows.places("test")[0]
    kept = np.array(windows.timeline.values)
    try:
        changed = kept.copy()
        changed[place - windows.look_back : place - windows.look_back + 3, 0] = np.nan
        object.__setattr__(windows.timeline, "values", changed)
        windows.__dict__.pop("scaled", None), windows.__dict__.pop("filled", None)
        _, read = tides.task.readable(tides.held_out("test:0"))
        np.testing.assert_array_equal(read[0].numpy(), windows.examples([place])[0][0].numpy())
    finally:
        object.__setattr__(windows.timeline, "values", kept)
        windows.__dict__.pop("scaled", None), windows.__dict__.pop("filled", None)


def test_a_table_of_one_variable_is_forecast_and_judged(tmp_path):
    table = tmp_path / "one.csv"
    table.write_text("date,a\n" + "".join(f"{np.datetime64('2024-01-01') + day},{day % 7}\n" for day in range(200)))
    changes = [f"data.train={table}", "data.look_back=14", "data.horizon=2", "train.steps=4", "train.validate_every=4"]
    run = library.load(train("forecast", [*changes, "model.name=itransformer"], tmp_path / "run"))
    assert run.evaluate("test").attention == {}


def test_a_look_draws_the_course_and_the_attention_between_dates(tides, tmp_path):
    view = tides.look("test:0")
    assert len(view.chart.courses) == 4
    assert len(view.chart.courses[0].truth) == 6
    assert {attention.queries.kind for attention in view.maps} == {"dates"}
    for ending in ("png", "svg", "pdf", "html", "json"):
        view.save(tmp_path / f"view.{ending}")
        assert (tmp_path / f"view.{ending}").stat().st_size > 1000


def test_what_is_told_of_the_same_day_does_not_know_it(companies):
    task = companies.task
    values, after = task.windows.examples(task.windows.places("test")[:8])
    changed = values.clone()
    changed[:, -1, 3] = 7.0
    with torch.no_grad():
        before, later = (task.told(task.batch_of(each, after).values)[:, 0, 3, 0] for each in (values, changed))
    torch.testing.assert_close(before, later)


def test_the_other_companies_of_a_sector_are_its_witnesses(companies):
    scores = companies.evaluate("test")
    assert scores.model.median_r2 > 0.6
    assert scores.attention["most attended is most correlated"] > 50
    view = companies.look("test:0")
    assert view.maps[0].weights.shape == (4, 9, 9)
    assert view.chart is None  # one row makes no course


def test_ones_own_prices_in_one_command(saccade, tmp_path):
    draw = np.random.default_rng(0)
    returns = draw.normal(0, 0.01, (300, 1)) + draw.normal(0, 0.004, (300, 3))
    prices = 50 * np.exp(np.cumsum(returns, 0))
    lines = ["Date;ABC;DEF;GHI"]
    lines += [
        ";".join([str(np.datetime64("2020-01-01") + day), *(f"{price:.3f}".replace(".", ",") for price in row)])
        for day, row in enumerate(prices)
    ]
    table = tmp_path / "prices.csv"
    table.write_text("\n".join(lines))
    run = tmp_path / "run"
    trained = saccade(
        "train", "nowcast", "--set", f"data.train={table}", "--set", "data.target=DEF", "--set", "model.name=ridge",
        "--out", run,
    )  # fmt: skip
    assert trained.returncode == 0, trained.stderr
    assert "solved at once" in trained.stdout + trained.stderr
    told = saccade("predict", run, table).stdout.splitlines()
    assert told[0].split("\t")[-2:] == ["date", "DEF"] or told[0] == "date\tDEF"
    assert "median R²" in saccade("evaluate", run).stdout
    assert "no change" in saccade("evaluate", run, "--data", table).stdout
    refused = saccade(
        "train", "nowcast", "--set", f"data.train={table}", "--set", "data.target=DEFF", "--out", tmp_path / "b"
    )
    assert refused.returncode == 2
    assert "did you mean DEF" in refused.stderr
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (["model.name=dlinear"], "reads each variable alone"),
        (["model.name=ridge", "objective.quantiles=[0.1,0.5]"], "forecasts the mean"),
        (["objective.quantiles=[0.9,0.1]"], "must rise"),
    ],
)
def test_models_that_cannot_tell_what_is_asked_are_refused(tmp_path, changes, sentence):
    with pytest.raises(ConfigError, match=sentence):
        train("companies", changes, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_too_few_rows_and_other_columns_are_refused_by_a_sentence(tides, tmp_path):
    table = tmp_path / "short.csv"
    table.write_text("date,gauge A,gauge B,gauge C,gauge D\n2024-01-01,1,2,3,4\n")
    with pytest.raises(UserError, match="has 1 rows, and this run reads 48"):
        tides.predict([str(table)])
    table.write_text("date,gauge A\n2024-01-01,1\n")
    with pytest.raises(UserError, match="no column gauge B"):
        tides.predict([str(table)])


@pytest.mark.parametrize("name", ["tides", "companies"])
def test_what_is_offered_to_click_can_be_asked(name, request):
    from saccade.serve.limits import Limits

    run = request.getfixturevalue(name)
    read = run.task.input
    for offered in read.suggestions(run.task.held_out("test")):
        example = read.from_json(read.fields(series=offered), Limits())
        assert len(run.task.readable(example)[0]) == run.task.windows.look_back


def test_no_days_are_invented_for_a_calendar_with_gaps(companies):
    task = companies.task
    part, _ = task.readable(companies.held_out("test:0"))
    assert task.later(part) == part.labels(slice(-1, None))
