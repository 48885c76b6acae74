"""Questions as training needs them. A run's directory keeps what was read:

    vocabulary.json        words and letters, of a model that learns its own
    held-out.jsonl         the questions to validate and to test
    tokens/train.jsonl.gz  those to train on; may be deleted after training

Held-out questions are cut by their contexts, so that no text that is asked about in a test was trained on.
"""

import gzip
import json
import random
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Literal

from pydantic import Field, NonNegativeInt, ValidationInfo, model_validator

from saccade.config.recipe import Config, ExistingFile, files_may_be_missing
from saccade.data.builtin.stories import stories
from saccade.data.questions.exercises import Exercise, Reading, read_exercises
from saccade.data.splits import PURPOSES, SPLITS, SplitName
from saccade.data.text.pairs import counted
from saccade.errors import Say, UserError
from saccade.files import MOST_BYTES, make_directory, open_regular, read_bytes, replacing, write_text
from saccade.stored import Stored, parsed, parsed_lines

_SHARE, _MOST_CUT = 0.05, 2000  # of the contexts that are held out; questions a part
_FEW = 2000
_MOST_HELD_OUT, _MOST_TO_TRAIN = 1 << 28, 1 << 32  # bytes

_Spans = tuple[tuple[NonNegativeInt, NonNegativeInt], ...]


class _About(Stored):
    """The first line of held-out.jsonl."""

    unanswered: bool


class _Row(Stored):
    question: str
    context: str
    answers: tuple[str, ...]
    spans: _Spans
    facts: _Spans

    def exercise(self) -> Exercise:
        if any(not start <= end <= len(self.context) for start, end in (*self.spans, *self.facts)):
            raise ValueError("an answer is outside of its context")
        return Exercise(self.question, self.context, self.answers, self.spans, self.facts)


class _HeldOutRow(_Row):
    split: Literal["valid", "test"]


class QuestionsConfig(Config):
    corpus: Literal["files", "stories"] = Field("files", description="your own files, or built-in stories")
    train: ExistingFile | None = Field(
        None, description="SQuAD's JSON, JSON lines, a CSV or TSV, or bAbI; also gzipped"
    )
    valid: ExistingFile | None = Field(None, description="cut from the training questions unless given; so is test")
    test: ExistingFile | None = None
    split_seed: int = Field(1, ge=0, lt=2**63, description="which contexts are held out where no files are named")
    limit: int | None = Field(None, ge=1, description="so many of the training questions only, drawn by split_seed")
    skip_bad: bool = Field(
        False, description="leave out questions whose answer is not in their context, and count them"
    )
    examples: int = Field(8000, ge=10, description="corpus stories: how many to train on")
    lowercase: bool = Field(True, description="words are looked up in lower case; letters are read as written")
    vocab_size: int = Field(50_000, ge=2, description="at most so many words; all are read by their letters too")
    window: int = Field(400, ge=10, description="words of a context that are read at a time; longer ones in windows")
    stride: int = Field(128, ge=1, description="words from the start of a window to that of the next one")
    batch_tokens: int = Field(6000, ge=1, description="words of contexts a batch, padding included")

    @model_validator(mode="after")
    def _files_are_named(self, info: ValidationInfo) -> "QuestionsConfig":
        if self.corpus == "files" and self.train is None and not files_may_be_missing(info):
            raise ValueError("name your questions: --set data.train=FILE, or take data.corpus=stories")
        if self.corpus == "files":
            self._refuse_unused("built-in stories, and of your own files all questions are used", "examples")
        else:
            names = ("train", "valid", "test", "split_seed", "limit", "skip_bad")
            self._refuse_unused("your own files and data.corpus is stories", *names)
        if self.stride > self.window:
            raise ValueError(f"stride = {self.stride} would leave out words between windows of {self.window}: lower it")
        return self


@dataclass(frozen=True)
class Questions:
    directory: Path
    valid: list[Exercise]
    test: list[Exercise]
    unanswered: bool  # whether some questions have no answer

    @cached_property
    def train(self) -> list[Exercise]:
        """Read on first use: a run that only predicts does not need it."""
        path = self.directory / "tokens" / "train.jsonl.gz"
        try:
            with open_regular(path) as packed, gzip.GzipFile(fileobj=packed) as lines:
                exercises = [row.exercise() for row in parsed_lines(_limited(lines), _Row)]
            if not exercises:
                raise ValueError("it holds no question")
            return exercises
        except (OSError, EOFError, zlib.error, ValueError) as error:
            raise UserError(f"{path} cannot be read ({error}): train this run again to resume it") from None

    def held_out(self, split: SplitName) -> list[Exercise]:
        if split == "train":
            return self.train
        return self.valid if split == "valid" else self.test


