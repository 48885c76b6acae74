"""Tables as people have them: what is read, what is said, and what is refused by one sentence."""

import gzip
from io import StringIO

import numpy as np
import pandas as pd
import pytest

from saccade.data.series.columns import Named
from saccade.data.series.dates import days_of, iso
from saccade.data.series.files import from_frame, read_series
from saccade.data.series.reading import read_text
from saccade.data.series.table import as_text
from saccade.errors import UserError
from saccade.serve.limits import Limits
from saccade.tasks.inputs import Series, SeriesFields

LONG = """id,date,NDVI,NIR,label
a,2018-02-15,0.2,0.3,wheat
a,2018-03-01,,0.4,wheat
b,2018-02-15,0.5,0.6,maize
b,2018-03-01,0.7,0.8,maize
b,2019-03-01,0.9,1.0,maize
"""


@pytest.fixture
def read(tmp_path):
    """The table of a text, with the sentences that were said."""

    def table(text, name="fields.csv", samples=None, **named):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        second = None
        if samples is not None:
            second = tmp_path / "samples.csv"
            second.write_text(samples, encoding="utf-8")
        said = []
        return read_series(path, Named(**named), said.append, second), "\n".join(said)

    return table


def refused(read, text, **named):
    with pytest.raises(UserError) as error:
        read(text, **named)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_long_table_is_read_by_the_names_of_its_columns_and_what_was_found_is_said(read):
    table, said = read(LONG)
    assert table.ids == ("a", "b")
    assert table.bands == ("NDVI", "NIR")
    assert table.labels == ("wheat", "maize")
    assert table.lengths.tolist() == [2, 3]
    assert np.isnan(table.values[1, 0])  # a missing value is not a zero
    assert [iso(day) for day in table.days[-2:]] == ["2018-03-01", "2019-03-01"]
    assert "id id; date date; bands NDVI, NIR; label label" in said


def test_columns_with_other_names_can_be_named(read):
    text = LONG.replace("id,date", "wer,wann").replace("label", "was")
    table, _ = read(text, id="wer", date="wann", label="was", bands=("NIR",))
    assert (table.ids, table.bands, table.labels) == (("a", "b"), ("NIR",), ("wheat", "maize"))
    assert "did you mean wann?" in refused(read, text, id="wer", date="wan")


def test_columns_that_never_change_within_a_series_are_no_bands(read):
    """An area or the number of a crop gives the class away."""
    table, said = read("id,date,NDVI,crop_code,label\na,2018-01-01,1,7,x\na,2018-01-02,2,7,x\n")
    assert table.bands == ("NDVI",)
    assert "not used: crop_code (the same on every date)" in said


@pytest.mark.parametrize(
    ("heads", "bands"),
    [
        (("20150720_N", "20150602_N", "20150517_N"), ("N",)),
        (("b04_20210104", "b04_20210109", "b04_20210114"), ("b04",)),
        (("NDVI_2021-01-04", "NDVI_2021-01-09", "B4_2021-01-04"), ("NDVI", "B4")),
    ],
)
def test_a_wide_table_has_a_column_for_each_date_in_any_order(read, heads, bands):
    table, said = read(f"ID,class,{','.join(heads)}\n1,water,1,2,3\n2,wood,,5,6\n")
    assert table.bands == bands
    assert (np.diff(table.days[: table.lengths[0]]) > 0).all()
    assert table.labels == ("water", "wood")
    assert "as columns of" in said
    if bands == ("N",):
        assert table.values[:3, 0].tolist() == [3, 2, 1]  # the newest came first


