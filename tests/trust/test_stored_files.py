"""What a task has stored in its run may be no file, or hold anything: one sentence, and neither waiting nor endless reading."""

import gzip
import json
import os
import resource
import signal
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

import saccade as library
from saccade.data.questions import dataset as questions
from saccade.data.questions.words import Lexicon
from saccade.data.text import running
from saccade.errors import UserError
from saccade.runs.train import train
from trust import runs

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is limited by /proc and RLIMIT_AS")

_SECONDS, _BYTES = 20, 1 << 30
_ELSEWHERE = {"model.safetensors", "metrics.jsonl", "checksums.json"}  # other tests damage these


@contextmanager
def at_once():
    """Neither an endless wait nor endless memory."""

    def stop(*_):
        pytest.fail("it was waited for")

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGALRM, stop)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + _BYTES, hard))
    signal.alarm(_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def use(run: Path, stored: Path) -> None:
    """Reads what is in this file, as `saccade evaluate` and `--resume` do."""
    task = library.load(run).task
    folder, *inside = stored.relative_to(run).parts
    if folder in ("tokens", "held-out"):
        data = next(value for value in vars(task).values() if hasattr(value, "directory"))
        getattr(data, inside[0].partition(".")[0])


def put(path: Path, kind: str) -> None:
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "endless":
        path.symlink_to("/dev/zero")
    else:
        path.write_bytes({"nothing": b"", "garbage": b'[{"x": 1e999, "y": [[]]}]\n', "nested": b"[" * 100_000}[kind])


SMALL = ["train.steps=1", "train.validate_every=1", "train.warmup_steps=1", "train.threads=1", "data.examples=100"]
LANGUAGE = ["model.layers=1", "model.width=16", "model.heads=2", "model.context=32", "data.batch_size=2"]
LSTM = ["model.hidden=8", "model.layers=1"]


@pytest.mark.parametrize(("recipe", "more"), [("reviews-lstm", LSTM), ("language", LANGUAGE), ("stories-bidaf", LSTM)])
def test_whatever_stands_in_place_of_a_stored_file_is_a_sentence_at_once(recipe, more, tmp_path):
    run = train(recipe, [*SMALL, *more], tmp_path / "run")
    (run / "checksums.json").unlink()  # a stranger's would fit
    stored = [path for path in runs.files(run) if path.name not in _ELSEWHERE and path.parent.name != "state"]
    assert len(stored) >= 4
    for path in stored:
        aside = path.rename(tmp_path / "aside")
        for kind in ("pipe", "endless", "nothing", "garbage", "nested"):
            put(path, kind)
            with at_once(), pytest.raises(UserError) as told:
                use(run, path)
            assert "\n" not in str(told.value), (path, kind)
            assert path.name.partition(".")[0] in str(told.value) or str(path.parent) in str(told.value), (path, kind)
            path.unlink()
        aside.rename(path)


ABOUT = {"version": 1, "documents": 1, "bytes": {"valid": 9}}
ROW = {"split": "test", "question": "Who?", "context": "Ada.", "answers": ["Ada"], "spans": [[0, 3]], "facts": []}


@pytest.mark.parametrize(
    "content",
    [
        {**ABOUT, "documents": float("inf")},
        {**ABOUT, "bytes": {}},
        {**ABOUT, "bytes": {"valid": 0}},
        {"version": 2},
        [],
    ],
)
def test_the_numbers_of_a_strangers_text_are_numbers(content, tmp_path, monkeypatch):
    monkeypatch.setattr(running, "load_tokenizer", lambda directory: None)
    (tmp_path / "text.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"text\.json cannot be read .*: this run is incomplete"):
        running.reopen(tmp_path)


@pytest.mark.parametrize(
    "change", [{"spans": [[0, 10**30]]}, {"facts": [[3, 1]]}, {"spans": [[0, float("inf")]]}, {"split": "train"}]
)
def test_a_strangers_answers_are_spans_of_their_contexts(change, tmp_path):
    rows = [{"unanswered": False}, {**ROW, "split": "valid"}, ROW]
    (tmp_path / "held-out.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert questions.reopen(tmp_path).test[0].spans == ((0, 3),)
    rows[-1] = {**ROW, **change}
    (tmp_path / "held-out.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UserError, match=r"held-out\.jsonl cannot be read .*: this run is incomplete"):
        questions.reopen(tmp_path)


def test_packed_questions_do_not_grow_without_end(tmp_path, monkeypatch):
    (tmp_path / "tokens").mkdir()
    path = tmp_path / "tokens" / "train.jsonl.gz"
    path.write_bytes(gzip.compress((json.dumps(ROW) + "\n").encode() * 20))
    stored = questions.Questions(tmp_path, [], [], unanswered=False)
    monkeypatch.setattr(questions, "_MOST_TO_TRAIN", 1000)
    with pytest.raises(UserError, match="cut off or too large"):
        _ = stored.train
    monkeypatch.setattr(questions, "_MOST_TO_TRAIN", 1 << 20)
    assert len(stored.train) == 20


def test_the_words_of_a_strangers_vocabulary_are_words(tmp_path):
    path = tmp_path / "vocabulary.json"
    Lexicon(["a"], ["b"], lowercase=True).save(path)
    assert Lexicon.load(path).words == ["a"]
    path.write_text(path.read_text().replace('"a"', "1"))
    with pytest.raises(UserError, match="cannot be read"):
        Lexicon.load(path)