def prepare(config: QuestionsConfig, directory: Path, say: Say) -> Questions:
    """Reads and splits; everything is in `directory` afterwards."""
    train, valid, test = _built_in(config) if config.corpus == "stories" else _read(config, say)
    unanswered = any(not exercise.spans for exercise in train)
    make_directory(directory / "tokens")
    rows = [("valid", exercise) for exercise in valid] + [("test", exercise) for exercise in test]
    text = "".join(_line({"split": split, **_to_row(exercise)}) for split, exercise in rows)
    write_text(directory / "held-out.jsonl", _line({"unanswered": unanswered}) + text)
    with replacing(directory / "tokens" / "train.jsonl.gz") as aside, gzip.open(aside, "wt", encoding="utf-8") as file:
        file.writelines(_line(_to_row(exercise)) for exercise in train)
    say(f"{counted(len(train), 'question')} to train on, {len(valid):,} to validate and {len(test):,} to test")
    missing = sum(not exercise.spans for exercise in train)
    if missing:
        say(f"{counted(missing, 'training question')} without an answer: the model learns to say so")
    if len(train) < _FEW:
        say(f"Only {counted(len(train), 'training question')}: a reader from scratch needs tens of thousands")
    return Questions(directory, valid, test, unanswered)


def reopen(directory: Path) -> Questions:
    path = directory / "held-out.jsonl"
    parts: dict[str, list[Exercise]] = {"valid": [], "test": []}
    try:
        first, *lines = read_bytes(path, _MOST_HELD_OUT).split(b"\n")[:-1] or [b""]
        unanswered = parsed(first, _About).unanswered
        for row in parsed_lines(lines, _HeldOutRow, first=2):
            parts[row.split].append(row.exercise())
        for split in SPLITS[1:]:
            if not parts[split]:
                raise ValueError(f"it has no question to {PURPOSES[split]}")
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} cannot be read ({error}): this run is incomplete; copy it again or train it again"
        ) from None
    return Questions(directory, parts["valid"], parts["test"], unanswered)


def _built_in(config: QuestionsConfig) -> tuple[list[Exercise], list[Exercise], list[Exercise]]:
    return stories("train", config.examples), stories("valid", 500), stories("test", 1000)


def _read(config: QuestionsConfig, say: Say) -> tuple[list[Exercise], list[Exercise], list[Exercise]]:
    def exercises(path: Path | None) -> list[Exercise]:
        if path is None:
            return []
        reading = Reading(config.skip_bad)
        found = read_exercises(path, reading)
        if reading.bad:
            say(f"left out {counted(reading.bad, 'question')} of {path}; the first: {reading.first_problem}")
        return found

    everything, valid, test = exercises(config.train), exercises(config.valid), exercises(config.test)
    held_out = {_group(exercise) for exercise in (*valid, *test)}
    train = [exercise for exercise in everything if _group(exercise) not in held_out]
    if len(train) < len(everything):
        say(
            f"left out of training: {counted(len(everything) - len(train), 'question')} about contexts that are held out"
        )
    given: dict[SplitName, list[Exercise]] = {"valid": valid, "test": test}
    missing = [split for split, part in given.items() if not part]
    cut, train = _cut(train, missing, config)
    if not train:
        raise UserError(f"{config.train}: every context is held out, so none is left to train on; give more questions")
    if config.limit is not None and config.limit < len(train):
        train = random.Random(config.split_seed).sample(train, config.limit)
    return train, valid or cut["valid"], test or cut["test"]


def _cut(
    train: list[Exercise], parts: Sequence[SplitName], config: QuestionsConfig
) -> tuple[dict[SplitName, list[Exercise]], list[Exercise]]:
    """Whole contexts for each part, by a hash of their text: neither their order nor other contexts matter."""
    groups = sorted({_group(exercise) for exercise in train}, key=lambda group: _rank(group, config.split_seed))
    if parts and len(groups) < len(parts) + 1:
        purposes = " and ".join(PURPOSES[part] for part in parts)
        raise UserError(
            f"{counted(len(groups), 'context')} cannot be split to {purposes} as well: give questions about at least "
            f"{len(parts) + 1}, or files of their own for data.valid and data.test"
        )
    share = max(1, int(len(groups) * _SHARE))
    chosen: dict[str, SplitName] = {}
    for number, part in enumerate(parts):
        chosen |= dict.fromkeys(groups[number * share : (number + 1) * share], part)
    cut: dict[SplitName, list[Exercise]] = {"valid": [], "test": []}
    left: list[Exercise] = []
    for exercise in train:
        own = chosen.get(_group(exercise))
        (left if own is None else cut[own]).append(exercise)
    return {part: found[:_MOST_CUT] for part, found in cut.items()}, left


def _group(exercise: Exercise) -> str:
    return exercise.story or " ".join(exercise.context.split())


def _rank(group: str, seed: int) -> bytes:
    return blake2b(f"{seed}\0{group}".encode(), digest_size=16).digest()


def _to_row(exercise: Exercise) -> dict[str, object]:
    row: dict[str, object] = {"question": exercise.question, "context": exercise.context, "answers": exercise.answers}
    return {**row, "spans": exercise.spans, "facts": exercise.facts}


def _line(row: dict[str, object]) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"


def _limited(lines: gzip.GzipFile) -> Iterator[bytes]:
    """Unpacked lines: neither one nor all of them may grow without end."""
    size = 0
    while line := lines.readline(MOST_BYTES):
        size += len(line)
        if not line.endswith(b"\n") or size > _MOST_TO_TRAIN:
            raise ValueError("it is cut off or too large")
        yield line
