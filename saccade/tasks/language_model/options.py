"""What may be asked of a run that writes on."""

from pathlib import Path
from typing import Any

from pydantic import Field

from saccade.config.options import Options, option
from saccade.config.recipe import Config
from saccade.decoding import Continuing, SamplingConfig

_MOST_TOKENS = 100_000


class DecodeConfig(Config):
    """The `decode` section of a recipe: how it writes unless somebody asks for something else."""

    tokens: int = Field(200, ge=1, le=_MOST_TOKENS, description="how many to write")
    temperature: float = Field(0.8, ge=0, le=1000, description="below 1 is surer, above 1 bolder; 0 is greedy")
    top_k: int | None = Field(None, ge=1)
    top_p: float = Field(1.0, gt=0, le=1)
    min_p: float = Field(0.0, ge=0, le=1)
    repetition_penalty: float = Field(1.0, gt=0, le=100)
    seed: int = 1

    def continuing(self) -> Continuing:
        if self.temperature == 0:
            return Continuing(None, self.repetition_penalty)
        sampling = SamplingConfig(1, max(self.temperature, 0.001), self.top_k, self.top_p, self.min_p)
        return Continuing(sampling, self.repetition_penalty)


class LanguageOptions(Options):
    """What is not given is as in the recipe's `decode` section."""

    tokens: int | None = option(
        None,
        "predict look",
        "how many tokens to write; a look writes none unless asked",
        ge=0,
        le=_MOST_TOKENS,
        most_served=2000,
    )
    temperature: float | None = option(
        None, "predict look", "below 1 is surer, above 1 bolder; 0 is greedy", ge=0, le=1000
    )
    top_k: int | None = option(None, "predict look", "from the k likeliest tokens only", ge=1)
    top_p: float | None = option(None, "predict look", "from the likeliest tokens that hold this share", gt=0, le=1)
    min_p: float | None = option(
        None, "predict look", "from tokens at least so many times as likely as the likeliest", ge=0, le=1
    )
    repetition_penalty: float | None = option(
        None, "predict look", "above 1: what stands there already becomes less likely", gt=0, le=100
    )
    stop: str | None = option(
        None, "predict look", "stop before this text; several with | between them, \\n is a new line", max_length=500
    )
    seed: int | None = option(None, "predict look", "another seed, another text", ge=0, lt=2**63)
    samples: int = option(1, "predict", "how many texts for each prompt", ge=1, le=1000, most_served=20)
    data: Path | None = option(None, "evaluate", "another text instead: a file or a folder")
    only: str | None = option(
        None,
        "look",
        "attention modules to show with all of their heads, by pattern such as 'layers.0.*'; '*' is all",
        max_length=200,
    )

    def decode(self, recipe: DecodeConfig) -> DecodeConfig:
        """The recipe's settings with what was chosen in their place."""
        own: dict[str, Any] = {name: getattr(self, name) for name in DecodeConfig.model_fields}
        return recipe.model_copy(update={name: value for name, value in own.items() if value is not None})

    @property
    def stops(self) -> tuple[str, ...]:
        written = (self.stop or "").replace("\\n", "\n").replace("\\t", "\t")
        return tuple(part for part in written.split("|") if part)

    @property
    def may_share_a_batch(self) -> bool:
        """What is drawn depends on the place in the batch."""
        return False


class MaskedOptions(Options):
    """Of a model that guesses what was masked."""

    best: int = option(1, "predict", "how many guesses, a line each", ge=1, le=1000, most_served=20)
    data: Path | None = option(None, "evaluate", "another text instead: a file or a folder")
    only: str | None = option(
        None,
        "look",
        "attention modules to show with all of their heads, by pattern such as 'layers.0.*'; '*' is all",
        max_length=200,
    )
