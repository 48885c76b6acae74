"""Labelled texts as training needs them. They are prepared once, into the run directory:

    tokenizer.json      the vocabulary
    classes.json        the names of the classes
    held-out.jsonl      texts to validate and test on, with what people marked in them where it is known
    tokens/train/       the training texts, tokenised, each with the number of its class

so that a run can be resumed, evaluated and moved without its files.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, NonNegativeInt, ValidationInfo, model_validator

from saccade.config.recipe import Config, ExistingPath, StartConfig, files_may_be_missing
from saccade.data.builtin.reviews import reviews
from saccade.data.splits import PURPOSES, SPLITS, SplitName
from saccade.data.text.labelled.columns import Wanted
from saccade.data.text.labelled.files import Labelled, Listing, read_labelled
from saccade.data.text.labelled.splits import imbalance, split_listings
from saccade.data.text.labelled.windows import LongTexts, Reading
from saccade.data.text.shards import TokenPairs, write_shards
from saccade.data.text.spelling import Spelled
from saccade.data.text.tokenizer import Tokenizer
from saccade.data.text.vocabulary import load_tokenizer, save_tokenizer, starting_tokenizer
from saccade.data.text.words import Kind
from saccade.errors import Say, UserError
from saccade.files import make_directory, write_text
from saccade.stored import Stored, read_json, read_json_lines

FEW_TEXTS = 200
_CHUNK = 1000
_MOST_HELD_OUT = 1 << 28  # bytes

Classes = Annotated[list[str], Field(min_length=2)]


class _HeldOutRow(Stored):
    """A line of held-out.jsonl."""

    split: Literal["valid", "test"]
    text: str
    label: str
    rationale: tuple[tuple[NonNegativeInt, NonNegativeInt], ...] | None


class TextsConfig(Config):
    corpus: Literal["files", "reviews"] = Field("files", description="your own texts, or built-in reviews of places")
    train: ExistingPath | None = Field(
        None,
        description="a CSV, TSV, JSON-lines or parquet file, a folder of .txt for each class, or lines that begin with a label",
    )
    valid: ExistingPath | None = Field(None, description="cut from train unless given; so is test")
    test: ExistingPath | None = None
    text: str | None = Field(None, description="the column of texts; found by name or content unless given")
    label: str | None = Field(None, description="the column of labels; found by name or content unless given")
    rationale: str | None = Field(
        None,
        description="the column of what people marked as the reason: a part of the text, or [[first, end], ...] in words",
    )
    encoding: Literal["utf-8", "latin-1", "cp1252"] = Field("utf-8", description="of your text files")
    split_seed: int = Field(1, ge=0, lt=2**63, description="which texts are held out where no files are named")
    examples: int = Field(2000, ge=20, description="corpus reviews: how many to train on")
    lowercase: bool = True
    tokenizer: Kind = "words"
    vocab_size: int = Field(
        20_000, ge=5, description="at most so many tokens; a starting run brings its own vocabulary"
    )
    longest: int | None = Field(
        None, ge=4, description="tokens of a text that are read; as many as the model can unless given"
    )
    long_texts: LongTexts = Field(
        "beginning",
        description="of longer texts: the beginning, both-ends, or all of it in windows whose answers are averaged",
    )
    batch_tokens: int = Field(4096, ge=1, description="tokens a batch, padding included")

    @model_validator(mode="after")
    def _files_are_named(self, info: ValidationInfo) -> "TextsConfig":
        if self.corpus == "reviews":
            self._refuse_unused(
                "your own files and data.corpus is reviews", "train", "valid", "test", "text", "label", "rationale"
            )
            self._refuse_unused("your own files and data.corpus is reviews", "split_seed")
        else:
            self._refuse_unused("data.corpus=reviews", "examples")
            if self.train is None and not files_may_be_missing(info):
                raise ValueError("name your texts: --set data.train=FILE, or take data.corpus=reviews")
        return self

    @property
    def wanted(self) -> Wanted:
        return Wanted(self.text, self.label, self.rationale, self.encoding)


@dataclass(frozen=True)
class Texts:
    directory: Path
    tokenizer: Spelled
    classes: tuple[str, ...]
    valid: list[Labelled]
    test: list[Labelled]
    reading: Reading

    @cached_property
    def train(self) -> TokenPairs:
        """Opened on first use: a run that only predicts does not need its training data."""
        return TokenPairs.open_to_train(self.directory / "tokens" / "train", len(self.tokenizer), len(self.classes))

    def held_out(self, split: SplitName) -> list[Labelled]:
        return {"valid": self.valid, "test": self.test}[split]

    def numbers(self, examples: Sequence[Labelled]) -> "np.ndarray[Any, np.dtype[np.int64]]":
        """The numbers of their classes."""
        places = {name: number for number, name in enumerate(self.classes)}
        return np.array([places[example.label] for example in examples], np.int64)


def prepare(config: TextsConfig, directory: Path, say: Say, start: StartConfig, most: int | None) -> Texts:
    """Reads, splits, learns the vocabulary (or takes that of what the recipe starts from), tokenises. `most` is how many tokens the model
    can read; None where there is no limit."""
    tokenizer = starting_tokenizer(start, say)
    parts = _read(config, say)
    make_directory(directory)
    if tokenizer is None:
        # A word that occurs once is better learned as an unknown one, as every word outside the vocabulary will be.
        min_count = 2 if config.tokenizer == "words" and len(parts["train"]) > 5000 else 1
        texts = (example.text for example in parts["train"])
        tokenizer = Tokenizer.train(texts, config.tokenizer, config.vocab_size, config.lowercase, min_count)
        say(f"a vocabulary of {len(tokenizer):,} tokens ({tokenizer.kind})")
    save_tokenizer(tokenizer, directory)
    counts = Counter(example.label for example in parts["train"])
    classes = tuple(sorted(counts, key=_natural))
    write_text(directory / "classes.json", json.dumps(list(classes), ensure_ascii=False))
    _save_held_out(directory / "held-out.jsonl", parts["valid"], parts["test"])
    reading = Reading(
        most if config.longest is None else min(config.longest, most or config.longest), config.long_texts
    )
    texts_read = Texts(directory, tokenizer, classes, parts["valid"], parts["test"], reading)
    lengths = list[int]()
    numbers = texts_read.numbers(parts["train"])
    write_shards(
        directory / "tokens" / "train",
        _tokenised(texts_read, parts["train"], numbers.tolist(), lengths),
        vocabulary_size=max(len(tokenizer), len(classes)),
    )
    for sentence in _described(texts_read, counts, lengths, config):
        say(sentence)
    return texts_read


def reopen(config: TextsConfig, directory: Path, most: int | None) -> Texts:
    """What `prepare` left there."""
    reading = Reading(
        most if config.longest is None else min(config.longest, most or config.longest), config.long_texts
    )
    path = directory / "classes.json"
    try:
        classes = read_json(path, Classes)
        if len(set(classes)) < len(classes):
            raise ValueError("it names a class twice")
        path = directory / "held-out.jsonl"
        valid, test = _load_held_out(path, set(classes))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} cannot be read ({error}): this run is incomplete; copy it again or train it again"
        ) from None
    return Texts(directory, load_tokenizer(directory), tuple(classes), valid, test, reading)


def _read(config: TextsConfig, say: Say) -> dict[SplitName, list[Labelled]]:
    if config.corpus == "reviews":
        sizes = {"train": config.examples, "valid": 300, "test": 500}
        return {split: [Labelled(*review) for review in reviews(split, sizes[split])] for split in SPLITS}
    listings = dict[SplitName, Listing]()
    for split in SPLITS:
        path: Path | None = getattr(config, split)
        if path is not None:
            listings[split] = read_labelled(path, config.wanted, say)
            if listings[split].sentence():
                say(listings[split].sentence())
    return split_listings(listings, config.split_seed, say)


def _tokenised(
    texts: Texts, examples: Sequence[Labelled], numbers: Sequence[int], lengths: list[int]
) -> Iterator[tuple[list[int], list[int]]]:
    """Each part of a text that is read, with the number of its class. `lengths` gets those of whole texts."""
    for start in range(0, len(examples), _CHUNK):
        chunk = examples[start : start + _CHUNK]
        for ids, number in zip(
            texts.tokenizer.encode_batch([each.text for each in chunk]), numbers[start:], strict=False
        ):
            lengths.append(len(ids))
            for part in texts.reading.parts(len(ids)):
                yield [ids[place] for place in part] or [0], [int(number)]


def _described(texts: Texts, counts: Counter[str], lengths: Sequence[int], config: TextsConfig) -> Iterator[str]:
    count = len(lengths)
    shares = ", ".join(f"{name} {counts[name]:,}" for name in texts.classes[:12])
    more = ", …" if len(texts.classes) > 12 else ""
    uneven = imbalance(counts)
    yield f"{len(counts)} classes: {shares}{more}" + (f"; {uneven}" if uneven else "")
    yield f"{count:,} texts to train on, {len(texts.valid):,} to validate and {len(texts.test):,} to test"
    middle, longest = int(np.median(lengths)), max(lengths)
    yield f"half of the texts have at most {middle:,} tokens, the longest has {longest:,}"
    limit = texts.reading.longest
    long = sum(length > limit for length in lengths) if limit else 0
    if long:
        yield f"{long:,} of {count:,} texts are longer than {limit:,} tokens: {texts.reading.sentence()}"
    if count < FEW_TEXTS:
        yield f"Only {count} training texts: the model will memorise them; a good one needs thousands, or --set start.from=minilm"


def _natural(label: str) -> tuple[int, float, str]:
    """Numbers by size, then names."""
    try:
        return 0, float(label), label
    except ValueError:
        return 1, 0.0, label


def _save_held_out(path: Path, valid: Iterable[Labelled], test: Iterable[Labelled]) -> None:
    rows = [
        {"split": split, "text": each.text, "label": each.label, "rationale": each.rationale}
        for split, part in (("valid", valid), ("test", test))
        for each in part
    ]
    write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def _load_held_out(path: Path, classes: set[str]) -> tuple[list[Labelled], list[Labelled]]:
    parts: dict[str, list[Labelled]] = {"valid": [], "test": []}
    for row in read_json_lines(path, _HeldOutRow, _MOST_HELD_OUT):
        if row.label not in classes:
            raise ValueError(f"it has a text of the class {row.label[:40]!r}")
        if any(not start <= end <= len(row.text) for start, end in row.rationale or ()):
            raise ValueError("what is marked in a text is outside of it")
        parts[row.split].append(Labelled(row.text, row.label, row.rationale))
    for split in SPLITS[1:]:
        if not parts[split]:
            raise ValueError(f"it has no text to {PURPOSES[split]}")
    return parts["valid"], parts["test"]
