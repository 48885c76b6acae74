"""Word vectors from a text file in GloVe's format: a word and its numbers on each line, the most frequent words first.

fastText's and word2vec's text files are the same but for a first line of two counts, which is skipped.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from saccade.data.text.lines import check_readable, read_lines
from saccade.errors import UserError

Matrix = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True)
class WordVectors:
    words: tuple[str, ...]
    matrix: Matrix  # (words, size)

    @property
    def size(self) -> int:
        return int(self.matrix.shape[1])


def read_vectors(path: Path, most: int = 1_000_000) -> WordVectors:
    """The first `most` words of a file and their vectors."""
    check_readable(path)
    words: dict[str, None] = {}
    rows: list[Matrix] = []
    for number, line in enumerate(read_lines(path), start=1):
        word, _, numbers = line.rstrip().partition(" ")
        parts = numbers.split(" ")
        if number == 1 and len(parts) == 1:
            continue
        try:
            row = np.array(parts, np.float32)
        except ValueError:
            raise UserError(
                f"{path}, line {number:,}, is not a word and numbers: give vectors in GloVe's format"
            ) from None
        if rows and len(row) != len(rows[0]):
            raise UserError(
                f"{path}, line {number:,}, has {len(row)} numbers and the lines before {len(rows[0])}: is the file complete?"
            )
        if word not in words:
            words[word] = None
            rows.append(row)
        if len(rows) == most:
            break
    if not rows:
        raise UserError(f"{path} holds no word vectors: give a file in GloVe's format, a word and its numbers a line")
    return WordVectors(tuple(words), np.stack(rows))
