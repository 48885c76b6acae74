"""Time to quality: how long a training of Multi30k English-German must be for 30, 34 and 37 BLEU, ours and Hugging Face's in a plain loop.

    SACCADE_DATA=... python -m benchmarks.quality                           all budgets, one after the other
    SACCADE_DATA=... python -m benchmarks.quality --contenders saccade      only ours; Hugging Face's meanwhile in another process

Tiny Transformers (4 + 4 layers, width 128, norms after each sum, sinusoids, rectified hidden units and small first weights, as Marian has
them), the same joint vocabulary, batches, highest dropout, label smoothing and highest rate. Ours is what `saccade train translation` does:
Muon, which needs little warm-up, and dropout that rises over ten epochs. Hugging Face's is the loop that everybody writes, with AdamW, a
warm-up that fits its budget and constant dropout; "saccade, AdamW" is ours with the peer's optimiser, warm-up and dropout, so that it can
be seen what comes from where. Whoever wants a model soon chooses a budget, and the rate falls over all of it, so each budget (`BUDGETS`,
minutes) is a training of its own. After it the weights translate test_2016_flickr (beam 5, cased sacreBLEU). When
a mark is reached is interpolated between budgets, in the logarithm of the minutes. Weights, optimiser and BLEU at the middle and at the
end of each training are kept in `--out`: an interrupted measurement goes on, and one of ours and Hugging Face's together gathers what was
measured apart and writes benchmarks/results/quality.json.
"""

import argparse
import fcntl
import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from sacrebleu.metrics.bleu import BLEU

from benchmarks import report
from benchmarks.measure import machine, write_json
from benchmarks.translators import PlainTraining, marian, smoothed
from saccade.config import recipe as configs
from saccade.data.text.batching import PairBatch, collate
from saccade.data.text.shards import TokenPairs
from saccade.data.text.tokenizer import PAD
from saccade.runs.train import open_task
from saccade.tasks.translation.task import TranslationTask
from saccade.training.checkpoint import RunDirectory
from saccade.training.loop import Training
from saccade.training.reporter import Reporter
from saccade.training.schedule import rate_at
from saccade.training.weights import optimizer_tensors, own_tensors, put_optimizer_tensors, put_tensors
from saccade.training.world import World

MARKS = (30.0, 34.0, 37.0)
GOAL = 2.0  # times sooner at 34
SENTENCES = 1000  # all of test_2016_flickr
HUGGING_FACE, ADAMW = "Hugging Face", f"{report.OURS}, AdamW"
BUDGETS = {report.OURS: (3.0, 6.0, 12.0), HUGGING_FACE: (20.0, 32.0), ADAMW: (10.0, 16.0)}
CHANGES = (
    "data.lowercase=false",
    "train.precision=fp32",
    "train.optimizer=adamw",
    "train.weight_decay=0",
    "train.dropout_epochs=0",
    "model.norm=post",
    "model.initial=small",
    "model.positions=sinusoidal",
    "model.activation=relu",
)
WARMUP = 25  # updates of AdamW for every minute of a budget: a third of them, more or less,
FEWEST = 400  # and no fewer: after 250 these networks, with their norms after each sum, never learned (2.4 BLEU)
PARTS = 2  # of a training, each ended by a judgement
RECIPE = "multi30k-en-de-transformer"
STEPS = 1_000_000  # the minutes end the training, not the updates


class Ours:
    """saccade's loop, one update at a time."""

    def __init__(self, task: TranslationTask, minutes: float):
        self.task = task
        self.changes = self.settings(minutes)
        train = task.recipe.train.model_copy(update={"steps": STEPS, "minutes": minutes, **self.changes})
        self.training = Training(task, train, RunDirectory(Path()), Reporter(quiet=True), World())
        self.model, self.optimizer = task.model, self.training.updates.optimizers[0]

    @staticmethod
    def settings(minutes: float) -> dict[str, Any]:
        return {"optimizer": "muon", "warmup_steps": 100, "dropout_epochs": 10}

    def update(self, work: Any, epoch: int, share: float) -> None:
        minutes = self.training.config.minutes
        assert minutes is not None
        self.training.progress.seconds = 60 * minutes * share
        self.training._ramp_dropout(epoch)
        self.training._update([work])

    def translate(self, sentences: Sequence[str]) -> list[str]:
        return [each.text for each in self.task.predict(sentences, beam=5)]


class OursWithAdamW(Ours):
    @staticmethod
    def settings(minutes: float) -> dict[str, Any]:
        return adamw_settings(minutes)


