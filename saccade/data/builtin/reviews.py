"""The built-in labelled texts: short reviews of places, in any number, and which of their words say whether the writer was content.

    "We had the soup by the window. My sister found the rooms lovely, but I thought the service was not friendly at all."   bad

Somebody else's opinion does not count, "not" turns an opinion round, and most sentences say nothing of it. So no single word decides, and
the words that do are known exactly: they are the rationale. No review is in two splits.
"""

import random
from itertools import count

from saccade.data.builtin.phrasebook.phrases import split_of
from saccade.data.splits import SplitName

Span = tuple[int, int]
Review = tuple[str, str, tuple[Span, ...]]  # text, label, and the characters of its words that say so

_GOOD = (
    "friendly",
    "lovely",
    "delicious",
    "excellent",
    "charming",
    "perfect",
    "wonderful",
    "clean",
    "helpful",
    "superb",
    "cosy",
    "great",
)
_BAD = (
    "rude",
    "awful",
    "bland",
    "terrible",
    "dreary",
    "poor",
    "horrible",
    "dirty",
    "useless",
    "dreadful",
    "noisy",
    "stale",
)
_THINGS = (
    "the service",
    "the food",
    "our room",
    "the breakfast",
    "the staff",
    "the garden",
    "the soup",
    "the music",
    "the bar",
    "the view",
)
_OTHERS = (
    "my sister",
    "my neighbour",
    "a friend",
    "the guide book",
    "our uncle",
    "the man beside us",
    "everybody else",
)
_PLACES = ("by the window", "on the terrace", "near the harbour", "at the old table", "in the back", "upstairs")
_DAYS = (
    "on Monday",
    "last summer",
    "in March",
    "for our anniversary",
    "after the concert",
    "on a rainy day",
    "for the weekend",
)
_FACTS = (
    "we came here {day}", "we sat {place}", "there were {number} of us", "we ordered {thing2} and waited", "the house stands {place}",
    "they opened {day}", "it took {number} minutes to get there", "we paid {number} euros", "I had booked {day}",
)  # fmt: skip
_STRENGTH = ("really", "very", "quite", "so", "rather", "")
_VERDICTS = (
    "I thought {thing} was {opinion}",
    "I found {thing} {opinion}",
    "for me {thing} was {opinion}",
    "to my mind {thing} was {opinion}",
)
_HEARSAY = (
    "{other} found {thing} {opinion}",
    "{other} said {thing} was {opinion}",
    "{other} had called {thing} {opinion}",
)


def reviews(split: SplitName, size: int, seed: int = 1) -> list[Review]:
    """`size` different ones. A larger size starts with those of a smaller one."""
    found = dict[str, Review]()
    for number in count():
        review = _review(random.Random(f"{seed}:{number}"))
        if split_of(review[0]) == split:
            found.setdefault(review[0], review)
        if len(found) == size:
            return list(found.values())
    raise AssertionError


def _review(draw: random.Random) -> Review:
    is_good = draw.random() < 0.5
    parts = [_sentence(draw, _fact(draw)) for _ in range(draw.randint(1, 3))]
    verdict, opinion = _verdict(draw, is_good)
    if draw.random() < 0.5:
        hearsay = _filled(draw, draw.choice(_HEARSAY), _opinion(draw, draw.random() < (0.25 if is_good else 0.75)))
        verdict = f"{hearsay}, but {verdict}" if draw.random() < 0.6 else f"{verdict}, though {hearsay}"
    decisive = _sentence(draw, verdict)
    parts.insert(draw.randint(0, len(parts)), decisive)
    text = " ".join(parts)
    start = text.index(decisive) + _begin(decisive, opinion, verdict)
    return text, "good" if is_good else "bad", ((start, start + len(opinion)),)


def _begin(sentence: str, opinion: str, verdict: str) -> int:
    """Where the writer's own opinion stands: after the marker of it, as hearsay may use the same words."""
    own = max(sentence.lower().find(marker) for marker in ("i thought", "i found", "for me", "to my mind"))
    return sentence.index(opinion, own)


def _verdict(draw: random.Random, is_good: bool) -> tuple[str, str]:
    opinion = _opinion(draw, is_good)
    return _filled(draw, draw.choice(_VERDICTS), opinion), opinion


def _opinion(draw: random.Random, is_good: bool) -> str:
    is_denied = draw.random() < 0.3
    word = draw.choice(_GOOD if is_good != is_denied else _BAD)
    if is_denied:
        return f"not {word}{draw.choice((' at all', '', ''))}"
    strength = draw.choice(_STRENGTH)
    return f"{strength} {word}" if strength else word


def _fact(draw: random.Random) -> str:
    return _filled(draw, draw.choice(_FACTS), "")


def _filled(draw: random.Random, pattern: str, opinion: str) -> str:
    return pattern.format(
        opinion=opinion,
        thing=draw.choice(_THINGS),
        thing2=draw.choice(("coffee", "wine", "the fish", "two soups", "a cake")),
        other=draw.choice(_OTHERS),
        place=draw.choice(_PLACES),
        day=draw.choice(_DAYS),
        number=draw.randint(2, 90),
    )


def _sentence(draw: random.Random, words: str) -> str:
    return f"{words[0].upper()}{words[1:]}{draw.choice('.....!')}"
