"""The built-in corpus: English sentences, their French and the gold alignment of their words, in any number.

The sentences come from a small grammar: lexicon.py and expressions.py have the words, grammar.py renders them in both languages at
once, describer.py and author.py compose the content.
The French is a function of the English: whatever French needs to know (gender, number, what a pronoun stands for) is said in
the same sentence or fixed by convention ("you" is "vous" and several men, "they" is "ils", whoever says "I" is a man).

Sentences have 3 to 40 words, punctuation counted: 17 % have fewer than 10, 39 % 10 to 19, 29 % 20 to 29 and 15 % 30 or more; the
average is 19. English uses about 540 different words, French about 790 with all their forms.

Words are counted by `split_words`. Alignments are pairs (English word, French word) of sure links; what has no counterpart
is unaligned. grammar.py decides which words are aligned.
"""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice

from saccade.data.splits import SPLITS, SplitName
from saccade.errors import UserError

from .author import Author
from .describer import in_month
from .expressions import AREA, MONTHS, ON, YEARS
from .grammar import Span, begins_with_vowel, join, named, noun_phrase, passive, prepositional, with_more
from .lexicon import PAPERS, THE, VERBS

ELIDED = {"le": "l'", "la": "l'", "de": "d'", "que": "qu'", "ne": "n'", "je": "j'", "me": "m'", "si": "s'"}
SOUNDS_LIKE_YOU = ("uni", "use")
WORD = re.compile(r"\w+(?:-\w+)*['’]?|[^\w\s]")


@dataclass(frozen=True)
class Phrase:
    source: str
    target: str
    alignment: tuple[tuple[int, int], ...]  # (source word, target word), sorted


def phrases(split: SplitName, count: int, seed: int = 1) -> list[Phrase]:
    """`count` different pairs. A larger count starts with those of a smaller one; no sentence is ever in two splits."""
    return list(islice(_distinct(in_split(split, _sentences(seed))), count))


def split_words(text: str) -> list[str]:
    """Words and punctuation marks, in either language; an apostrophe ends its word: "L'accord." is "L'", "accord", "."."""
    return WORD.findall(text)


def in_split(split: SplitName, pairs: Iterator[Phrase]) -> Iterator[Phrase]:
    """Those of `pairs` that belong to the split. The target decides: equal sources have equal targets, so neither side is shared."""
    if split not in SPLITS:
        raise UserError(f"there is no split {split!r} of the built-in corpus: use train, valid or test")
    return (pair for pair in pairs if split_of(pair.target) == split)


def split_of(text: str) -> SplitName:
    """Six eighths train, one eighth valid, one eighth test, by a hash that is the same on every machine."""
    eighth = blake2b(text.encode(), digest_size=1, person=b"saccade.data").digest()[0] % 8
    return "valid" if eighth == 0 else "test" if eighth == 1 else "train"


def _sentences(seed: int) -> Iterator[Phrase]:
    author = Author(random.Random(seed))
    while True:
        yield phrase(author.sentence())


def _distinct(pairs: Iterator[Phrase]) -> Iterator[Phrase]:
    sources = {LECTURE_SENTENCE.source}
    for pair in pairs:
        if pair.source not in sources:
            sources.add(pair.source)
            yield pair


def phrase(span: Span) -> Phrase:
    """A whole sentence as it is written: full stop, capital letters, "an", elision."""
    english = []
    for position, word in enumerate(span.english):
        word.position = position
        english.append(word.text)
    for position in [position for position, text in enumerate(english) if text == "a"]:
        if english[position + 1][0] in "aeiouAIO" and not english[position + 1].startswith(SOUNDS_LIKE_YOU):
            english[position] = "an"
    french, links, following = [], [(len(english), len(span.french))], "."
    for place in range(len(span.french) - 1, -1, -1):
        text, aligned = span.french[place]
        french.append(_elided(text, following) if text in ELIDED else text)
        following = text
        for word in aligned:
            links.append((word.position, place))
    return Phrase(_written(english), _written(french[::-1]), tuple(sorted(links)))


def _elided(text: str, following: str) -> str:
    elides = following in ("il", "ils") if text == "si" else begins_with_vowel(following)
    return ELIDED[text] if elides else text


def _written(words: list[str]) -> str:
    text = " ".join(words).replace(" ,", ",").replace("' ", "'")
    return text[0].upper() + text[1:] + "."


def _lecture_sentence() -> Phrase:
    agreement = with_more(noun_phrase(THE, PAPERS.nouns[0]), prepositional(ON, named(AREA)))
    august, year = MONTHS[7], YEARS[3]
    return phrase(join(agreement, passive(agreement, VERBS["sign"], "was"), in_month(august, year)))


# The sentence that lectures draw. The grammar could write it, so it is kept out of every split.
LECTURE_SENTENCE = _lecture_sentence()
