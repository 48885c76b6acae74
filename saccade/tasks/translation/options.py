"""What may be asked of a run that translates."""

from pathlib import Path
from typing import Literal

from pydantic import model_validator

from saccade.config.options import option
from saccade.tasks.writing import SearchOptions


class TranslationOptions(SearchOptions):
    engine: Literal["torch", "ctranslate2"] = option(
        "torch", "predict", "inference engine; ctranslate2 (int8) is exported on first use", served=False
    )
    data: Path | None = option(
        None,
        "evaluate",
        "other sentences instead: a text file whose translations --reference names, or one TSV or JSON lines",
    )
    reference: Path | None = option(None, "evaluate", "the translations of --data, line by line")
    target: str | None = option(None, "look", "a given translation instead of the model's own")
    subwords: bool = option(False, "look", "show the model's tokens instead of whole words")
    only: str | None = option(
        None,
        "look",
        "attention modules to show with all of their heads, by pattern such as 'decoder.*cross*'; '*' is all",
        max_length=200,
    )

    @model_validator(mode="after")
    def _reference_is_of_data(self) -> "TranslationOptions":
        if self.reference is not None and self.data is None:
            raise ValueError("reference needs data: name the sentences that were translated")
        return self
