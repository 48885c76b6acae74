"""A toy corpus that a small model learns in seconds: digits in reverse order. Its gold alignment is the anti-diagonal.

Pairs to validate and test have up to 15 digits. Training pairs too, unless fewer are set (10 in JoeyNMT's toy): that shows
whether a model generalises to longer inputs than it was trained on.
"""

import random
from collections.abc import Iterator
from itertools import islice

from saccade.data.builtin.phrasebook.phrases import Phrase, in_split
from saccade.data.splits import SplitName

LONGEST = 15


def reversed_digits(split: SplitName, count: int, seed: int = 1, longest: int = LONGEST) -> list[Phrase]:
    """ "3 1 4" with "4 1 3": `count` pairs of 1 to `longest` digits. Short ones repeat; no pair is in two splits."""
    return list(islice(in_split(split, _pairs(seed, longest)), count))


def _pairs(seed: int, longest: int) -> Iterator[Phrase]:
    draw = random.Random(seed).random
    while True:
        length = 1 + int(longest * draw())
        digits = [str(int(10 * draw())) for _ in range(length)]
        alignment = tuple((place, length - 1 - place) for place in range(length))
        yield Phrase(" ".join(digits), " ".join(reversed(digits)), alignment)
