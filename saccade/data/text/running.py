"""Running text as a language model needs it: one long row of tokens to train on, another held out.

    corpus = prepare(config, directory, say)
    corpus.train.tokens[1000:1064]

Documents follow one another, each behind the token for the end of a text, which also begins the next:  <eos> a b c <eos> d e <eos>
The text is cut by its length: the last share is held out, as nanoGPT does it. What is prepared is kept in the run directory:

    tokenizer.json      the vocabulary, learned from the training part alone
    text.json           how many documents, and how many bytes the held-out parts have
    tokens/train/       the training part, tokenised, mapped into memory; may be deleted after training
    held-out/valid/     the held-out part; held-out/test/ where files were given for it
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationInfo, model_validator

from saccade.config.recipe import Config, ExistingFolder, ExistingPath, StartConfig
from saccade.data.builtin.phrasebook.phrases import phrases
from saccade.data.splits import SplitName
from saccade.data.text.documents import Piece, in_pieces, read_documents
from saccade.data.text.shards import TokenStream, write_stream
from saccade.data.text.spelling import Spelled
from saccade.data.text.tokenizer import Tokenizer
from saccade.data.text.vocabulary import existing_tokenizer, load_tokenizer, save_tokenizer, starting_tokenizer
from saccade.errors import ConfigError, Say, UserError
from saccade.files import make_directory, write_text
from saccade.stored import Stored, read_json

FEW_CHARACTERS = 100_000
_SENTENCES = 5  # of a document of the built-in text
_SMALLEST, _LARGEST, _UNIT = 512, 32_000, 256  # of a vocabulary of byte pairs, and what it is a multiple of
_MOST_CHARACTERS = 10_000  # of a vocabulary of characters


class _HeldOutBytes(Stored):
    valid: int = Field(ge=1, lt=1 << 48)
    test: int | None = Field(None, ge=1, lt=1 << 48)


class _Header(Stored):
    """text.json"""

    version: Literal[1]
    documents: int = Field(ge=0, lt=1 << 48)
    bytes: _HeldOutBytes


class TextConfig(Config):
    text: ExistingPath | None = Field(
        None,
        description="a text file, JSON lines, or a folder of them, gzipped or not; built-in sentences unless given",
    )
    valid: ExistingPath | None = Field(None, description="cut from the end of the text unless given")
    test: ExistingPath | None = Field(None, description="the validation part serves unless given")
    valid_share: float = Field(0.1, gt=0, lt=1, description="the last share of the text, to validate on")
    field: str = Field("text", description="the field of JSON lines that holds the text")
    examples: int = Field(20_000, ge=100, description="built-in text: how many sentences to train on")
    tokenizer: Literal["bpe", "characters"] = "bpe"
    vocab_size: int | None = Field(None, ge=5, description="at most so many tokens; chosen from the data unless given")
    vocabulary: ExistingFolder | None = Field(
        None, description="an existing tokenizer instead: that of a run, or of a folder in Hugging Face's format"
    )
    batch_size: int = Field(16, ge=1, description="windows of the model's context a batch")

    @model_validator(mode="after")
    def _nothing_is_idle(self, info: ValidationInfo) -> "TextConfig":
        if self.text is None:
            self._refuse_unused("your own text and data.text is not given", "valid", "test", "valid_share", "field")
        else:
            self._refuse_unused("the built-in text, and of your own all is used", "examples")
        if self.vocabulary is not None:
            self._refuse_unused("a vocabulary that is learned, and data.vocabulary is given", "tokenizer", "vocab_size")
        if self.valid is not None:
            self._refuse_unused("a text that validation is cut from, and data.valid is given", "valid_share")
        return self


@dataclass(frozen=True)
class RunningText:
    """What `prepare` left in the directory."""

    directory: Path
    tokenizer: Spelled
    documents: int  # to train on
    bytes: dict[SplitName, int]  # of the held-out parts, in UTF-8

    @cached_property
    def train(self) -> TokenStream:
        """Opened on first use: a run that only predicts does not need its training data."""
        return TokenStream.open_to_train(self.directory / "tokens" / "train", len(self.tokenizer))

    @cached_property
    def valid(self) -> TokenStream:
        return TokenStream.open_to_train(self.directory / "held-out" / "valid", len(self.tokenizer))

    @cached_property
    def test(self) -> TokenStream:
        if "test" not in self.bytes:
            return self.valid
        return TokenStream.open_to_train(self.directory / "held-out" / "test", len(self.tokenizer))

    def held_out(self, split: SplitName) -> tuple[TokenStream, int]:
        """The tokens, and the bytes that they spell. The validation part serves as the test where no files were given for one."""
        if split == "test" and "test" in self.bytes:
            return self.test, self.bytes["test"]
        return self.valid, self.bytes["valid"]


@dataclass
class Count:
    """What became of a part of the text."""

    documents: int = 0
    characters: int = 0
    bytes: int = 0
    unknown: int = 0  # characters that the vocabulary does not have

    def add(self, piece: Piece) -> None:
        self.documents += piece.ends
        self.characters += len(piece.text)
        self.bytes += len(piece.text.encode())


Reader = Callable[[], Iterator[Piece]]


def prepare(config: TextConfig, directory: Path, say: Say, start: StartConfig) -> RunningText:
    """Reads, splits, learns the vocabulary (or takes that of the run to `start` from) and tokenises."""
    taken = starting_tokenizer(start, say)
    if config.vocabulary is not None:
        if taken is not None:
            raise ConfigError(
                f"data.vocabulary = {config.vocabulary} and start.from = {start.run}: weights need the vocabulary they were trained "
                "with, so leave data.vocabulary out"
            )
        taken = existing_tokenizer(config.vocabulary, say)
    parts, characters = _parts(config)
    make_directory(directory)
    tokenizer = taken or _learn(config, parts["train"], characters)
    save_tokenizer(tokenizer, directory)
    counts: dict[SplitName, Count] = {}
    lengths: dict[SplitName, int] = {}
    for split, read in parts.items():
        counts[split] = Count()
        place = directory / ("tokens" if split == "train" else "held-out") / split
        make_directory(place.parent)
        lengths[split] = len(write_stream(place, _encoded(tokenizer, read(), counts[split]), len(tokenizer)))
    held_out: dict[SplitName, int] = {split: counts[split].bytes for split in counts if split != "train"}
    content = {"version": 1, "documents": counts["train"].documents, "bytes": held_out}
    write_text(directory / "text.json", json.dumps(content) + "\n")
    _say_what_there_is(say, tokenizer, counts, lengths)
    return RunningText(directory, tokenizer, counts["train"].documents, held_out)


def reopen(directory: Path) -> RunningText:
    """The text that `prepare` left there."""
    tokenizer = load_tokenizer(directory)
    path = directory / "text.json"
    try:
        header = read_json(path, _Header)
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} cannot be read ({error}): this run is incomplete; copy it again or train it again"
        ) from None
    held_out: dict[SplitName, int] = {"valid": header.bytes.valid}
    if header.bytes.test is not None:
        held_out["test"] = header.bytes.test
    return RunningText(directory, tokenizer, header.documents, held_out)


def begin_of(tokenizer: Spelled) -> int:
    """The token that stands before each document, and after the last one."""
    special = tokenizer.special
    wanted = special.last if tokenizer.kind != "existing" or special.first is None else special.first
    if wanted is None:
        raise UserError("this tokenizer has no token for the beginning or the end of a text: take another")
    return wanted


def encode_file(tokenizer: Spelled, path: Path, field: str) -> tuple[TokenStream, Count]:
    """Another text, tokenised in memory."""
    count = Count()
    return TokenStream.from_list(list(chain(*_encoded(tokenizer, read_documents(path, field), count)))), count


# Parts


def _parts(config: TextConfig) -> tuple[dict[SplitName, Reader], int]:
    """How to read each part, as often as one likes, and how many characters there are to train on."""
    if config.text is None:
        return _built_in(config)
    text, field = config.text, config.field
    count = Count()
    for piece in read_documents(text, field):
        count.add(piece)
    parts: dict[SplitName, Reader] = {"train": lambda: read_documents(text, field)}
    characters = count.characters
    if config.valid is None:
        characters = int(count.characters * (1 - config.valid_share))
        if not 0 < characters < count.characters - 1:
            raise UserError(
                f"{text} has {count.characters:,} characters, too few to hold out a share of {config.valid_share:g}: "
                "give more text, or name a file with data.valid"
            )
        parts["train"] = lambda: _cut(read_documents(text, field), 0, characters)
        parts["valid"] = lambda: _cut(read_documents(text, field), characters, count.characters)
    given: dict[SplitName, Path | None] = {"valid": config.valid, "test": config.test}
    for split, path in given.items():
        if path is not None:
            parts[split] = _reader(path, field)
            next(parts[split]())  # a wrong file is told before any work
    return parts, characters


def _reader(path: Path, field: str) -> Reader:
    return lambda: read_documents(path, field)


def _cut(pieces: Iterator[Piece], start: int, stop: int) -> Iterator[Piece]:
    """The characters from start to stop of all documents together."""
    place = 0
    for piece in pieces:
        first, last = max(start - place, 0), min(stop - place, len(piece.text))
        if first < last:
            yield Piece(piece.text[first:last], piece.ends or place + last == stop)
        place += len(piece.text)
        if place >= stop:
            return


def _built_in(config: TextConfig) -> tuple[dict[SplitName, Reader], int]:
    sizes: dict[SplitName, int] = {"train": config.examples, "valid": 1000, "test": 1000}
    texts = {split: list(_documents(split, size)) for split, size in sizes.items()}

    def reader(split: SplitName) -> Reader:
        return lambda: chain.from_iterable(in_pieces(text) for text in texts[split])

    return {split: reader(split) for split in sizes}, sum(map(len, texts["train"]))


def _documents(split: SplitName, sentences: int) -> Iterator[str]:
    written = [phrase.source for phrase in phrases(split, sentences)]
    for start in range(0, len(written), _SENTENCES):
        yield " ".join(written[start : start + _SENTENCES])


# Tokens


def _learn(config: TextConfig, read: Reader, characters: int) -> Tokenizer:
    if config.tokenizer == "characters":
        size = config.vocab_size or _MOST_CHARACTERS
        return Tokenizer.train((piece.text for piece in read()), "characters", size)
    fitting = _UNIT * round(2 * characters**0.5 / _UNIT)
    size = config.vocab_size or min(max(fitting, _SMALLEST), _LARGEST)
    return Tokenizer.train((piece.text for piece in read()), "bpe", size, min_count=2)


def _encoded(tokenizer: Spelled, pieces: Iterable[Piece], count: Count) -> Iterator[list[int]]:
    """The end of a text before each document, and after the last one."""
    begin, unknown, begins = begin_of(tokenizer), tokenizer.special.unknown, True
    for piece in pieces:
        count.add(piece)
        (tokens,) = tokenizer.encode_batch([piece.text])
        count.unknown += 0 if unknown is None else tokens.count(unknown)
        yield [begin, *tokens] if begins else tokens
        begins = piece.ends
    yield [begin]


def _say_what_there_is(
    say: Say, tokenizer: Spelled, counts: dict[SplitName, Count], lengths: dict[SplitName, int]
) -> None:
    train = counts["train"]
    held_out = ", ".join(
        f"{lengths[split]:,} to {'validate' if split == 'valid' else 'test'}" for split in counts if split != "train"
    )
    documents = f"{train.documents:,} document{'' if train.documents == 1 else 's'}"
    say(f"{documents}, {train.characters:,} characters to train on: {lengths['train']:,} tokens; {held_out}")
    per_token = train.characters / max(lengths["train"], 1)
    say(f"vocabulary of {len(tokenizer):,} tokens ({tokenizer.kind}), {per_token:.2f} characters a token")
    for split, count in counts.items():
        if count.unknown:
            say(f"{count.unknown:,} characters of the {split} part are not in the vocabulary and read as <unk>")
    if train.characters < FEW_CHARACTERS:
        say(
            f"Only {train.characters:,} characters: the model will learn them by heart; text worth continuing takes a million or more"
        )
