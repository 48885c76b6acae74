"""Text to token ids and back: subwords, words or characters, always in one file with the model that uses them.

    tokenizer = Tokenizer.train(texts, kind="bpe", size=8000)
    tokenizer.decode(tokenizer.encode("L'accord  😀")) == "L'accord  😀"

"bpe": byte-pair encoding (Sennrich et al. 2016, https://arxiv.org/abs/1508.07909) over bytes, so that any text comes back exactly.
"words": words and punctuation marks; a word not seen in training becomes <unk>; decoding puts the spaces where a reader expects them.
"characters": one token per character; a character not seen in training becomes <unk>.

The ids of <pad>, <bos>, <eos> and <unk> are fixed. They cannot be written: "<eos>" in a text is five characters of text.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import tokenizers
from tokenizers import decoders, models, normalizers, trainers

from saccade.data.text.engine import engine_from
from saccade.data.text.pairs import Pair, Report
from saccade.data.text.spelling import (
    PRINTABLE_BYTES,
    Encoded,
    SpecialTokens,
    Spelled,
    byte_level_bytes,
    check_lengths,
)
from saccade.data.text.words import Kind, joined_words, pre_tokenizer
from saccade.errors import ConfigError, UserError
from saccade.files import write_text
from saccade.stored import Stored, parsed, read_json

SPECIAL = ("<pad>", "<bos>", "<eos>", "<unk>")
PAD, BOS, EOS, UNK = range(4)


class Tokenizer(Spelled):
    """Made by `train` or `from_json`. `len` is the true size of the vocabulary, special tokens included. What is masked becomes <unk>."""

    kind: Kind

    def __init__(self, engine: tokenizers.Tokenizer, kind: Kind, lowercase: bool):
        self.kind = kind
        self.lowercase = lowercase
        self._engine = engine
        names = {token: name for name, token in engine.get_vocab(with_added_tokens=False).items()}
        if [names.get(token) for token in range(4)] != list(SPECIAL) or sorted(names) != list(range(len(names))):
            raise ValueError("the vocabulary must number its tokens from 0 and begin with " + ", ".join(SPECIAL))
        self.vocabulary = [names[token] for token in range(len(names))]
        written: Callable[[str], bytes] = byte_level_bytes if kind == "bpe" else str.encode
        spelled = [name.encode() for name in SPECIAL] + [written(name) for name in self.vocabulary[4:]]
        super().__init__(spelled, SpecialTokens(PAD, BOS, EOS, UNK, UNK), marks_subwords=kind == "bpe")

    @classmethod
    def train(
        cls, texts: Iterable[str], kind: Kind, size: int, lowercase: bool = False, min_count: int = 1
    ) -> "Tokenizer":
        """A vocabulary of at most `size` tokens, without words, characters or merges that occur fewer than `min_count` times.

        The same texts always give the same vocabulary. For one vocabulary of two languages, give the texts of both.
        """
        if kind not in get_args(Kind):
            raise ConfigError(f"there is no tokenizer {kind!r}: choose bpe, words or characters")
        smallest = 4 + 256 if kind == "bpe" else 4 + 1
        if size < smallest:
            raise ConfigError(
                f"a vocabulary of {size} tokens is too small for {kind}: set data.vocab_size to {smallest} or more"
            )
        engine = tokenizers.Tokenizer(models.BPE() if kind == "bpe" else models.WordLevel(unk_token=SPECIAL[UNK]))
        engine.pre_tokenizer = pre_tokenizer(kind)
        options: dict[str, Any] = {"vocab_size": size, "min_frequency": min_count, "special_tokens": list(SPECIAL)}
        options["show_progress"] = False
        trainer: trainers.Trainer = (
            trainers.BpeTrainer(initial_alphabet=sorted(PRINTABLE_BYTES), **options)
            if kind == "bpe"
            else trainers.WordLevelTrainer(**options)
        )
        engine.train_from_iterator(_training_chunks(texts, lowercase), trainer)
        return cls(_without_special_text(engine), kind, lowercase)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without special tokens around it."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        check_lengths(texts)
        if self.lowercase:
            texts = [text.lower() for text in texts]
        try:
            encodings = self._engine.encode_batch_fast(list(texts), add_special_tokens=False)
        except TypeError:
            if any(not isinstance(text, str) for text in texts):
                raise
            raise UserError("a text has bytes that are not UTF-8: encode it as UTF-8") from None
        return [encoding.ids for encoding in encodings]

    def spellings(self, text: str) -> list[str]:
        """The part of the text that each token of `encode` covers, also where the token is <unk>."""
        text = text.lower() if self.lowercase else text
        return [text[start:end] for start, end in self.encode_with_offsets(text).offsets]

    def encode_with_offsets(self, text: str) -> Encoded:
        check_lengths([text])
        lowered, places = (text, None) if not self.lowercase else _lowered(text)
        encoding = self._engine.encode(lowered, add_special_tokens=False)
        offsets = encoding.offsets
        if places is not None:
            offsets = [(places[start], places[end - 1] + 1 if end > start else places[start]) for start, end in offsets]
        return Encoded(tuple(encoding.ids), tuple(offsets))

    def decode(self, ids: Iterable[int]) -> str:
        """The text up to the first <eos>. <pad> and <bos> are skipped, <unk> is kept."""
        kept = []
        for token in map(int, ids):
            if token == EOS:
                break
            if token not in (PAD, BOS):
                kept.append(token)
        if self.kind == "words":
            return joined_words(self.vocabulary[token] for token in kept)
        return b"".join(self._bytes[token] for token in kept).decode("utf-8", "replace")

    def pieces(self, ids: Iterable[int]) -> list[str]:
        return [self.vocabulary[token] for token in ids] if self.kind == "words" else super().pieces(ids)

    def word_groups(self, ids: Iterable[int]) -> list[int]:
        return list(range(len(list(ids)))) if self.kind == "words" else super().word_groups(ids)

    def __len__(self) -> int:
        return len(self.vocabulary)

    def to_json(self) -> str:
        engine = json.loads(self._engine.to_str())
        return json.dumps({"kind": self.kind, "lowercase": self.lowercase, "engine": engine}, ensure_ascii=False)

    def to_engine(self) -> tokenizers.Tokenizer:
        engine = tokenizers.Tokenizer.from_str(self._engine.to_str())
        if self.lowercase:
            engine.normalizer = normalizers.Lowercase()
        if self.kind == "bpe":
            engine.decoder = decoders.ByteLevel()
        elif self.kind == "characters":
            engine.decoder = decoders.Fuse()
        return engine

    @classmethod
    def from_json(cls, text: str) -> "Tokenizer":
        return cls._from(parsed(text, _StoredTokenizer))

    @classmethod
    def _from(cls, stored: "_StoredTokenizer") -> "Tokenizer":
        return cls(engine_from(stored.engine), stored.kind, stored.lowercase)


class _StoredTokenizer(Stored):
    kind: Kind
    lowercase: bool
    engine: dict[str, Any]


class _StoredVocabularies(Stored):
    """tokenizer.json"""

    version: Literal[1]
    source: _StoredTokenizer
    target: _StoredTokenizer | None = None


@dataclass(frozen=True)
class Vocabularies:
    """The tokenizers of the two sides, kept in one file. Joint: one object on both sides."""

    source: Tokenizer
    target: Tokenizer

    @property
    def joint(self) -> bool:
        return self.source is self.target

    def encode_pairs(
        self, pairs: Iterable[Pair], max_length: int, report: Report | None = None
    ) -> Iterator[tuple[list[int], list[int]]]:
        """Token ids of the pairs, a thousand at a time. Pairs with more than `max_length` tokens on a side are left out and counted."""
        report = Report() if report is None else report
        report.max_length = max_length
        kept = 0
        for chunk in chunks(pairs, 1000):
            sources = self.source.encode_batch([source for source, _ in chunk])
            targets = self.target.encode_batch([target for _, target in chunk])
            for source, target in zip(sources, targets, strict=True):
                if not source or not target:
                    report.empty += 1
                elif max(len(source), len(target)) > max_length:
                    report.too_long += 1
                else:
                    kept += 1
                    yield source, target
        if not kept:
            raise UserError(
                f"no pair has at most {max_length:,} tokens on each side: allow longer ones with data.max_length"
            )

    def save(self, path: str | os.PathLike[str]) -> None:
        content = {"version": 1, "source": json.loads(self.source.to_json())}
        if not self.joint:
            content["target"] = json.loads(self.target.to_json())
        write_text(Path(path), json.dumps(content, ensure_ascii=False))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Vocabularies":
        try:
            stored = read_json(Path(path), _StoredVocabularies)
            source = Tokenizer._from(stored.source)
            target = source if stored.target is None else Tokenizer._from(stored.target)
        except OSError as error:
            raise UserError(
                f"the vocabulary {path} cannot be read ({error.strerror}): give the file of a run"
            ) from None
        except (ValueError, KeyError) as error:
            raise UserError(f"{path} is not a vocabulary of Saccade ({error}): give the file of a run") from None
        return cls(source, target)


def _without_special_text(engine: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """The engine would cut "<eos>" out of any text; without its list of added tokens it reads that as plain text."""
    content = json.loads(engine.to_str())
    content["added_tokens"] = []
    return tokenizers.Tokenizer.from_str(json.dumps(content))


def _lowered(text: str) -> tuple[str, list[int] | None]:
    """In lower case, and for each of its letters the place in `text`: None where they are the same ("İ" becomes two letters)."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered, None
    letters = [letter.lower() for letter in text]
    places = [place for place, letter in enumerate(letters) for _ in letter]
    return "".join(letters), [*places, len(text)]


def _training_chunks(texts: Iterable[str], lowercase: bool) -> Iterator[list[str]]:
    empty = True
    for chunk in chunks(texts, 1000):
        check_lengths(chunk)
        empty = empty and not any(text.strip() for text in chunk)
        yield [text.lower() for text in chunk] if lowercase else chunk
    if empty:
        raise UserError("there is no text to make a vocabulary from: give a corpus with some")


Item = TypeVar("Item")


def chunks(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    remaining = iter(items)
    while chunk := list(islice(remaining, size)):
        yield chunk
