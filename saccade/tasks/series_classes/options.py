"""What may be asked of a run that names the classes of series."""

from pathlib import Path

from saccade.config.options import Options, option


class SeriesOptions(Options):
    best: int | None = option(1, "predict", "how many of the likeliest classes, a line each", ge=1, most_served=1000)
    out: Path | None = option(
        None,
        "predict",
        "also write a table of id, class, probability and every class's probability, as .csv or .parquet",
    )
    data: Path | None = option(None, "evaluate", "another table of series with labels instead")
    confusion: Path | None = option(None, "evaluate", "also draw the confusion matrix, as .png, .svg or .pdf")
    mistakes: Path | None = option(
        None, "evaluate", "also list every series that is mistaken for another class, the surest first, tab-separated"
    )
    seasons: Path | None = option(
        None, "evaluate", "also draw the mean attention of each class over the season, as .png, .svg or .pdf"
    )
    without: str | None = option(
        None, "predict look", "dates to leave out, with commas, such as 2020-05-01,2020-06-01", max_length=20_000
    )
    only: str | None = option(
        None, "look", "attention modules to show, by pattern such as 'layers.1*'; '*' is all", max_length=200
    )