class Theirs:
    """MarianMTModel in the loop that everybody writes, over the same batches."""

    def __init__(self, task: TranslationTask, minutes: float):
        torch.manual_seed(task.recipe.train.seed)
        self.task = task
        self.changes = adamw_settings(minutes)
        self.train = task.recipe.train.model_copy(update=self.changes)
        model = task.recipe.model
        self.model: Any = marian(
            model.sizes, len(task.vocabularies.target), model.dropout, model.feed_forward_dropout, longest=512
        )
        self.loop = PlainTraining(self.model, self._loss)
        self.optimizer = self.loop.optimizer
        self.updates = 0

    def update(self, work: Any, epoch: int, share: float) -> None:
        batch = self.task.batch(work)
        assert batch is not None
        self.updates += 1
        for group in self.optimizer.param_groups:
            group["lr"] = rate_at(self.train, self.updates, share)
        self.model.train()
        self.loop.update(batch)

    def translate(self, sentences: Sequence[str]) -> list[str]:
        self.model.eval()
        tokens = self.task.encode(sentences)
        order = sorted(range(len(tokens)), key=lambda row: len(tokens[row]))
        texts: dict[int, str] = {}
        for start in range(0, len(order), 32):
            rows = order[start : start + 32]
            source = collate(TokenPairs.from_lists([(tokens[row], ()) for row in rows]), range(len(rows))).source
            seen = (source != PAD).long()
            with torch.no_grad():
                written = self.model.generate(
                    input_ids=source, attention_mask=seen, num_beams=5, max_new_tokens=2 * source.shape[1] + 20
                )
            for row, output in zip(rows, written.tolist(), strict=True):
                texts[row] = self.task.vocabularies.target.decode([token for token in output if token > 2]).strip()
        return [texts[row] for row in range(len(tokens))]

    def _loss(self, batch: PairBatch) -> torch.Tensor:
        seen = (batch.source != PAD).long()
        output = self.model(
            input_ids=batch.source, attention_mask=seen, decoder_input_ids=batch.target_in, use_cache=False
        )
        return smoothed(output.logits, batch)


def adamw_settings(minutes: float) -> dict[str, Any]:
    return {"warmup_steps": max(round(WARMUP * minutes), FEWEST)}


CONTENDERS: dict[str, Callable[[TranslationTask, float], Any]] = {
    report.OURS: Ours,
    HUGGING_FACE: Theirs,
    ADAMW: OursWithAdamW,
}


def main() -> None:
    parser = report.parser(__doc__.splitlines()[0], rounds=False)
    parser.add_argument("--share", type=float, default=1.0, help="of every budget, for a first look")
    parser.add_argument(
        "--sentences", type=int, default=SENTENCES, help="of test_2016 that are translated, for a first look"
    )
    parser.add_argument("--contenders", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS))
    parser.add_argument("--minutes", type=float, nargs="+", help="only these budgets")
    parser.add_argument("--out", type=Path, default=Path("runs/quality"))
    options = report.settle(parser.parse_args())
    curves = {
        name: {
            minutes: run(name, minutes * options.share, options)
            for minutes in BUDGETS[name]
            if options.minutes is None or minutes in options.minutes
        }
        for name in options.contenders
    }
    ends = {name: [curve[-1] for curve in by_budget.values()] for name, by_budget in curves.items()}
    if not all(ends.values()):
        raise SystemExit(f"--minutes {options.minutes} leaves somebody without a budget: choose among {BUDGETS}")
    rows = [row(name, of_budgets) for name, of_budgets in ends.items()]
    report.show(rows)
    if {report.OURS, HUGGING_FACE} <= set(ends) and options.share == 1 and options.sentences == SENTENCES:
        named = {f"times sooner at {mark:.0f}": times_sooner(mark, ends) for mark in MARKS}
        if ADAMW in ends:
            named |= {f"times sooner at {mark:.0f}, AdamW": times_sooner(mark, ends, ADAMW) for mark in MARKS}
        report.keep("quality", options, goal=GOAL, curves=curves, contenders=rows, **named)


def run(name: str, minutes: float, options: argparse.Namespace) -> list[dict[str, float]]:
    """The curve of one training: minutes, updates, BLEU. What was measured before is kept."""
    task = prepared(options.out / "data")
    contender = CONTENDERS[name](task, minutes)
    place = options.out / f"{name.replace(',', '').replace(' ', '-').lower()}-{minutes:g}"
    conditions = {"recipe": task.recipe.model_dump(mode="json"), "machine": machine(), "busy": options.busy}
    conditions |= {"sentences": options.sentences, "changes": contender.changes, "parts": PARTS}
    curve, updates = restored(contender, place, conditions)
    seconds = 60 * curve[-1]["minutes"] if curve else 0.0
    clock = time.process_time if options.busy else time.monotonic
    works = endless(task, updates)
    pairs = task.corpus.held_out("test")[: options.sentences]
    while len(curve) < PARTS:
        until = 60 * minutes * (len(curve) + 1) / PARTS
        while seconds < until:
            start = clock()
            epoch, work = next(works)
            contender.update(work, epoch, min(1.0, seconds / (60 * minutes)))
            updates += 1
            seconds += clock() - start
        texts = contender.translate([pair.source for pair in pairs])
        score = BLEU().corpus_score(texts, [[pair.target for pair in pairs]]).score
        curve.append({"minutes": seconds / 60, "updates": updates, "BLEU": score})
        save(contender, place, curve, conditions)
        print(f"{name}: {seconds / 60:.1f} of {minutes:g} minutes, {updates} updates, BLEU {score:.2f}", flush=True)
    return curve


