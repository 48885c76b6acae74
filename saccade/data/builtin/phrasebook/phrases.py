"""The built-in corpus: English sentences, their French and the gold alignment of their words, as many as you ask for.

The sentences come from a small grammar: `phrasebook_lexicon` and `phrasebook_expressions` hold the words, `phrasebook_grammar`
renders them in both languages at once, `phrasebook_describer` and `phrasebook_author` invent what is said.
The French is a function of the English: whatever French needs to know (gender, number, what a pronoun stands for) is said in
the same sentence or fixed by convention ("you" is "vous" and several men, "they" is "ils", whoever says "I" is a man).

Sentences have 3 to 40 words, punctuation counted: 17 % have fewer than 10, 39 % 10 to 19, 29 % 20 to 29 and 15 % 30 or more; the
average is 19. English uses about 540 different words, French about 790 with all their forms.

Words are counted by `split_words`. Alignments are pairs (English word, French word) of sure links; what has no counterpart
stays unaligned. `phrasebook_grammar` says which words go together.
"""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from typing import Literal, get_args

from saccade.errors import UserError

from .author import Author
from .describer import in_month
from .expressions import AREA, MONTHS, ON, YEARS
from .grammar import Span, begins_with_vowel, join, named, noun_phrase, passive, prepositional, with_more
from .lexicon import PAPERS, THE, VERBS

Split = Literal["train", "valid", "test"]
ELIDED = {"le": "l'", "la": "l'", "de": "d'", "que": "qu'", "ne": "n'", "je": "j'", "me": "m'", "si": "s'"}
SOUNDS_LIKE_YOU = ("uni", "use")
WORD = re.compile(r"\w+(?:-\w+)*['’]?|[^\w\s]")


@dataclass(frozen=True)
class Phrase:
    source: str
    target: str
    alignment: tuple[tuple[int, int], ...]  # (source word, target word), sorted


def phrases(split: Split, count: int, seed: int = 1) -> list[Phrase]:
    """`count` different pairs. A larger count starts with those of a smaller one; no sentence is ever in two splits."""
    return list(islice(_distinct(in_split(split, _sentences(seed))), count))


def split_words(text: str) -> list[str]:
    """Words and punctuation marks, in either language; an apostrophe ends its word: "L'accord." is "L'", "accord", "."."""
    return WORD.findall(text)


def in_split(split: Split, pairs: Iterator[Phrase]) -> Iterator[Phrase]:
    """Those of `pairs` that belong to the split. The target decides: equal sources have equal targets, so neither side is shared."""
    if split not in get_args(Split):
        raise UserError(f"There is no split {split!r} of the built-in corpus; use train, valid or test.")
    return (pair for pair in pairs if split_of(pair.target) == split)


def split_of(text: str) -> Split:
    """Six eighths train, one eighth valid, one eighth test, by a hash that is the same everywhere and always."""
    eighth = blake2b(text.encode(), digest_size=1, person=b"saccade.data").digest()[0] % 8
    return "valid" if eighth == 0 else "test" if eighth == 1 else "train"


def _sentences(seed: int) -> Iterator[Phrase]:
    author = Author(random.Random(seed))
    while True:
        yield phrase(author.sentence())


def _distinct(pairs: Iterator[Phrase]) -> Iterator[Phrase]:
    seen = {LECTURE_SENTENCE.source}
    for pair in pairs:
        if pair.source not in seen:
            seen.add(pair.source)
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
