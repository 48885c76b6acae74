"""What may be asked of a run that forecasts."""

from pathlib import Path

from saccade.config.options import Options, option


class ForecastOptions(Options):
    data: Path | None = option(None, "evaluate", "another table instead, with the columns of the run's own")
    only: str | None = option(None, "look", "attention modules to show, by pattern such as 'layers.1*'", max_length=200)
