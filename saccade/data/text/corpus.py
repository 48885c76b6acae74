"""A parallel corpus as training needs it: tokenised pairs to train on, held-out text to validate and test on.

A corpus is prepared once, into the run directory:

    tokenizer.json      the vocabularies
    held-out.jsonl      valid and test sentences, with their gold word alignment where it is known
    tokens/train/       the training pairs, tokenised, to be mapped into memory

so that a run can be resumed, evaluated and moved without its files, and several processes read the same tokens.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, ValidationInfo, model_validator

from saccade.config.recipe import Config, ExistingFile, StartConfig, files_may_be_missing
from saccade.data.builtin.digits import LONGEST, reversed_digits
from saccade.data.builtin.phrasebook.phrases import Phrase, phrases
from saccade.data.splits import PURPOSES, SplitName
from saccade.data.text.pairs import Pair, Report, counted, holds_both_sides, normalise, read_pairs
from saccade.data.text.shards import TokenPairs, write_shards
from saccade.data.text.splitting import split_pairs
from saccade.data.text.starting import vocabularies_of
from saccade.data.text.tokenizer import Kind, Tokenizer, Vocabularies
from saccade.errors import Say, UserError
from saccade.files import make_directory, write_text
from saccade.stored import Stored, read_json_lines

FEW_PAIRS = 1000
_MOST_HELD_OUT = 1 << 28  # bytes
ColumnNumber = Annotated[int, Field(ge=1, le=1000)]


class _HeldOutRow(Stored):
    """A line of held-out.jsonl."""

    split: Literal["valid", "test"]
    source: str
    target: str
    alignment: tuple[tuple[NonNegativeInt, NonNegativeInt], ...]


class CorpusConfig(Config):
    corpus: Literal["files", "phrasebook", "digits"] = Field(
        "files", description="your own files, or a built-in corpus"
    )
    source: ExistingFile | None = Field(None, description="a text file, or a TSV or JSON-lines file with both sides")
    target: ExistingFile | None = Field(None, description="the text file aligned with the source")
    valid_source: ExistingFile | None = Field(None, description="cut from the corpus unless given; so is test_source")
    valid_target: ExistingFile | None = None
    test_source: ExistingFile | None = None
    test_target: ExistingFile | None = None
    columns: tuple[ColumnNumber, ColumnNumber] | None = Field(
        None, description="which columns of a TSV with more than two are source and target, such as [2, 3], from 1"
    )
    split_seed: int = Field(
        1,
        ge=0,
        lt=2**63,
        description="which pairs are held out where no files are named: independent of train.seed",
    )
    examples: int = Field(30_000, ge=10, description="built-in corpora: how many pairs to train on")
    digits: int = Field(LONGEST, ge=1, le=LONGEST, description="corpus digits: most digits of a training pair")
    lowercase: bool = False
    tokenizer: Kind = "bpe"
    vocab_size: int | None = Field(
        None, ge=5, description="at most so many tokens a vocabulary; chosen from the data unless given"
    )
    joint: bool = Field(True, description="one vocabulary for both sides")
    max_length: int = Field(250, ge=1, description="pairs with more tokens on a side are left out and counted")
    batch_tokens: int = Field(4096, ge=1, description="tokens a batch, padding included, on its larger side")

    @model_validator(mode="after")
    def _files_are_named(self, info: ValidationInfo) -> "CorpusConfig":
        if not files_may_be_missing(info) and self.corpus == "files" and self.source is None:
            raise ValueError(
                "name your files: --set data.source=FILE --set data.target=FILE, or take data.corpus=phrasebook"
            )
        files = ("source", "target", "valid_source", "valid_target", "test_source", "test_target")
        if self.corpus == "files":
            self._refuse_unused("built-in corpora, and of your own files all pairs are used", "examples")
        else:
            self._refuse_unused(f"your own files and data.corpus is {self.corpus}", *files, "split_seed")
        if self.valid_source is not None and self.test_source is not None:
            self._refuse_unused("a corpus that validation or test is cut from, and both have files", "split_seed")
        if self.corpus != "digits":
            self._refuse_unused(f"data.corpus=digits, and it is {self.corpus}", "digits")
        for source, target in zip(files[::2], files[1::2], strict=True):
            if getattr(self, target) is not None and getattr(self, source) is None:
                raise ValueError(f"{target} is given without {source}: name both, line by line the same sentences")
            for name in (source, target):
                path = getattr(self, name)
                if getattr(self, target) is not None and holds_both_sides(path) and not files_may_be_missing(info):
                    raise ValueError(
                        f"{name} {path} holds both sides by its ending: leave {target} out, or give two text files"
                    )
        return self


@dataclass(frozen=True)
class Corpus:
    directory: Path
    vocabularies: Vocabularies
    valid: list[Phrase]
    test: list[Phrase]

    @cached_property
    def train(self) -> TokenPairs:
        """Opened on first use: a run that only predicts does not need its training data."""
        sizes = len(self.vocabularies.source), len(self.vocabularies.target)
        return TokenPairs.open_to_train(self.directory / "tokens" / "train", *sizes)

    def held_out(self, split: SplitName) -> list[Phrase]:
        return {"valid": self.valid, "test": self.test}[split]

    @property
    def has_alignments(self) -> bool:
        return any(phrase.alignment for phrase in self.test)


def prepare(config: CorpusConfig, directory: Path, say: Say, start: StartConfig | None = None) -> Corpus:
    """Reads, splits, learns the vocabularies (or takes those of the run to `start` from), tokenises; everything is in `directory`
    afterwards."""
    taken = vocabularies_of(start, config.tokenizer, config.lowercase, config.joint, say)
    train, valid, test = _read(config, say)
    report = Report()
    make_directory(directory)
    vocabularies = taken or _learn(config, lambda: train(Report()))
    vocabularies.save(directory / "tokenizer.json")
    write_shards(
        directory / "tokens" / "train",
        vocabularies.encode_pairs(train(report), config.max_length, report),
        vocabulary_size=max(len(vocabularies.source), len(vocabularies.target)),
    )
    valid, too_long_to_validate = _short_enough(valid, vocabularies, config)
    test, too_long_to_test = _short_enough(test, vocabularies, config)
    _save_held_out(directory / "held-out.jsonl", valid, test)
    say(f"training pairs: {report.sentence()}; {len(valid):,} to validate and {len(test):,} to test")
    if report.in_held_out_files:
        is_one = report.in_held_out_files == 1
        say(
            f"{counted(report.in_held_out_files, 'training pair')} also {'occurs' if is_one else 'occur'} in the validation or test files; "
            f"{'it was' if is_one else 'they were'} left out of training"
        )
    if report.kept < FEW_PAIRS:
        them = "it" if report.kept == 1 else "them"
        say(
            f"Only {counted(report.kept, 'training pair')}: the model will memorise {them}; a good translator needs tens of thousands"
        )
    if too_long_to_validate or too_long_to_test:
        left_out = f"{too_long_to_validate:,} and {too_long_to_test:,}"
        say(f"left out of validation and test, longer than {config.max_length:,} tokens: {left_out}")
    say(_described(vocabularies))
    return Corpus(directory, vocabularies, valid, test)


def reopen(directory: Path) -> Corpus:
    """The corpus that `prepare` left there."""
    valid, test = _load_held_out(directory / "held-out.jsonl")
    return Corpus(directory, Vocabularies.load(directory / "tokenizer.json"), valid, test)


Reader = Callable[[Report], Iterator[Pair]]


def _read(config: CorpusConfig, say: Say) -> tuple[Reader, list[Phrase], list[Phrase]]:
    if config.corpus != "files":
        return _built_in(config)
    assert config.source is not None

    def everything(report: Report) -> Iterator[Pair]:
        assert config.source is not None
        return read_pairs(
            config.source, config.target, lowercase=config.lowercase, report=report, columns=config.columns
        )

    def held_out(source: Path | None, target: Path | None) -> list[Phrase]:
        if source is None:
            return []
        report = Report()
        pairs = _phrases(read_pairs(source, target, lowercase=config.lowercase, report=report, columns=config.columns))
        if report.empty:
            say(f"{source}: {report.sentence()}")
        return pairs

    valid = held_out(config.valid_source, config.valid_target)
    test = held_out(config.test_source, config.test_target)
    in_files = {(phrase.source, phrase.target) for phrase in (*valid, *test)}

    def unseen(report: Report) -> Iterator[Pair]:
        kept = 0
        for pair in everything(report):
            if pair in in_files:
                report.in_held_out_files += 1
            else:
                kept += 1
                yield pair
        if not kept:
            raise UserError(
                f"{config.source}: every pair also occurs in the validation or test files, so none is left to train on; give other files"
            )

    held_out_files: dict[SplitName, list[Phrase]] = {"valid": valid, "test": test}
    missing = [split for split, pairs in held_out_files.items() if not pairs]
    if not missing:
        return unseen, valid, test
    split = split_pairs(unseen, config.split_seed, parts=missing)
    return split.train, valid or _phrases(split.valid), test or _phrases(split.test)


def _built_in(config: CorpusConfig) -> tuple[Reader, list[Phrase], list[Phrase]]:
    make = phrases if config.corpus == "phrasebook" else reversed_digits
    longest = {} if config.corpus == "phrasebook" else {"longest": config.digits}

    def normalised(written: Iterable[Phrase]) -> list[Phrase]:
        text = partial(normalise, lowercase=config.lowercase)
        return [replace(phrase, source=text(phrase.source), target=text(phrase.target)) for phrase in written]

    pairs = [(phrase.source, phrase.target) for phrase in normalised(make("train", config.examples, **longest))]

    def train(report: Report) -> Iterator[Pair]:
        report.read += len(pairs)
        return iter(pairs)

    return train, normalised(make("valid", 500)), normalised(make("test", 1000))


def _short_enough(phrases: list[Phrase], vocabularies: Vocabularies, config: CorpusConfig) -> tuple[list[Phrase], int]:
    """Without the pairs that have more tokens than the model is trained for, and how many those were."""
    most = config.max_length
    kept = [
        phrase
        for phrase in phrases
        if len(vocabularies.source.encode(phrase.source)) <= most
        and len(vocabularies.target.encode(phrase.target)) <= most
    ]
    if not kept:
        cut_out = config.corpus == "files" and None in (config.valid_source, config.test_source)
        raise UserError(
            f"no held-out pair has at most {most:,} tokens on each side: allow longer ones with data.max_length"
            + (", or name held-out files with data.valid_source, data.test_source and their targets" if cut_out else "")
        )
    return kept, len(phrases) - len(kept)


def _phrases(pairs: Iterable[Pair]) -> list[Phrase]:
    return [Phrase(source, target, ()) for source, target in pairs]


def _learn(config: CorpusConfig, pairs: Callable[[], Iterable[Pair]]) -> Vocabularies:
    size = config.vocab_size or _fitting_vocabulary(config, sum(1 for _ in pairs()))

    def tokenizer(*sides: int) -> Tokenizer:
        texts = (pair[side] for pair in pairs() for side in sides)
        # A word that occurs once is better learned as an unknown one, as every word outside the vocabulary will be.
        min_count = 2 if config.tokenizer == "words" and config.corpus == "files" else 1
        return Tokenizer.train(texts, config.tokenizer, size, config.lowercase, min_count)

    if config.joint:
        both = tokenizer(0, 1)
        return Vocabularies(both, both)
    return Vocabularies(tokenizer(0), tokenizer(1))


def _fitting_vocabulary(config: CorpusConfig, pairs: int) -> int:
    """Each subword should occur often enough to be learned: a few thousand for a small corpus, 32,000 for a large one."""
    if config.tokenizer != "bpe":
        return 50_000
    return min(max(1000, 1000 * round(pairs / 4000)), 32_000)


def _described(vocabularies: Vocabularies) -> str:
    kind = vocabularies.source.kind
    if vocabularies.joint:
        return f"one vocabulary of {len(vocabularies.source):,} tokens ({kind}) for both sides"
    return f"vocabularies of {len(vocabularies.source):,} and {len(vocabularies.target):,} tokens ({kind})"


def _save_held_out(path: Path, valid: list[Phrase], test: list[Phrase]) -> None:
    rows = [
        {"split": split, "source": phrase.source, "target": phrase.target, "alignment": phrase.alignment}
        for split, part in (("valid", valid), ("test", test))
        for phrase in part
    ]
    write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def _load_held_out(path: Path) -> tuple[list[Phrase], list[Phrase]]:
    parts: dict[SplitName, list[Phrase]] = {"valid": [], "test": []}
    try:
        for row in read_json_lines(path, _HeldOutRow, _MOST_HELD_OUT):
            parts[row.split].append(Phrase(row.source, row.target, row.alignment))
        for split, kept in parts.items():
            if not kept:
                raise ValueError(f"it has no pair to {PURPOSES[split]}")
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} cannot be read ({error}): this run is incomplete; copy it again or train it again"
        ) from None
    return parts["valid"], parts["test"]
