"""Tables over time: what is read from files, and the windows that are cut from them."""

import os

import numpy as np
import pytest

from saccade.data.series.timeline import read_timeline
from saccade.data.series.windows import TimelineConfig, Windows, fill_forward, prepare, reopen
from saccade.errors import ConfigError, UserError

ROWS = ["date,a,b", *(f"2024-01-{day:02},{day},{100 - day}" for day in range(1, 31))]


@pytest.fixture
def table(tmp_path):
    def written(lines):
        path = tmp_path / "table.csv"
        path.write_text("\n".join(lines) + "\n")
        return path

    return written


def read(path, **options):
    said = []
    return read_timeline(path, said.append, **options), said


def test_rows_are_sorted_by_their_dates_and_that_is_said(table):
    timeline, said = read(table([ROWS[0], ROWS[3], ROWS[1], ROWS[2]]))
    assert timeline.labels(slice(None)) == ("2024-01-01", "2024-01-02", "2024-01-03")
    assert timeline.values[:, 0].tolist() == [1, 2, 3]
    assert any("sorted by date" in sentence for sentence in said)


def test_a_file_without_names_has_numbered_columns_and_no_dates(table):
    timeline, said = read(table(["0.5,1.5", "0.6,1.6", "0.7,1.7"]))
    assert (timeline.variables, len(timeline), timeline.has_dates) == (("variable 1", "variable 2"), 3, False)
    assert any("no line of names" in sentence for sentence in said)


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ([*ROWS[:3], "2024-01-02,9,9"], "two rows for 2024-01-02"),
        ([*ROWS[:3], "2024-01-03,tall,9"], "column a holds 'tall' in row 3"),
        (["date,a,b", "2024-01-01,,1", "2024-01-02,,2"], "column a has no value at all"),
        (["date", "2024-01-01"], "no column of numbers"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused_by_a_sentence(table, lines, sentence):
    with pytest.raises(UserError, match=sentence):
        read(table(lines))


def test_a_column_called_month_gives_way_to_one_of_dates_and_texts_of_numbers_are_numbers(table):
    timeline, _ = read(table(["month,when,a", "1,2024-01-01,5", "1,2024-01-02,6"]))
    assert (timeline.variables, timeline.labels(slice(0, 1))) == (("month", "a"), ("2024-01-01",))
    timeline, _ = read(table(["0.0,0.0,1.5", "0.1,0.2,1.6"]))
    assert timeline.values[0].tolist() == [0.0, 0.0, 1.5]


def test_a_date_column_that_is_not_there_is_named_with_the_nearest(table):
    with pytest.raises(ConfigError, match="did you mean date"):
        read(table(ROWS), date="dat")


def test_prices_become_returns(table):
    timeline, _ = read(table(ROWS))
    returns = timeline.changed("returns")
    np.testing.assert_allclose(returns.values[:3, 0], [1, 1 / 2, 1 / 3], rtol=1e-6)
    assert returns.labels(slice(0, 1)) == ("2024-01-02",)


def config(path, **settings):
    return TimelineConfig(**{"train": path, "look_back": 4, "horizon": 2, "valid": 6, "test": 6, **settings})


def test_every_window_of_a_part_is_judged_and_none_reaches_into_the_next(table, tmp_path):
    windows = prepare(config(table(ROWS)), tmp_path, lambda sentence: None)
    assert [list(windows.places(split))[0::100] for split in ("train", "valid", "test")] == [[4], [18], [24]]
    assert [len(windows.places(split)) for split in ("train", "valid", "test")] == [13, 5, 5]
    values, after = windows.examples(windows.places("test")[:1])
    deviation, mean = windows.deviation[0], windows.mean[0]
    np.testing.assert_allclose(values[0, :, 0] * deviation + mean, [21, 22, 23, 24], rtol=1e-5)
    np.testing.assert_allclose(after[0, :, 0] * deviation + mean, [25, 26], rtol=1e-5)


def test_scaling_is_learned_from_the_training_part_alone(table, tmp_path):
    wild = [*ROWS[:19], *(f"{line},{10**6},{10**6}" for line in (row.split(",")[0] for row in ROWS[19:]))]
    windows = prepare(config(table(wild)), tmp_path, lambda sentence: None)
    assert windows.mean[0] == pytest.approx(np.mean(range(1, 19)))


def test_a_run_reads_the_same_windows_again(table, tmp_path):
    settings = config(table(ROWS))
    first, again = prepare(settings, tmp_path, lambda sentence: None), reopen(settings, tmp_path)
    assert again.borders == first.borders
    np.testing.assert_array_equal(again.examples(range(4, 8))[0], first.examples(range(4, 8))[0])
    for name in ("values.npy", "days.npy", "timeline.json"):
        kept = (tmp_path / "timeline" / name).read_bytes()
        for damage in (b"", b"no array", kept[:-7]):
            (tmp_path / "timeline" / name).write_bytes(damage)
            with pytest.raises(UserError, match="damaged"):
                reopen(settings, tmp_path)
        (tmp_path / "timeline" / name).unlink()
        os.mkfifo(tmp_path / "timeline" / name)  # is refused, never waited for
        with pytest.raises(UserError, match="damaged"):
            reopen(settings, tmp_path)
        (tmp_path / "timeline" / name).unlink()
        (tmp_path / "timeline" / name).write_bytes(kept)


def test_a_missing_value_is_read_as_the_last_known_one_and_never_told(table, tmp_path):
    holes = [row if number not in (10, 26) else row.rsplit(",", 2)[0] + ",,5" for number, row in enumerate(ROWS)]
    windows: Windows = prepare(config(table(holes)), tmp_path, lambda sentence: None)
    assert windows.filled[9, 0] == windows.scaled[8, 0]
    assert np.isnan(windows.scaled[9, 0])
    assert np.isnan(windows.examples([25])[1][0, 0, 0])
    assert fill_forward(np.array([[np.nan], [2.0]], np.float32)).tolist() == [[0.0], [2.0]]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"target": "aa"}, "did you mean a"),
        ({"look_back": 40}, "30 rows: 18 to train on"),
        ({"test": 1}, "1 to test by"),
    ],
)
def test_settings_that_do_not_fit_the_table_are_refused(table, tmp_path, settings, sentence):
    with pytest.raises(ConfigError, match=sentence):
        prepare(config(table(ROWS), **settings), tmp_path, lambda sentence: None)