def test_gz_parquet_and_semicolons_give_the_same_table(read, tmp_path):
    plain, _ = read(LONG)
    with gzip.open(tmp_path / "fields.csv.gz", "wt") as file:
        file.write(LONG)
    packed = read_series(tmp_path / "fields.csv.gz", Named(), print)
    german, said = read(LONG.replace(",", ";").replace(".", ","), "german.csv")
    others = [packed, german]
    if pytest.importorskip("pyarrow"):
        pd.read_csv(tmp_path / "fields.csv").to_parquet(tmp_path / "fields.parquet")
        others.append(read_series(tmp_path / "fields.parquet", Named(), print))
    for other in others:
        assert other.ids == plain.ids
        np.testing.assert_array_equal(other.values, plain.values)
        np.testing.assert_array_equal(other.days, plain.days)
    assert "writes decimals with commas: NDVI, NIR" in said


def test_a_second_table_gives_place_and_group_by_id(read):
    table, _ = read(LONG, samples="id,longitude,latitude,region\nb,10.5,50,south\na,10,51,north\n", group="region")
    assert table.groups == ("north", "south")
    assert table.places.tolist() == [[10, 51], [10.5, 50]]
    assert table.in_degrees


def test_the_second_table_has_a_row_for_each_field_and_not_for_each_season(read):
    text = "id,date,v,year\n1.0,2018-05-01,1,2018/19\n1.0,2018-06-01,2,2018/19\n1.0,2019-05-01,3,2019/20\n"
    table, _ = read(text, samples="id,region,label\n1,north,wheat\n", season="year", group="region")
    assert table.ids == ("1/2018/19", "1/2019/20")
    assert (table.groups, table.labels) == (("north", "north"), ("wheat", "wheat"))
    wide, _ = read("id,v_20200101,v_20200201,v_20200301\n2,1,2,3\n", samples="id,label\n2.0,maize\n,rice\n")
    assert wide.labels == ("maize",)


def test_a_label_and_a_place_may_be_named_in_either_table(read):
    text = "id,date,v,was,e,n\na,2020-01-01,1,wheat,3,4\na,2020-02-01,2,wheat,3,4\n"
    second = "id,kind,east,north\na,maize,1,2\n"
    here, _ = read(text, samples=second, label="was", x="e", y="n")
    there, _ = read(text, samples=second, label="kind", x="east", y="north")
    assert (here.labels, here.places.tolist()) == (("wheat",), [[3, 4]])
    assert (there.labels, there.places.tolist()) == (("maize",), [[1, 2]])
    with pytest.raises(UserError, match=r"no column kin \(data\.label\): did you mean kind"):
        read(text, samples=second, label="kin")


def test_a_column_of_labels_that_is_not_filled_does_not_hinder_a_prediction(read):
    text = LONG.replace("wheat", "")
    table, _ = read(text, to_predict=True)
    assert (table.ids, table.labels) == (("a", "b"), None)
    wide, _ = read("id,label,v_20200101,v_20200201,v_20200301\n2,,1,2,3\n", to_predict=True)
    assert wide.labels is None
    frame = pd.read_csv(StringIO(LONG.replace("wheat", "").replace("maize", "")))
    example = Series(("NDVI", "NIR"), True, Named()).from_python(frame[frame.id == "b"])
    assert example.truth is None


def test_files_of_the_archives_are_read(read, tmp_path):
    tsv, _ = read("1\t0.1\t0.2\t0.3\n2\t0.4\t0.5\t0.6\n", "Crop_TRAIN.tsv")
    ts, _ = read("@problemName x\n@classLabel true a b\n@data\n1,2,3:4,5,6:a\n7,8:9,?:b\n", "x.ts")
    arff, _ = read("@relation x\n@attribute a numeric\n@data\n0.1,0.2,1\n0.3,?,2\n", "x.arff")
    assert (tsv.labels, tsv.bands, tsv.has_dates) == (("1", "2"), ("value",), False)
    assert ts.labels == ("a", "b")
    assert ts.lengths.tolist() == [3, 2]
    assert np.isnan(ts.values[-1, 1])
    assert arff.labels == ("1", "2")
    assert np.isnan(arff.values[-1, 0])
    np.save(tmp_path / "x.npy", np.ones((3, 4, 2)))
    np.save(tmp_path / "x_labels.npy", np.array([1, 0, 1]))
    array = read_series(tmp_path / "x.npy", Named(), print)
    assert (len(array), array.bands, array.labels) == (3, ("band 1", "band 2"), ("1", "0", "1"))


