"""A toy that a small model learns in seconds: digits to be written backwards. Its gold alignment is the anti-diagonal.

Pairs to validate and test have up to 15 digits. Training pairs too, unless fewer are asked for (10 in JoeyNMT's toy): then one sees
whether a model has learned where to look, and goes on beyond the lengths it has seen, or has learned the places by heart.
"""

import random
from collections.abc import Iterator
from itertools import islice

from saccade.data.builtin.phrasebook.phrases import Phrase, Split, in_split

LONGEST = 15


def reversed_digits(split: Split, count: int, seed: int = 1, longest: int = LONGEST) -> list[Phrase]:
    """ "3 1 4" with "4 1 3": `count` pairs of 1 to `longest` digits. Short ones come again; no pair is in two splits."""
    return list(islice(in_split(split, _pairs(seed, longest)), count))


def _pairs(seed: int, longest: int) -> Iterator[Phrase]:
    draw = random.Random(seed).random
    while True:
        length = 1 + int(longest * draw())
        digits = [str(int(10 * draw())) for _ in range(length)]
        alignment = tuple((place, length - 1 - place) for place in range(length))
        yield Phrase(" ".join(digits), " ".join(reversed(digits)), alignment)
