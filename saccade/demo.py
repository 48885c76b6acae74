"""`saccade demo`: the lectures' first experiment on the built-in corpus, in a few minutes.

Two recurrent translators, equal but for attention, are trained side by side, each on one core. Without attention the whole sentence must
pass through one vector, and long sentences fail; with attention they do not.
"""

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from saccade.data.builtin.phrasebook.phrases import LECTURE_SENTENCE
from saccade.errors import UserError
from saccade.files import write_text
from saccade.runs.run import Run
from saccade.training.checkpoint import RunDirectory
from saccade.waiting import elapsing

RECIPE = "phrasebook-rnn"
STEPS = 1100
ALIKE = [f"train.steps={STEPS}", "train.threads=1", f"train.validate_every={STEPS}", "train.checkpoint_every=275"]
KINDS = {"without attention": "none", "with attention": "additive"}


def demo(out: Path, minutes: float) -> None:
    """Trains both (unless they are there already), compares them, translates, and draws what was attended to."""
    notes, results = (Console(stderr=stderr, highlight=False, soft_wrap=True) for stderr in (True, False))
    paths = {kind: out / kind.replace(" ", "-") for kind in KINDS}
    _train_side_by_side(paths, minutes, notes)
    runs = {kind: Run(path) for kind, path in paths.items()}
    scores = {}
    for kind, run in runs.items():
        notes.print(f"Translating 1,000 unseen sentences {kind} …")
        with elapsing("translating"):
            scores[kind] = _evaluated(run)
    results.print(_by_length(scores))
    steps = min(_steps(path) for path in paths.values())
    if steps < 0.8 * STEPS:
        longer = 10 * math.ceil(minutes * STEPS / max(steps, 1) / 10)
        results.print(
            f"Only {steps:,} of {STEPS:,} steps of training fitted into the time: this machine is slow or busy, and both "
            f"translate worse than they could. With more time: saccade demo --minutes {longer} --out {out}-longer\n"
        )
    attending = runs["with attention"]
    aligned = scores["with attention"].get("alignment_error_rate")
    if aligned is not None:
        results.print(
            f"Alignment error rate of the attention, against the gold word alignment: {aligned:.2f} (0 is perfect)\n"
        )
    unseen = [*(example.content for example in attending.task.held_out("test")[:3]), LECTURE_SENTENCE.source]
    for source, translation in zip(unseen, attending.predict(unseen), strict=True):
        results.print(Text(f"  {source}\n  → {translation.lines()[0]}\n"))
    view = attending.look(LECTURE_SENTENCE.source)
    files = [out / f"alignment{ending}" for ending in (".png", ".html")]
    for file in files:
        view.save(file)
    results.print(f"What each word looked at: {files[0]} (a picture) and {files[1]} (open it in a browser)")
    results.print(_what_next(paths["with attention"]))


def _train_side_by_side(paths: dict[str, Path], minutes: float, notes: Console) -> None:
    waiting = {kind: path for kind, path in paths.items() if not _is_finished(path)}
    if not waiting:
        notes.print(
            f"Both models are trained already (in {next(iter(paths.values())).parent}); delete that directory to start anew."
        )
        return
    notes.print(f"Training {len(waiting)} translators side by side (at most {minutes:g} minutes): {', '.join(waiting)}")
    processes = {
        kind: subprocess.Popen(
            _command(kind, path, minutes), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8"
        )
        for kind, path in waiting.items()
    }
    listeners = [Thread(target=_retell, args=(kind, process, notes)) for kind, process in processes.items()]
    for listener in listeners:
        listener.start()
    try:
        failed = [kind for kind, process in processes.items() if process.wait() != 0]
    except KeyboardInterrupt:
        for process in processes.values():
            process.wait()
        raise
    finally:
        for listener in listeners:
            listener.join()
    if failed:
        raise UserError(
            f"training {failed[0]} failed, see above; run the demo again to resume from the last checkpoint"
        )


def _retell(kind: str, process: "subprocess.Popen[str]", notes: Console) -> None:
    """What one of the two trainings says, with its name in front."""
    assert process.stderr is not None
    for line in process.stderr:
        notes.print(Text(f"{kind:>17} │ {line.rstrip()}"))


def _evaluated(run: Run) -> dict[str, Any]:
    """Scores on the test set, remembered beside the model until it changes."""
    remembered = run.path / "test-scores.json"
    model = RunDirectory(run.path).model.stat().st_mtime
    if remembered.exists() and remembered.stat().st_mtime > model:
        scores: dict[str, Any] = json.loads(remembered.read_text(encoding="utf-8"))
        return scores
    scores = run.evaluate("test", search="greedy").to_dict()
    write_text(remembered, json.dumps(scores))
    return scores


def _command(kind: str, path: Path, minutes: float) -> Sequence[str]:
    changes = [
        f"description=English to French on the built-in phrasebook, recurrent {kind}",
        f"model.attention={KINDS[kind]}",
        f"train.minutes={minutes}",
        *ALIKE,
    ]
    if RunDirectory(path).config.exists():
        return [sys.executable, "-m", "saccade", "train", RECIPE, "--out", str(path), "--resume"]
    settings = [argument for change in changes for argument in ("--set", change)]
    return [sys.executable, "-m", "saccade", "train", RECIPE, "--out", str(path), *settings]


def _is_finished(path: Path) -> bool:
    state = RunDirectory(path).latest_state(lambda _: None)
    return state is not None and state[1].finished


def _steps(path: Path) -> int:
    state = RunDirectory(path).latest_state(lambda _: None)
    return 0 if state is None else state[1].step


def _by_length(scores: dict[str, dict[str, Any]]) -> Table:
    """Exact match by sentence length, the two models side by side."""
    table = Table(title="Sentences translated exactly right, by length", title_justify="left")
    table.add_column("words in the source")
    table.add_column("sentences", justify="right")
    for kind in scores:
        table.add_column(kind, justify="right")
    groups = {kind: own["by_length"] for kind, own in scores.items()}
    rows = {group["source_words"]: group["sentences"] for own in groups.values() for group in own}
    exact = {kind: {group["source_words"]: group["exact"] for group in own} for kind, own in groups.items()}
    for label, count in rows.items():
        table.add_row(label, str(count), *(f"{exact[kind][label]:.0f} %" for kind in scores))
    total = next(iter(scores.values()))["sentences"]
    table.add_row("all", str(total), *(f"{own['exact']:.0f} %" for own in scores.values()), style="bold")
    return table


def _what_next(path: Path) -> str:
    return f"""
What to try next:
  saccade predict {path} "The old minister did not sign the contract."
  saccade look {path} "The old minister did not sign the contract." --out look.html
  saccade train translation --set data.source=my.en --set data.target=my.de --out my-run"""