def test_an_array_of_objects_is_never_unpickled(tmp_path):
    np.save(tmp_path / "x.npy", np.array([{"a": 1}], object), allow_pickle=True)
    with pytest.raises(UserError, match="cannot be read as an array"):
        read_series(tmp_path / "x.npy", Named(), print)


def test_dates_out_of_order_are_sorted_and_said(read):
    lines = LONG.splitlines()
    table, said = read("\n".join([lines[0], *reversed(lines[1:])]))
    assert "out of order" in said
    assert all((np.diff(table.days[table.rows(number)]) > 0).all() for number in range(2))


def test_times_of_day_are_kept(read):
    table, _ = read("id,date,v\na,2018-01-01 06:00:00,1\na,2018-01-01 18:00:00,2\n")
    assert np.diff(table.days).tolist() == [0.5]
    assert iso(table.days[0]) == "2018-01-01 06:00"


# Dates that may mean two things


def test_the_order_of_day_and_month_is_seen_from_the_other_dates_or_asked_for():
    days, _ = days_of(pd.Series(["03/04/2018", "25/04/2018"]), "date")
    assert [iso(day) for day in days] == ["2018-04-03", "2018-04-25"]
    with pytest.raises(UserError, match=r"03/04/2018, may have the day or the month first: set data\.day_first"):
        days_of(pd.Series(["03/04/2018", "05/06/2018"]), "date")
    american, _ = days_of(pd.Series(["03/04/2018"]), "date", day_first=False)
    assert iso(american[0]) == "2018-03-04"
    with pytest.raises(UserError, match="with the day first and with the month first"):
        days_of(pd.Series(["25/04/2018", "04/25/2018"]), "date")
    with pytest.raises(UserError, match=r"leave data\.day_first out"):
        days_of(pd.Series(["25/04/2018"]), "date", day_first=False)


@pytest.mark.parametrize(
    ("date", "day_first", "hours"),
    [
        ("01.02.2009 00:10:30", True, 0.175),
        ("01.02.2009 6:30", True, 6.5),
        ("02/01/2009 6:30 PM", False, 18.5),
        ("02/01/2009 12:15 am", False, 0.25),
        ("02/01/2009", False, 0),
    ],
)
def test_dates_with_the_year_last_keep_their_time_of_day(date, day_first, hours):
    found, has_dates = days_of(pd.Series([date]), "date", day_first)
    assert has_dates
    assert (found[0] - days_of(pd.Series(["2009-02-01"]), "date")[0][0]) * 24 == pytest.approx(hours)


def test_a_time_of_day_that_cannot_be_read_is_refused():
    with pytest.raises(UserError, match="row 2 holds 25/04/2018 25:00: write dates as"):
        days_of(pd.Series(["25/04/2018 10:00", "25/04/2018 25:00"]), "date")


def test_summer_time_neither_stops_a_table_nor_takes_an_hour_from_it():
    """At one o'clock in UTC the clocks go from two to three."""
    texts = ["2020-03-29T01:00:00+01:00", "2020-03-29T03:00:00+02:00", "2020/03/29 02:00:00"]
    column = pd.Series(texts)
    found = [iso(day) for day in days_of(column, "date")[0]]
    assert found == ["2020-03-29", "2020-03-29 01:00", "2020-03-29 02:00"]
    moments = pd.Series(pd.to_datetime(texts[:2], utc=True)).dt.tz_convert("Europe/Berlin")
    assert [iso(day) for day in days_of(moments, "date")[0]] == found[:2]


