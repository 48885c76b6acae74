"""Naming the class of a series, from a person's own table to predictions, scores and pictures."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import cohen_kappa_score, f1_score

import saccade as library
from saccade.data.builtin.seasons import seasons
from saccade.data.series.dates import iso
from saccade.errors import ConfigError, UserError
from saccade.metrics.classes import cohen_kappa
from saccade.metrics.clouds import mass_and_chance
from saccade.runs.train import train

SMALL = [
    "model.width=32",
    "model.heads=4",
    "model.output=16",
    "train.steps=120",
    "train.validate_every=60",
    "train.threads=1",
    "train.learning_rate=0.01",
]


def frame_of(table):
    rows = [
        {
            "id": table.ids[number],
            "date": iso(table.days[row]),
            **dict(zip(table.bands, table.values[row].tolist(), strict=True)),
            "cloud": float(table.clouds[row]),
            "label": table.labels[number],
        }
        for number in range(len(table))
        for row in range(*table.rows(number).indices(len(table.days)))
    ]
    return pd.DataFrame(rows)


@pytest.fixture(scope="module")
def fields(tmp_path_factory):
    path = tmp_path_factory.mktemp("tables") / "fields.csv"
    frame_of(seasons(300, 2)).to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def run(fields, tmp_path_factory):
    path = train("series", [f"data.train={fields}", *SMALL], tmp_path_factory.mktemp("runs") / "run")
    return library.load(path)


def test_a_persons_own_table_becomes_a_run_that_scores_as_scikit_learn_does(run):
    scores = run.evaluate("test")
    truths = [example.truth for example in run.task.held_out("test")]
    taken = [answer.text for answer in run.predict([f"test:{n}" for n in range(len(truths))])]
    assert scores.kappa == pytest.approx(cohen_kappa_score(truths, taken))
    assert scores.classes.f1 == pytest.approx(100 * f1_score(truths, taken, average="macro", zero_division=0))
    assert scores.kappa > 0.4
    assert next(iter(scores.compared())) == "kappa"


def test_kappa_is_scikit_learns():
    draw = np.random.default_rng(0)
    truths, taken = draw.integers(0, 4, 300), draw.integers(0, 4, 300)
    taken[:150] = truths[:150]
    confusion = np.bincount(truths * 4 + taken, minlength=16).reshape(4, 4)
    assert cohen_kappa(confusion) == pytest.approx(cohen_kappa_score(truths, taken))


def test_predictions_are_a_table_with_a_row_for_each_series(run, fields, tmp_path, saccade):
    out = tmp_path / "predictions.csv"
    done = saccade("predict", run.path, fields, "--out", out)
    assert done.returncode == 0, done.stderr
    table = pd.read_csv(out)
    assert len(table) == 300
    shares = table.filter(like="p(")
    np.testing.assert_allclose(shares.sum(1), 1, atol=1e-3)
    assert (table["class"] == shares.idxmax(axis=1).str[2:-1]).all()
    assert done.stdout.splitlines()[0].split("\t")[0] == table["id"][0]
    with pytest.raises(ConfigError, match=r"must end in \.csv"):
        list(run.answers(["test:0"], out=tmp_path / "x.txt"))


def test_the_answer_to_a_series_does_not_depend_on_those_beside_it(run):
    alone = run.predict(["test:3"], best=3)[0]
    among = run.predict(["test:0", "test:3", "test:5"], best=3)[1]
    assert alone.classes == among.classes
    assert alone.probabilities == pytest.approx(among.probabilities, abs=1e-5)


def test_a_look_has_dates_with_every_band_and_marks_clouds(run, tmp_path):
    view = run.look("test:0")
    (attention,) = view.maps
    example = run.task.held_out("test")[0].content
    assert attention.weights.shape == (4, 1, len(example.days))
    assert attention.keys.labels[0] == iso(example.days[0])
    assert set(attention.keys.series) == set(example.bands)
    assert sum(attention.keys.marked) == (example.clouds >= 0.2).sum() > 0
    for ending in ("png", "svg", "html", "json"):
        view.save(tmp_path / f"view.{ending}")
    assert json.loads((tmp_path / "view.json").read_text())["maps"][0]["keys"]["marked"] == list(attention.keys.marked)


def test_dates_can_be_left_out_and_each_has_its_worth(run):
    labels = run.look("test:0").maps[0].keys.labels
    view = run.look("test:0", without=f"{labels[1]},{labels[3]}")
    assert view.maps[0].keys.labels == tuple(label for place, label in enumerate(labels) if place not in (1, 3))
    (question,) = run.task.questions()
    example = run.task.held_out("test")[0]
    told = question.answer(example, question.takes())
    before, after = (run.predict(["test:0"], best=6, **more)[0] for more in ({}, {"without": labels[2]}))
    share = dict(zip(after.classes, after.probabilities, strict=True))[before.text]
    assert told["worth"][2] == pytest.approx(before.probability - share, abs=1e-4)
    with pytest.raises(UserError, match="1999-01-01 is not a date of this series"):
        run.look("test:0", without="1999-01-01")
    with pytest.raises(UserError, match="nothing is left of the series"):
        run.predict(["test:0"], without=",".join(labels))


def test_scores_say_how_much_attention_falls_on_clouds_beside_chance(run, tmp_path):
    scores = run.evaluate("test", seasons=tmp_path / "seasons.png", confusion=tmp_path / "confusion.png")
    rows = dict(scores.rows())
    assert "ratio to chance" in rows
    assert scores.clouds.untrained == pytest.approx(1, abs=0.25)
    assert 0 < scores.clouds.mass < 1
    assert (tmp_path / "seasons.png").stat().st_size > 5000


def test_attention_on_clouds_is_measured_against_what_the_dates_alone_would_give():
    """On paper: three series of two dates; the second date is attended to twice as much, and is cloudier."""
    attention = np.array([1 / 3, 2 / 3] * 3)
    is_clouded = np.array([False, True, False, True, True, False])
    mass, chance = mass_and_chance(attention, is_clouded, np.array([0, 1] * 3), 3)
    assert mass == pytest.approx((2 / 3 + 2 / 3 + 1 / 3) / 3)
    assert chance == pytest.approx(1 / 3 * 1 / 3 + 2 / 3 * 2 / 3)


def test_another_table_can_be_judged(run, fields):
    scores = run.evaluate("test", data=fields)
    assert scores.classes.images == 300


def test_another_table_needs_no_groups_nor_places_and_may_have_its_labels_in_the_second_table(fields, tmp_path):
    frame = pd.read_csv(fields)
    frame = frame[frame.id.isin(frame.id.unique()[:100])].assign(region=frame.id.str[-1], e=1.0, n=2.0)
    frame.drop(columns="label").to_csv(tmp_path / "train.csv", index=False)
    frame[["id", "label"]].drop_duplicates().to_csv(tmp_path / "samples.csv", index=False)
    named = [
        "group=region",
        "x=e",
        "y=n",
        "label=label",
        f"train={tmp_path / 'train.csv'}",
        f"samples={tmp_path / 'samples.csv'}",
    ]
    settings = [f"data.{setting}" for setting in named]
    run = library.load(
        train("series", [*settings, *SMALL, "train.steps=2", "train.validate_every=2"], tmp_path / "run")
    )
    bare = frame.drop(columns=["region", "e", "n"])
    unknown = bare.assign(id="new " + bare.id)
    for name, table in (("bare", bare.drop(columns="label")), ("labelled", unknown), ("gaps", bare.assign(label=""))):
        table.to_csv(tmp_path / f"{name}.csv", index=False)
        assert run.evaluate("test", data=tmp_path / f"{name}.csv").classes.images == 100
    unknown.drop(columns="label").to_csv(tmp_path / "unknown.csv", index=False)
    with pytest.raises(UserError, match=r"100 ids, such as new field 1, are missing in the table of data\.samples"):
        run.evaluate("test", data=tmp_path / "unknown.csv")


def test_a_table_without_labels_cannot_be_judged(run, fields, tmp_path):
    pd.read_csv(fields).drop(columns="label").to_csv(tmp_path / "x.csv", index=False)
    with pytest.raises(UserError, match="has no label for every series, so there is nothing to judge by"):
        run.evaluate("test", data=tmp_path / "x.csv")


def test_a_table_without_the_bands_of_the_run_is_refused(run, tmp_path):
    path = tmp_path / "other.csv"
    path.write_text("id,date,NDVI\na,2020-01-01,0.1\na,2020-02-01,0.3\n")
    with pytest.raises(UserError, match="there is no column blue"):
        run.predict([path])
    with pytest.raises(UserError, match="is not a series: give a pandas DataFrame"):
        run.predict([3])


def test_a_series_may_come_as_a_data_frame_or_as_text_over_the_api(run):
    frame = frame_of(run.task.held_out("test")[0].content)
    plain = run.predict(["test:0"])[0]
    assert run.predict([frame.drop(columns="label")])[0].probability == pytest.approx(plain.probability, abs=1e-4)
    assert run.predict([frame])[0].text == plain.text
    pytest.importorskip("fastapi", reason="fastapi is not installed (pip install 'saccade[serve]')")
    from fastapi.testclient import TestClient

    from saccade.serve.app import create_app
    from saccade.serve.limits import Limits
    from saccade.serve.served import open_runs

    limits = Limits()
    with TestClient(create_app(open_runs([run.path], limits), limits), base_url="http://127.0.0.1") as client:
        (info,) = client.get("/api/runs").json()["runs"]
        assert info["reads"] == "series"
        text = info["examples"][0]
        assert client.post("/api/predict", json={"series": text}).json()["classes"]
        assert client.post("/api/look", json={"series": text}).json()["maps"][0]["keys"]["kind"] == "dates"
        assert client.post("/api/worth", json={"series": text}).json()["dates"]
        assert client.post("/api/predict", json={"series": "date,red\n"}).status_code == 422
        assert "characters" in client.post("/api/predict", json={"series": "x" * 300_000}).json()["error"]


def test_a_forest_needs_no_loop_and_says_that_it_has_no_attention(fields, tmp_path):
    settings = [f"data.train={fields}", "model.name=random_forest", "model.trees=30"]
    loaded = library.load(train("series", settings, tmp_path / "forest"))
    assert loaded.evaluate("test").kappa > 0.5
    assert not loaded.task.attends
    with pytest.raises(UserError, match="no attention to look at: train one that attends, such as ltae"):
        loaded.look("test:0").save(tmp_path / "x.png")


def test_preprocessing_takes_clouds_out_in_training_and_in_prediction(fields, tmp_path):
    settings = [f"data.train={fields}", "data.clouded=remove", *SMALL, "train.steps=2", "train.validate_every=2"]
    loaded = library.load(train("series", settings, tmp_path / "run"))
    assert (loaded.task.series.table.clouds < 0.2).all()
    assert "clouds" not in loaded.evaluate("test").to_dict()
    frame = frame_of(seasons(300, 2))
    own = frame[frame.id == "field 1"].drop(columns="label")
    whole, clear = loaded.predict([own])[0], loaded.predict([own[own.cloud < 0.2]])[0]
    assert whole.probability == pytest.approx(clear.probability, abs=1e-5)
