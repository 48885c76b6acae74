"""A parallel corpus as training needs it: tokenised pairs to train on, held-out text to judge by.

A corpus is prepared once, into the run directory:

    tokenizer.json      the vocabularies
    held-out.jsonl      valid and test sentences, with their gold word alignment where it is known
    tokens/train/       the training pairs, tokenised, to be mapped into memory

so that a run can be gone on with, evaluated and moved without its files, and several processes read the same tokens.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationInfo, model_validator

from saccade.config.recipe import Config, ExistingFile, StartConfig, files_may_be_missing
from saccade.data.builtin.digits import LONGEST, reversed_digits
from saccade.data.builtin.phrasebook.phrases import Phrase, phrases
from saccade.data.text.pairs import Pair, Report, counted, holds_both_sides, normalise, read_pairs, split_pairs
from saccade.data.text.shards import TokenPairs, write_shards
from saccade.data.text.starting import vocabularies_of
from saccade.data.text.tokenizer import Kind, Tokenizer, Vocabularies
from saccade.errors import UserError
from saccade.files import make_directory, write_text

FEW_PAIRS = 1000

SplitName = Literal["valid", "test"]
Say = Callable[[str], None]


class CorpusConfig(Config):
    corpus: Literal["files", "phrasebook", "digits"] = Field(
        "files", description="your own files, or a built-in corpus"
    )
    source: ExistingFile | None = Field(None, description="a text file, or a TSV or JSON-lines file with both sides")
    target: ExistingFile | None = Field(None, description="the text file aligned with the source")
    valid_source: ExistingFile | None = None
    valid_target: ExistingFile | None = None
    test_source: ExistingFile | None = None
    test_target: ExistingFile | None = None
    split_seed: int = Field(
        1,
        ge=0,
        lt=2**63,
        description="which pairs are held out where no files are named: the same for every train.seed",
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
        if self.valid_source is not None:
            self._refuse_unused("a corpus that validation and test are cut from, and theirs are named", "split_seed")
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
        if (self.valid_source is None) != (self.test_source is None):
            raise ValueError("give both valid_source and test_source, or neither: then both are cut from the corpus")
        return self


@dataclass(frozen=True)
class Corpus:
    directory: Path
    vocabularies: Vocabularies
    valid: list[Phrase]
    test: list[Phrase]

    @cached_property
    def train(self) -> TokenPairs:
        """Opened when first asked for: a run that only predicts does not need its training data any more."""
        return TokenPairs.open(self.directory / "tokens" / "train")

    def held_out(self, split: SplitName) -> list[Phrase]:
        return self.valid if split == "valid" else self.test

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
    if report.known:
        say(f"{report.known:,} of the training pairs stand in the files to validate or test by, too: those are no test")
    if report.kept < FEW_PAIRS:
        say(
            f"{counted(report.kept, 'pair')} will hardly teach more than themselves: tens of thousands make a translator"
        )
    if too_long_to_validate or too_long_to_test:
        left_out = f"{too_long_to_validate:,} and {too_long_to_test:,}"
        say(f"left out of validation and test, because longer than {config.max_length:,} tokens: {left_out}")
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
        return read_pairs(config.source, config.target, lowercase=config.lowercase, report=report)

    if config.valid_source is None or config.test_source is None:
        split = split_pairs(everything, config.split_seed)
        return split.train, _phrases(split.valid), _phrases(split.test)

    def held_out(source: Path, target: Path | None) -> list[Phrase]:
        report = Report()
        read = _phrases(read_pairs(source, target, lowercase=config.lowercase, report=report))
        if report.empty:
            say(f"{source}: {report.sentence()}")
        return read

    valid = held_out(config.valid_source, config.valid_target)
    test = held_out(config.test_source, config.test_target)
    named = {(phrase.source, phrase.target) for phrase in (*valid, *test)}

    def train(report: Report) -> Iterator[Pair]:
        for pair in everything(report):
            report.known += pair in named
            yield pair

    return train, valid, test


def _built_in(config: CorpusConfig) -> tuple[Reader, list[Phrase], list[Phrase]]:
    make = phrases if config.corpus == "phrasebook" else reversed_digits
    longest = {} if config.corpus == "phrasebook" else {"longest": config.digits}

    def written(made: Iterable[Phrase]) -> list[Phrase]:
        text = partial(normalise, lowercase=config.lowercase)
        return [replace(phrase, source=text(phrase.source), target=text(phrase.target)) for phrase in made]

    pairs = [(phrase.source, phrase.target) for phrase in written(make("train", config.examples, **longest))]

    def train(report: Report) -> Iterator[Pair]:
        report.read += len(pairs)
        return iter(pairs)

    return train, written(make("valid", 500)), written(make("test", 1000))


def _short_enough(phrases: list[Phrase], vocabularies: Vocabularies, config: CorpusConfig) -> tuple[list[Phrase], int]:
    """Without the pairs that have more tokens than the model is trained for, and how many those were."""
    longest = config.max_length
    kept = [
        phrase
        for phrase in phrases
        if len(vocabularies.source.encode(phrase.source)) <= longest
        and len(vocabularies.target.encode(phrase.target)) <= longest
    ]
    if not kept:
        cut_out = config.corpus == "files" and config.valid_source is None
        raise UserError(
            f"no held-out pair has at most {longest:,} tokens on each side: allow longer ones with data.max_length"
            + (", or name held-out files with data.valid_source, data.test_source and their targets" if cut_out else "")
        )
    return kept, len(phrases) - len(kept)


def _phrases(pairs: Iterable[Pair]) -> list[Phrase]:
    return [Phrase(source, target, ()) for source, target in pairs]


def _learn(config: CorpusConfig, pairs: Callable[[], Iterable[Pair]]) -> Vocabularies:
    size = config.vocab_size or _fitting_vocabulary(config, sum(1 for _ in pairs()))

    def tokenizer(*sides: int) -> Tokenizer:
        texts = (pair[side] for pair in pairs() for side in sides)
        # A word that was seen once is better learned as an unknown one: so are all words that will come and are not in the vocabulary.
        min_count = 2 if config.tokenizer == "words" and config.corpus == "files" else 1
        return Tokenizer.train(texts, config.tokenizer, size, config.lowercase, min_count)

    if config.joint:
        both = tokenizer(0, 1)
        return Vocabularies(both, both)
    return Vocabularies(tokenizer(0), tokenizer(1))


def _fitting_vocabulary(config: CorpusConfig, pairs: int) -> int:
    """Subwords should each be seen often enough to be learned: a few thousand for a small corpus, 32,000 for a large one."""
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
    parts: dict[str, list[Phrase]] = {"valid": [], "test": []}
    try:
        for line in path.read_text(encoding="utf-8").split("\n")[:-1]:
            row = json.loads(line)
            links = tuple((int(source), int(target)) for source, target in row["alignment"])
            parts[row["split"]].append(Phrase(row["source"], row["target"], links))
        for split, kept in parts.items():
            if not kept:
                raise ValueError(f"it holds no pair to {'validate' if split == 'valid' else split} by")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} cannot be read ({error}): this run is not complete; copy it again or train it anew"
        ) from None
    return parts["valid"], parts["test"]
