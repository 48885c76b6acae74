"""How large the images of a model are, and how others are made so."""

from dataclasses import dataclass


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
