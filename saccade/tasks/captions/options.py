"""What may be asked of a run that describes images."""

from pathlib import Path

from pydantic import model_validator

from saccade.config.options import option
from saccade.tasks.writing import SearchOptions


class CaptionOptions(SearchOptions):
    data: Path | None = option(
        None, "evaluate", "other images instead: a folder or zip of them, whose captions --reference names"
    )
    reference: Path | None = option(None, "evaluate", "the captions of the images of --data, as training reads them")
    target: str | None = option(None, "look", "a given caption instead of the model's own")
    only: str | None = option(
        None, "look", "attention modules to show with all of their heads, by pattern", max_length=200
    )

    @model_validator(mode="after")
    def _data_has_references(self) -> "CaptionOptions":
        if (self.data is None) != (self.reference is None):
            raise ValueError("data and reference go together: give the images and the file with their captions")
        return self
