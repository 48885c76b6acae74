"""What may be asked of a run that names the class of a text."""

from pathlib import Path

from saccade.config.options import Options, option


class TextOptions(Options):
    best: int | None = option(1, "predict", "how many of the likeliest classes, a line each", ge=1, most_served=1000)
    data: Path | None = option(
        None,
        "evaluate",
        "other texts with labels instead: a table, a folder of classes, or lines that begin with a label",
    )
    confusion: Path | None = option(None, "evaluate", "also draw the confusion matrix, as .png, .svg or .pdf")
    mistakes: Path | None = option(
        None, "evaluate", "also list every text that is mistaken for another class, the surest first, tab-separated"
    )
    rationales: int = option(
        200,
        "evaluate",
        "texts whose attention is scored against what people marked, where data have that; 0 for none",
        ge=0,
    )
    only: str | None = option(
        None,
        "look",
        "attention modules to show, by pattern such as 'layers.1*'; '*' is all with all heads",
        max_length=200,
    )
    tokens: bool = option(False, "look", "show the tokens that the model reads, not words")
