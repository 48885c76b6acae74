"""How large an image is."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ImageShape:
    channels: int
    rows: int
    columns: int
