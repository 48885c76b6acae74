"""What a model must know of the data before it is built. Each asks for what it needs; `build(config, shapes)` is the one signature."""

from dataclasses import dataclass

from saccade.data.image_shape import ImageShape
from saccade.data.series.batch import SeriesShape


@dataclass(frozen=True)
class WindowShape:
    """A window of a table over time: what is read, and what is said about the steps after it."""

    variables: int
    look_back: int  # steps that are read
    horizon: int  # steps that are forecast
    outputs: int = 1  # of each step: its mean, or a quantile each
    same_day: bool = False  # what is told is the window's own last step of a variable, which is hidden in it


@dataclass(frozen=True)
class Shapes:
    image: ImageShape | None = None
    classes: int = 0
    source_words: int = 0  # of the vocabulary that is read
    target_words: int = 0  # of the vocabulary that is written
    letters: int = 0  # that words are spelled with, where they are read too
    spans: bool = False  # whether the answer is a part of what is read: its first and its last position
    series: SeriesShape | None = None
    window: WindowShape | None = None

    def require_image(self) -> ImageShape:
        if self.image is None:
            raise ValueError("this model reads images: give Shapes(image=...)")
        return self.image

    def require_window(self) -> WindowShape:
        if self.window is None:
            raise ValueError("this model forecasts: give Shapes(window=...)")
        return self.window

    def require_series(self) -> SeriesShape:
        if self.series is None:
            raise ValueError("this model reads series: give Shapes(series=...)")
        return self.series
