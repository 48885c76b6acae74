"""What a word is, as a regular expression in the tokenizer engine's syntax, so that training, encoding and grouping agree."""

from collections.abc import Iterable
from typing import Literal

from tokenizers import Regex, pre_tokenizers

Kind = Literal["bpe", "words", "characters"]

_LETTERS = r"[\p{L}\p{N}][\p{L}\p{M}\p{N}]*"
_ENDING = r"(?i:s|re|ve|ll|d|m)(?![\p{L}\p{N}])"
_WORD = "|".join(
    (
        # an elision: L' | accord, qu' | est-ce, but aujourd'hui
        r"(?<![\p{L}\p{M}\p{N}])(?i:[cdjlmnst]|(?:jus|lors|puis|quoi)?qu)['’](?=\p{L})",
        # a contraction: man | 's, we | 're
        rf"(?<=[\p{{L}}\p{{N}}])['’]{_ENDING}",
        # initials: U.S., e.g.
        r"(?<![\p{L}\p{M}\p{N}])(?:\p{L}\.){2,}",
        # a word or number, with what may stand inside one: T-shirt, don't, 3.5
        rf"{_LETTERS}(?:[-‐‑]{_LETTERS}|['’](?!{_ENDING}){_LETTERS}|(?<=\p{{N}})[.,:](?=\p{{N}}){_LETTERS})*",
        # a mark, repeated or not: , ... 😀
        r"([^\s\p{L}\p{N}])\1*\p{M}*",
    )
)
_BLANKS = r"\s+"
_WITH_SPACE = rf" ?(?:{_WORD})|\s+(?!\S)|\s+"
PATTERNS = (_WORD, _BLANKS, _WITH_SPACE)
WORDS = pre_tokenizers.Split(Regex(_WORD), "isolated")


def pre_tokenizer(kind: Kind) -> pre_tokenizers.PreTokenizer:
    if kind == "characters":
        return pre_tokenizers.Split("", "isolated")
    if kind == "words":
        return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(_BLANKS), "removed"), WORDS])
    words_with_space = pre_tokenizers.Split(Regex(_WITH_SPACE), "isolated")
    return pre_tokenizers.Sequence(
        [words_with_space, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )


def joined_words(words: Iterable[str]) -> str:
    """Words with spaces between them, except where a punctuation mark belongs to the word before or after it."""
    text, joined, open_quotes = "", True, set[str]()
    for word in words:
        before, after = word[0] in ".,;:!?)]}…%”’", word[0] in "([{¿¡“‘„#@$£"
        if word in ('"', "'"):
            before, after = word in open_quotes, word not in open_quotes
            open_quotes ^= {word}
        elif word == "„":
            open_quotes.add("“")
        elif word == "“" and word in open_quotes:
            before, after = True, False
            open_quotes.remove(word)
        elif word == "/":
            before = after = True
        elif len(word) > 1 and word[0] not in "'’":
            after = after or word[-1] in "'’"
        elif len(word) > 1:
            before = True
        text += word if joined or before else " " + word
        joined = after
    return text