def test_a_run_whose_columns_a_person_named_reads_its_own_examples_and_the_columns_as_named():
    named = Named(id="wer", date="wann", cloud="wolke")
    text = "wer,wann,v,wolke\na,2020-01-01,1,0\na,2020-02-01,2,0.5\n"
    table = from_frame(read_text(text, print), named, "x", print)
    reads = Series(("v",), True, named)
    for own in (text, as_text(table)):
        read = reads.from_json(SeriesFields(series=own), Limits(characters=1000)).content
        assert read.days.tolist() == table.days.tolist()
        assert read.clouds.tolist() == [0, 0.5]


# What is refused


def test_a_table_without_dates_says_which_columns_it_has(read):
    text = "id,NDVI,label\na,0.1,x\nb,0.2,y\n"
    assert "has no column of dates" in refused(read, text)
    assert "the columns are id, NDVI, label" in refused(read, text)


def test_two_labels_for_one_id_are_refused_and_seasons_are_the_way_out(read):
    text = LONG.replace("0.9,1.0,maize", "0.9,1.0,rice")
    assert "gives b two labels, maize and rice" in refused(read, text)
    with_years = "\n".join(
        line + ("," + line.split(",")[1][:4] if line[0] in "ab" else ",year") for line in text.splitlines()
    )
    table, _ = read(with_years, season="year")
    assert table.ids == ("a/2018", "b/2018", "b/2019")
    assert table.labels == ("wheat", "maize", "rice")


def test_seasons_are_told_apart_in_predicting_too_and_a_table_of_one_season_needs_no_column(read):
    text = "id,date,v,year\na,2018-05-01,1,2018\na,2019-05-01,2,2019\n"
    reads = Series(("v",), True, Named(season="year"))
    frame = pd.read_csv(StringIO(text))
    with pytest.raises(UserError, match="holds 2 series"):
        reads.from_python(frame)
    one = reads.from_python(frame[:1].drop(columns="year"))
    assert (one.content.ids, one.content.lengths.tolist()) == (("a",), [1])
    assert "no column year" in refused(read, "id,date,v\na,2018-05-01,1\n", season="year")


def test_a_date_that_stands_twice_is_refused_unless_one_says_what_to_take(read):
    text = LONG + "b,2019-03-01,0.1,0.2,maize\n"
    assert "has 2019-03-01 of b more than once" in refused(read, text)
    first, said = read(text, same_date="first")
    mean, _ = read(text, same_date="mean")
    assert first.values[-1].tolist() == pytest.approx([0.9, 1.0])
    assert mean.values[-1].tolist() == pytest.approx([0.5, 0.6])
    assert "1 rows are of an id and date that another row has" in said


def test_a_band_of_text_is_refused_by_its_row(read):
    text = LONG.replace("0.7,0.8", "cloudy,0.8")
    assert "the band NDVI should hold numbers, and row 4 holds 'cloudy'" in refused(read, text)
    assert "should hold numbers" in refused(read, LONG, bands=("label",))


def test_a_table_in_which_nothing_was_measured_is_refused(read):
    text = "id,date,NDVI,label\na,2018-01-01,,x\na,2018-01-02,,x\nb,2018-01-01,,y\n"
    assert "not one value was measured" in refused(read, text, bands=("NDVI",))


def test_empty_files_and_rows_without_labels_are_refused(read):
    assert "is empty" in refused(read, "")
    assert "no rows" in refused(read, "id,date,NDVI\n")
    assert "row 1 has no label" in refused(read, LONG.replace("0.3,wheat", "0.3,"))
    assert "should hold dates, and row 2 holds" in refused(read, LONG.replace("2018-03-01,,0.4", "spring,,0.4"))


def test_text_that_is_no_table_is_called_a_text():
    for text, sentence in (("", "the text cannot be read as a table"), ("date,v\n", "the text has names of columns")):
        with pytest.raises(UserError, match=sentence):
            read_text(text, print)