def prepared(directory: Path) -> TranslationTask:
    """Both learn from the same tokenised corpus; made once, while others wait. Cased, because cased BLEU is the measure."""
    recipe, run_directory = configs.load(RECIPE, list(CHANGES)), RunDirectory(directory)
    directory.parent.mkdir(parents=True, exist_ok=True)
    with (directory.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        new = not run_directory.config.exists()
        if not new and configs.load(run_directory.config) != recipe:
            raise SystemExit(f"{directory} was made for other settings: give another --out")
        task = open_task(recipe, run_directory, Reporter(quiet=True), World(), new)
    assert isinstance(task, TranslationTask)
    return task


def endless(task: TranslationTask, skipped: int) -> Iterator[tuple[int, Any]]:
    """Batch after batch with the number of its epoch, from the one that an interrupted measurement would have taken next."""
    for epoch in itertools.count():
        works = task.epoch(epoch, 0, 1)
        yield from ((epoch, work) for work in works[skipped:])
        skipped = max(0, skipped - len(works))


def save(contender: Any, place: Path, curve: list[dict[str, float]], conditions: dict[str, Any]) -> None:
    from safetensors.torch import save_file

    place.mkdir(parents=True, exist_ok=True)
    names = {parameter: name for name, parameter in contender.model.named_parameters()}
    tensors = {f"model.{name}": tensor for name, tensor in own_tensors(contender.model).items()}
    tensors |= {f"optimizer.{name}": tensor for name, tensor in optimizer_tensors(contender.optimizer, names)}
    save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, place / "aside")
    (place / "aside").replace(place / "state.safetensors")
    write_json(place / "curve.json", {"conditions": conditions, "curve": curve})


def restored(contender: Any, place: Path, conditions: dict[str, Any]) -> tuple[list[dict[str, float]], int]:
    """What was measured so far and after how many updates; the contender stands where it stood then."""
    from safetensors.torch import load_file

    if not (place / "curve.json").exists():
        return [], 0
    kept = json.loads((place / "curve.json").read_text(encoding="utf-8"))
    others = [name for name in conditions if kept["conditions"].get(name) != conditions[name]]
    if others:
        raise SystemExit(
            f"{place} was measured with another {' and '.join(others)}: measure as then, or give another --out"
        )
    tensors = load_file(place / "state.safetensors")
    put_tensors(contender.model, _under("model.", tensors), "the saved state")
    names = {parameter: name for name, parameter in contender.model.named_parameters()}
    put_optimizer_tensors(contender.optimizer, names, _under("optimizer.", tensors))
    curve = kept["curve"]
    updates = int(curve[-1]["updates"])
    if isinstance(contender, Ours):
        contender.training.progress.step = updates
    else:
        contender.updates = updates
    return curve, updates


def _under(prefix: str, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def row(name: str, budgets: Sequence[dict[str, float]]) -> dict[str, Any]:
    """BLEU after each budget, and the minutes that each mark takes."""
    ends = {f"BLEU after {end['minutes']:.1f} minutes": end["BLEU"] for end in budgets}
    return {"contender": name, **ends, **{f"minutes to {mark:.0f}": _in_words(mark, budgets) for mark in MARKS}}


def minutes_to(mark: float, budgets: Sequence[dict[str, float]]) -> float | None:
    """Between the first budget that reaches the mark and the one before; None where none or already the smallest does."""
    for less, more in itertools.pairwise(sorted(budgets, key=lambda end: end["minutes"])):
        if less["BLEU"] >= mark:
            return None if less["BLEU"] > mark else float(less["minutes"])
        if mark <= more["BLEU"]:
            share = (mark - less["BLEU"]) / (more["BLEU"] - less["BLEU"])
            return float(less["minutes"] * (more["minutes"] / less["minutes"]) ** share)
    return None


def _in_words(mark: float, budgets: Sequence[dict[str, float]]) -> float | str:
    """Where a mark lies outside of the budgets, which side of them."""
    minutes = [end["minutes"] for end in budgets]
    outside = f"over {max(minutes):.0f}" if max(end["BLEU"] for end in budgets) < mark else f"under {min(minutes):.0f}"
    return minutes_to(mark, budgets) or outside


def times_sooner(
    mark: float, ends: Mapping[str, Sequence[dict[str, float]]], contender: str = report.OURS
) -> float | None:
    mine, theirs = (minutes_to(mark, ends[name]) for name in (contender, HUGGING_FACE))
    return theirs / mine if mine and theirs else None


if __name__ == "__main__":
    main()
