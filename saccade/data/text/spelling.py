"""What tokens spell: the words they belong to, and labels for people. Every tokenizer of this room, ours or another's, is `Spelled`.

tokenizer.encode(text)                  ids, without special tokens
tokenizer.encode_with_offsets(text)     ids, and the part of the text that each covers
tokenizer.around(ids)                   with the special tokens that models of text expect: [class] ids [end]
"""

import codecs
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import tokenizers

from saccade.data.text.lines import MAX_CHARACTERS
from saccade.data.text.words import WORDS
from saccade.errors import UserError

Span = tuple[int, int]  # the first character and the one after the last


@dataclass(frozen=True)
class SpecialTokens:
    """Their ids; None where a vocabulary has none."""

    pad: int
    first: int | None  # stands before a text; classes are read from it
    last: int | None  # ends a text, and separates two
    unknown: int | None
    mask: int | None  # stands for a word to be guessed
    between: int = 1  # how many of `last` stand between two texts


@dataclass(frozen=True)
class Encoded:
    """The tokens of a text without special ones, and the part of it that each covers."""

    ids: tuple[int, ...]
    offsets: tuple[Span, ...]


@dataclass(frozen=True)
class Joined:
    """Tokens with special ones around them."""

    ids: list[int]
    segments: list[int]  # 0 in the first text, 1 in the second
    first: int  # where the first text begins
    second: int  # where the second begins; the end where there is none


class Spelled:
    """A vocabulary whose tokens have a spelling in bytes, with the white space before a word. `kind` is bpe, words, characters or
    existing (that of another model)."""

    kind: str

    def __init__(self, spelled: Sequence[bytes], special: SpecialTokens, marks_subwords: bool):
        self.special = special
        self._bytes = spelled
        self._marks_subwords = marks_subwords
        known = (special.pad, special.first, special.last, special.unknown, special.mask)
        self._special = frozenset(token for token in known if token is not None)

    @abstractmethod
    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]: ...
    @abstractmethod
    def encode_with_offsets(self, text: str) -> Encoded: ...
    @abstractmethod
    def decode(self, ids: Iterable[int]) -> str: ...
    @abstractmethod
    def __len__(self) -> int: ...
    @abstractmethod
    def to_json(self) -> str: ...
    @abstractmethod
    def to_engine(self) -> tokenizers.Tokenizer:
        """A copy for other libraries, which reads texts as `encode` does."""

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without special tokens around it."""
        return self.encode_batch([text])[0]

    def around(self, ids: Sequence[int], second: Sequence[int] | None = None) -> Joined:
        """[class] ids [end], or [class] ids [end] second [end], as encoders of text are trained."""
        first, last = ([] if token is None else [token] for token in (self.special.first, self.special.last))
        joined = [*first, *ids, *last]
        segments = [0] * len(joined)
        if second is not None:
            joined += last * (self.special.between - 1)
            segments += [0] * (len(joined) - len(segments))
        begin = len(joined)
        if second is not None:
            joined += [*second, *last]
            segments += [1] * (len(joined) - len(segments))
        return Joined(joined, segments, len(first), begin)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """One readable label per token. A subword that does not begin its word begins with "·"."""
        ids = [int(token) for token in ids]
        groups = self.word_groups(ids)
        labels = [_readable(self._bytes[token].decode("utf-8", "backslashreplace")) for token in ids]
        if self._marks_subwords:
            for index in range(1, len(ids)):
                before, here = (self._bytes[token].decode("utf-8", "replace") for token in ids[index - 1 : index + 1])
                if groups[index] == groups[index - 1] and not before.isspace() and not here[:1].isspace():
                    labels[index] = "·" + labels[index]
        return labels

    def word_groups(self, ids: Iterable[int]) -> list[int]:
        """For each token the number of the word it belongs to: 0 0 1 2 2 ...

        A punctuation mark, an elided article ("L'") and a special token are words of their own. White space belongs to the word
        beside it. Words are found in the text that the tokens spell, so that tokens in any order, as a model gives them, have words.
        """
        ids = [int(token) for token in ids]
        groups: list[int] = []
        closed = True  # the next token must begin a word
        blank = False  # this word has only white space so far
        for token, begins in zip(ids, self._begin_words(ids), strict=True):
            special = token in self._special
            if closed or special or (begins and not blank):
                groups.append(groups[-1] + 1 if groups else 0)
                blank = True
            else:
                groups.append(groups[-1])
            blank = blank and self._bytes[token].decode("utf-8", "replace").isspace()
            closed = special
        return groups

    def _begin_words(self, ids: list[int]) -> list[bool]:
        """For each token whether a word begins at its first character that is not white space."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text, places = "", []
        for token in ids:
            inside_character = bool(decoder.getstate()[0])
            spelled = b" " if token in self._special else self._bytes[token]
            indent = 0 if inside_character else len(spelled) - len(spelled.lstrip())
            places.append(-1 if inside_character else len(text) + indent)
            text += decoder.decode(spelled)
        starts = {start for word, (start, _) in WORDS.pre_tokenize_str(text) if not word.isspace()}
        return [place in starts for place in places]

    def continues(self) -> list[bool]:
        """Of each token of the vocabulary whether it goes on with the word before it: it begins with a letter, without white space."""
        return [
            token not in self._special and spelled.decode("utf-8", "replace")[:1].isalnum()
            for token, spelled in enumerate(self._bytes)
        ]

    def words(self, ids: Iterable[int]) -> list[str]:
        """The words that `word_groups` numbers."""
        ids = [int(token) for token in ids]
        spelled: list[bytes] = []
        for token, group in zip(ids, self.word_groups(ids), strict=True):
            if group == len(spelled):
                spelled.append(b"")
            spelled[group] += self._bytes[token]
        return [_readable(word.decode("utf-8", "replace")) for word in spelled]


def words_of(text: str) -> list[Span]:
    """Where the words of a text stand; a punctuation mark is one, white space is none."""
    return [span for word, span in WORDS.pre_tokenize_str(text) if not word.isspace()]


def spaced(text: str) -> list[Span]:
    """Where the parts of a text stand that white space separates."""
    spans, end = list[Span](), 0
    for part in text.split():
        start = text.index(part, end)
        end = start + len(part)
        spans.append((start, end))
    return spans


def words_of_tokens(text: str, offsets: Sequence[Span], words: Sequence[Span]) -> list[int]:
    """For each token of a text the number of the word that it begins in; white space belongs to the word after it."""
    starts, groups = [start for start, _ in words], list[int]()
    for start, end in offsets:
        covered = text[start:end]
        start += len(covered) - len(covered.lstrip())
        groups.append(max(0, bisect_right(starts, start) - 1))
    return groups


def check_lengths(texts: Sequence[str]) -> None:
    """The engine takes many times a text's size in memory and ends the process where there is too little."""
    longest = max(map(len, texts), default=0)
    if longest > MAX_CHARACTERS:
        raise UserError(f"a text has {longest:,} characters and may have at most {MAX_CHARACTERS:,}: shorten it")


def _readable(text: str) -> str:
    return text.strip() or repr(text)[1:-1].replace(" ", "␣")


# The engine writes a byte as the Latin-1 character of that number if it is printable, else as the next character from 256 on.
_PRINTABLE = [byte for byte in range(256) if chr(byte).isprintable() and byte != ord(" ")]
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
PRINTABLE_BYTES = {chr(byte): byte for byte in _PRINTABLE} | {
    chr(256 + index): byte for index, byte in enumerate(_OTHERS)
}


def byte_level_bytes(token: str) -> bytes:
    return bytes(PRINTABLE_BYTES[character] for character in token)
