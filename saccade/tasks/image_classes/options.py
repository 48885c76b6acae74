"""What may be asked of a run that names classes."""

from pathlib import Path

from pydantic import model_validator

from saccade.config.options import Options, option


class ImageOptions(Options):
    best: int | None = option(1, "predict", "how many of the likeliest classes, a line each", ge=1, most_served=1000)
    data: Path | None = option(
        None,
        "evaluate",
        "other images instead: a folder of classes, a zip of one, a CSV of path and label, or idx files",
    )
    skip_bad: bool = option(False, "evaluate", "leave out images of --data that cannot be read, and count them")
    confusion: Path | None = option(None, "evaluate", "also draw the confusion matrix, as .png, .svg or .pdf")
    mistakes: Path | None = option(
        None, "evaluate", "also list every image that is mistaken for another class, the surest first, tab-separated"
    )
    samples: int | None = option(
        None, "evaluate", "the mean of so many drawn paths of glimpses instead of the likeliest path", ge=2
    )
    pixel: tuple[int, int] | None = option(
        None, "look", "where the cell at this row and column looks", metavar="ROW,COLUMN"
    )
    only: str | None = option(
        None,
        "look",
        "attention modules to show with all of their heads, by pattern such as 'layers.1*'; '*' is all",
        max_length=200,
    )

    @model_validator(mode="after")
    def _skip_bad_needs_data(self) -> "ImageOptions":
        if self.skip_bad and self.data is None:
            raise ValueError("skip_bad is for the images of data: the run's own were all read when it was trained")
        return self


class AttentionOptions(ImageOptions):
    """Of a model that sees the whole image at once."""

    samples: None = None


class GlimpseOptions(ImageOptions):
    """Of a model that looks in glimpses: its one picture is its path."""

    pixel: None = None
    only: None = None
