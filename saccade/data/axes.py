"""What stands along the two sides of an attention map: words, a picture's cells, or points in time."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Tokens:
    """Words or subwords, in reading order."""

    words: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.words)


@dataclass(frozen=True)
class Grid:
    """The cells of an image (patches, pixels or feature-map cells), row by row. `extra` names leading non-cell tokens ("[class]")."""

    rows: int
    columns: int
    extra: tuple[str, ...] = ()
    cell: int | None = None  # pixels on a side of a cell; unless given, the cells share the image evenly

    def __len__(self) -> int:
        return len(self.extra) + self.rows * self.columns

    def covered(self, rows: int, columns: int) -> tuple[int, int]:
        """The rows and columns of pixels under all cells of an image of that size: more, where the last cells hang over its edge."""
        return (rows, columns) if self.cell is None else (self.rows * self.cell, self.columns * self.cell)


@dataclass(frozen=True)
class Steps:
    """Points in time (dates, glimpses, frames), each with its label."""

    labels: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)


Axis = Tokens | Grid | Steps
