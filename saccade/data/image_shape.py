"""How large the images of a model are, and how others are made so."""

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from saccade.stored import Stored

MOST_PIXELS = 4096  # a side


@dataclass(frozen=True)
class ImageShape:
    channels: int
    rows: int
    columns: int
    stretched: bool = False  # an image of other proportions is stretched to this size; else what overhangs is cut off
    resampling: str = "bicubic"  # the filter that scales images, as Pillow names it

    @property
    def sizes(self) -> tuple[int, int, int]:
        return self.channels, self.rows, self.columns


class StoredShape(Stored):
    """The same as a run's file has it."""

    channels: Literal[1, 3]
    rows: int = Field(ge=1, le=MOST_PIXELS)
    columns: int = Field(ge=1, le=MOST_PIXELS)
    stretched: bool = False
    resampling: Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"] = "bicubic"

    def shape(self) -> ImageShape:
        return ImageShape(self.channels, self.rows, self.columns, self.stretched, self.resampling)
