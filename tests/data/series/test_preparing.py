"""From a table to what a run keeps: splits that are honest, scales of train alone, calendars, clouds of known place."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.preprocessing import StandardScaler

from saccade.data.builtin.seasons import seasons
from saccade.data.series import dataset
from saccade.data.series.batch import SeriesBatch, augmented, collate
from saccade.data.series.calendar import Calendar
from saccade.data.series.clouds import CLOUDED, CloudsConfig, interpolated, removed, with_clouds
from saccade.data.series.dataset import SeriesConfig, gather
from saccade.data.series.splits import cut, warn_of_neighbours
from saccade.data.series.store import SeriesSet
from saccade.data.series.table import measured_only, of_equal_length
from saccade.errors import UserError


def config(**settings):
    return SeriesConfig.model_validate({"fields": 120, **settings})


def days(*dates):
    return np.array(dates, "datetime64[D]").astype(np.float64)


@pytest.fixture
def table():
    """40 series at 20 places, two each, of two classes."""
    values = np.random.default_rng(0).normal(size=(40, 5, 2)).astype(np.float32)
    places = np.repeat(np.stack([np.linspace(10, 12, 20), np.linspace(50, 51, 20)], axis=1), 2, axis=0)
    labels = tuple("ab"[number % 2] for number in range(40))
    ids = tuple(f"f{number}" for number in range(40))
    some = days("2020-03-01", "2020-04-01", "2020-05-01", "2020-06-01", "2020-07-01")
    return of_equal_length(ids, ("red", "nir"), values, some, labels=labels, places=places, in_degrees=True)


@pytest.mark.parametrize("by", ["place", "blocks", "group"])
def test_what_belongs_together_stays_on_one_side(table, by):
    groups = tuple(str(number // 8) for number in range(40))
    table = replace(table, groups=groups)
    splits = cut(table, by, 30.0, 5, 0, 0.2, 1, lambda _: None)
    kilometres = table.places * 111.32 * [np.cos(np.radians(table.places[:, 1].mean())), 1]
    cells = np.floor(kilometres / 30) @ [1000, 1]
    units = {"place": table.places[:, 0], "group": np.array(groups), "blocks": cells}[by]
    assert not set(units[splits["test"]]) & set(units[splits["train"]])
    assert sorted(np.concatenate(list(splits.values())).tolist()) == list(range(40))
    assert all(len(part) for part in splits.values())


def test_the_folds_of_a_split_are_every_series_once(table):
    tests = [cut(table, "random", 5, 5, fold, 0.1, 1, lambda _: None)["test"] for fold in range(5)]
    assert sorted(np.concatenate(tests).tolist()) == list(range(40))


def test_places_on_both_sides_are_said(table):
    said = []
    warn_of_neighbours(table, cut(table, "random", 5, 5, 0, 0.1, 1, said.append), said.append)
    assert any("stand at places that are trained on too" in line for line in said)
    said.clear()
    warn_of_neighbours(table, cut(table, "place", 5, 5, 0, 0.1, 1, lambda _: None), said.append)
    assert said == []


def test_a_split_without_what_it_needs_is_refused(table):
    with pytest.raises(UserError, match=r"needs a column of groups: name it with data\.group"):
        cut(table, "group", 5, 5, 0, 0.1, 1, print)
    with pytest.raises(UserError, match="needs coordinates"):
        cut(replace(table, places=None), "blocks", 5, 5, 0, 0.1, 1, print)
    with pytest.raises(UserError, match="of 2 groups, and a split into 5 parts needs 5"):
        cut(replace(table, groups=("a",) * 20 + ("b",) * 20), "group", 5, 5, 0, 0.1, 1, print)


def test_with_files_for_both_parts_nothing_is_cut_so_one_place_is_enough(tmp_path):
    for part, value in (("train", 0), ("valid", 1), ("test", 2)):
        rows = [f"{part}{n},2020-0{m}-01,10,50,{value + n + m},{'ab'[n % 2]}" for n in range(6) for m in (1, 2)]
        (tmp_path / f"{part}.csv").write_text("id,date,longitude,latitude,NDVI,label\n" + "\n".join(rows))
    files = {part: tmp_path / f"{part}.csv" for part in ("train", "valid", "test")}
    splits = gather(config(**files), lambda _: None).splits
    assert {part: numbers.tolist() for part, numbers in splits.items()} == {
        "train": list(range(6)),
        "valid": list(range(6, 12)),
        "test": list(range(12, 18)),
    }
    del files["valid"]
    with pytest.raises(UserError, match="of 1 places"):
        gather(config(**files), lambda _: None)


def test_the_seasons_of_one_field_stay_on_one_side_unless_a_person_says_otherwise(tmp_path):
    rows = [
        f"f{n},{year}-0{m}-01,{year},{n + m},{'ab'[n % 2]}" for n in range(20) for year in (2018, 2019) for m in (4, 5)
    ]
    (tmp_path / "train.csv").write_text("id,date,year,NDVI,label\n" + "\n".join(rows))

    def fields(**settings):
        series = gather(config(train=tmp_path / "train.csv", season="year", **settings), lambda _: None)
        return [
            {series.table.ids[number].split("/")[0] for number in series.splits[part]} for part in ("train", "test")
        ]

    train, test = fields()
    assert not train & test
    train, test = fields(split_by="random")
    assert train & test


def test_a_field_in_both_files_is_refused(tmp_path):
    rows = [f"f{n},2020-0{m}-01,{n / 10 + m},{'ab'[n % 2]}" for n in range(12) for m in range(1, 5)]
    (tmp_path / "train.csv").write_text("id,date,NDVI,label\n" + "\n".join(rows))
    (tmp_path / "test.csv").write_text("id,date,NDVI,label\n" + "\n".join(rows[:8]))
    with pytest.raises(UserError, match="2 of its series are also in the training table, the first is f0"):
        gather(config(train=tmp_path / "train.csv", test=tmp_path / "test.csv"), lambda _: None)
    (tmp_path / "one.csv").write_text("id,date,NDVI,label\n" + "\n".join(row[:-1] + "a" for row in rows))
    with pytest.raises(UserError, match=r"all of one class \(a\)"):
        gather(config(train=tmp_path / "one.csv"), lambda _: None)


def test_scales_are_those_of_the_training_series_as_scikit_learn_has_them():
    series = gather(config(), lambda _: None)
    train = series.table.chosen(series.splits["train"])
    scaler = StandardScaler().fit(train.values.astype(np.float64))
    np.testing.assert_allclose(series.scaling.mean, scaler.mean_, rtol=1e-5)
    np.testing.assert_allclose(series.scaling(train.values), scaler.transform(train.values), atol=1e-4)
    whole = StandardScaler().fit(series.table.values.astype(np.float64))
    assert abs(np.array(series.scaling.mean) - whole.mean_).max() > 1e-5


def test_what_a_run_keeps_is_what_was_prepared(tmp_path):
    prepared = dataset.prepare(config(), tmp_path, lambda _: None)
    opened = SeriesSet.open(tmp_path)
    np.testing.assert_array_equal(prepared.table.values, opened.table.values)
    assert (opened.classes, opened.scaling, opened.grid) == (prepared.classes, prepared.scaling, prepared.grid)
    np.save(tmp_path / "series" / "days.npy", np.array(["x"], object), allow_pickle=True)
    with pytest.raises(UserError, match="damaged or incomplete"):
        SeriesSet.open(tmp_path)


def test_a_day_number_means_the_same_in_every_year_and_rises_over_new_year():
    starts = np.array([0, 2, 4])
    two = of_equal_length(("a", "b"), ("v",), np.ones((2, 2, 1)), days("2019-09-14", "2020-08-28"))
    assert Calendar.of(two).numbers(two.days, starts).tolist() == [256, 256 + 349, 256, 256 + 349]
    around = np.concatenate([days("2018-12-30", "2019-06-01"), days("2019-01-02", "2019-06-01")])
    table = replace(two, days=around)
    numbers = Calendar.of(table).numbers(around, starts)
    assert numbers[1] == numbers[3]
    assert numbers[2] - numbers[0] == 3


def test_a_series_without_a_value_is_left_out_and_one_that_is_too_long_is_refused(table):
    values = table.values.copy()
    values[:5] = np.nan
    said = []
    assert len(measured_only(replace(table, values=values), "x", said.append, 100)) == 39
    assert "1 series without a measured value were left out, the first is f0" in said[0]
    with pytest.raises(UserError, match=r"f0 has 5 dates, and data\.longest = 4"):
        measured_only(table, "x", print, 4)


# Clouds


def test_clouds_come_from_the_seed_and_indices_are_computed_again_from_the_bands():
    clear = seasons(200, 3, clouds=0.0)
    settings = CloudsConfig.model_validate({"share": 0.4, "seed": 5})
    clouded, again = with_clouds(clear, settings), with_clouds(clear, settings)
    np.testing.assert_array_equal(clouded.values, again.values)
    is_clouded = clouded.clouds >= CLOUDED
    assert is_clouded.mean() == pytest.approx(0.4, abs=0.03)
    np.testing.assert_array_equal(clouded.values[~is_clouded], clear.values[~is_clouded])
    blue, red, nir, ndvi = clouded.values.T
    np.testing.assert_allclose(ndvi[is_clouded], ((nir - red) / (nir + red))[is_clouded], atol=1e-4)
    assert blue[clouded.clouds > 0.7].mean() > 3 * clear.values[:, 0].mean()


def test_clouds_need_bands_that_say_what_they_are(table):
    unnamed = replace(table, bands=("p", "q"))
    with pytest.raises(UserError, match="the bands are p, q"):
        with_clouds(unnamed, CloudsConfig.model_validate({"share": 0.4}))


def test_interpolation_is_numpys_and_removal_leaves_clear_dates():
    clouded = seasons(30, 3, clouds=0.4)
    filled, left = interpolated(clouded), removed(clouded)
    rows = clouded.rows(4)
    is_clear = clouded.clouds[rows] < CLOUDED
    own = clouded.values[rows, 2]
    expected = np.interp(clouded.days[rows], clouded.days[rows][is_clear], own[is_clear])
    np.testing.assert_allclose(filled.values[rows, 2], expected, rtol=1e-6)
    assert left.lengths[4] == is_clear.sum()
    assert (left.clouds < CLOUDED).all()


# Batches


def test_padding_and_missing_values_are_marked_and_never_a_silent_zero():
    values = np.array([[1, 2], [np.nan, 4], [5, 6]], np.float32)
    batch = collate(np.array([0, 2, 3]), np.array([10.0, 20, 30]), values, np.array([0, 1]))
    assert batch.measured.tolist() == [[[True, True], [False, True]], [[True, True], [False, False]]]
    assert batch.visible.tolist() == [[True, True], [True, False]]
    assert batch.values[0, 1].tolist() == [0, 4]
    assert batch.days.tolist() == [[10, 20], [30, 30]]


def test_a_season_shifted_in_training_is_early_or_late_as_a_whole():
    batch = gather(config(), lambda _: None).batch(np.arange(120))
    torch.manual_seed(1)
    shifted = augmented(batch, 0.0, 0.0, 5.0)
    by = shifted.days - batch.days
    torch.testing.assert_close(by, by[:, :1].expand_as(by), rtol=0, atol=1e-3)
    assert by[:, 0].std() == pytest.approx(5, rel=0.2)
    assert by[:, 0].mean() == pytest.approx(0, abs=1)
    assert torch.equal(shifted.values, batch.values)


def test_dates_dropped_in_training_leave_the_others_in_order():
    series = gather(config(), lambda _: None)
    batch = series.batch(np.arange(50))
    dropped = augmented(batch, 0.8, 0.0, 0.0)
    assert dropped.visible.sum() < batch.visible.sum()
    assert (dropped.visible.sum(1) >= 1).all()
    for row in range(50):
        kept = dropped.days[row][dropped.visible[row]]
        assert (kept.diff() > 0).all()
        assert set(kept.tolist()) <= set(batch.days[row].tolist())


def test_where_every_date_would_be_dropped_one_stays():
    torch.manual_seed(0)
    count, dates = 200, 2
    values = torch.arange(1.0, dates + 1).expand(count, dates)[..., None]
    days = torch.arange(float(dates)).expand(count, dates)
    measured = torch.ones(count, dates + 1, 1, dtype=torch.bool)
    measured[:, -1] = False  # beyond the end
    batch = SeriesBatch(torch.cat((values, torch.zeros(count, 1, 1)), 1), measured, torch.cat((days, days[:, -1:]), 1))
    kept = augmented(batch, 1e6, 0.0, 0.0)
    assert kept.visible.sum(1).tolist() == [1] * count
    assert set(kept.values[:, 0, 0].tolist()) == {1, 2}
