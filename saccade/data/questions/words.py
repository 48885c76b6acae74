"""Words with their places in the text, and the vocabulary of a model that reads words and letters.

A word is a run of letters and digits, a number with its points and commas, or one mark: finer than for translation, so that an answer
begins and ends where words do.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from tokenizers import Regex, pre_tokenizers

from saccade.errors import UserError
from saccade.files import write_text
from saccade.stored import Stored, read_json

PAD, UNK = 0, 1
LONGEST_WORD = 16  # letters that are read: the first ones
_MOST_LETTERS = 500

_CUT = pre_tokenizers.Sequence(
    [
        pre_tokenizers.Split(Regex(r"\s+"), "removed"),
        pre_tokenizers.Split(
            Regex(r"\p{N}+(?:[.,]\p{N}+)+(?![\p{L}\p{M}\p{N}])|[\p{L}\p{M}\p{N}]+|[^\s\p{L}\p{M}\p{N}]"), "isolated"
        ),
    ]
)
_SENTENCE_ENDS = ".!?。！？…"
_CLOSING = "\"'”’)]»"


@dataclass(frozen=True)
class Cut:
    """A text in words, and where each stands: characters [start, end)."""

    words: tuple[str, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    ids: tuple[int, ...] = ()  # where these are the tokens of a pretrained encoder

    def __len__(self) -> int:
        return len(self.words)


def cut(text: str) -> Cut:
    pieces = _CUT.pre_tokenize_str(text)
    return Cut(
        tuple(word for word, _ in pieces),
        tuple(start for _, (start, _) in pieces),
        tuple(end for _, (_, end) in pieces),
    )


def sentence_numbers(words: Sequence[str], starts: Sequence[int], ends: Sequence[int]) -> list[int]:
    """For each word the number of its sentence: 0 0 0 1 1 ... A mark that ends one needs a space after it, and so does what closes it."""
    numbers, number, ending = [], 0, False
    for place, word in enumerate(words):
        begins_apart = place > 0 and starts[place] > ends[place - 1]
        if ending and begins_apart and word[0] not in _CLOSING:
            number, ending = number + 1, False
        numbers.append(number)
        ending = word[0] in _SENTENCE_ENDS or (ending and word[0] in _CLOSING)
    return numbers


class _StoredLexicon(Stored):
    version: Literal[1]
    lowercase: bool
    words: list[str]
    letters: list[str]


class Lexicon:
    """The words and letters that a model knows. Words are looked up as written, or in lower case; others are one unknown word, told apart
    by their letters."""

    def __init__(self, words: Sequence[str], letters: Sequence[str], lowercase: bool):
        self.words, self.letters, self.lowercase = list(words), list(letters), lowercase
        self._word_ids = {word: number for number, word in enumerate(self.words, start=2)}
        self._letter_ids = {letter: number for number, letter in enumerate(self.letters, start=2)}
        self._spelled: dict[str, tuple[int, list[int]]] = {}

    @classmethod
    def learn(
        cls, counts: Mapping[str, int], size: int, lowercase: bool, least: int = 2, more: Iterable[str] = ()
    ) -> "Lexicon":
        """The most frequent words that occur `least` times or are among `more` (words that have vectors); then the first ones of `more`
        until there are `size`."""
        words: Counter[str] = Counter()
        letters: Counter[str] = Counter()
        for word, count in counts.items():
            words[word.lower() if lowercase else word] += count
            for letter in word[:LONGEST_WORD]:
                letters[letter] += count
        known = dict.fromkeys(more)
        often = [word for word, count in words.most_common() if count >= least or word in known]
        chosen = dict.fromkeys([*often, *known])
        return cls(list(chosen)[:size], [letter for letter, _ in letters.most_common(_MOST_LETTERS)], lowercase)

    def __len__(self) -> int:
        return len(self.words) + 2

    @property
    def letter_count(self) -> int:
        return len(self.letters) + 2

    def spelled(self, word: str) -> tuple[int, list[int]]:
        """The number of a word, and those of its letters."""
        known = self._spelled.get(word)
        if known is None:
            number = self._word_ids.get(word.lower() if self.lowercase else word, UNK)
            known = number, [self._letter_ids.get(letter, UNK) for letter in word[:LONGEST_WORD]]
            self._spelled[word] = known
        return known

    def spell(self, forms: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Numbers (U,) of different words, and of their letters (U, L), padded with 0."""
        spelled = [self.spelled(form) for form in forms]
        letters = np.zeros((len(forms), max(1, max((len(row) for _, row in spelled), default=1))), np.int64)
        for place, (_, row) in zip(letters, spelled, strict=True):
            place[: len(row)] = row
        return np.array([number for number, _ in spelled], np.int64), letters

    def save(self, path: Path) -> None:
        content = {"version": 1, "lowercase": self.lowercase, "words": self.words, "letters": self.letters}
        write_text(path, json.dumps(content, ensure_ascii=False))

    @classmethod
    def load(cls, path: Path) -> "Lexicon":
        try:
            content = read_json(path, _StoredLexicon)
        except (OSError, ValueError) as error:
            raise UserError(
                f"the vocabulary {path} cannot be read ({error}): copy the run again or train it again"
            ) from None
        return cls(content.words, content.letters, content.lowercase)
