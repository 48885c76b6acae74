"""Time to quality: minutes until Multi30k English-German reaches 30, 34 and 37 BLEU, ours beside Hugging Face's Marian in a plain loop.

    SACCADE_DATA=... python -m benchmarks.quality --minutes 40        both, one after the other; goes on where it stopped

Tiny Transformers (4 + 4 layers, width 128), the same joint vocabulary, batches, dropout, label smoothing, rate, warm-up and cosine over the
given minutes. Every `--every` minutes of training the weights translate test_2016_flickr (beam 5, cased sacreBLEU); that time is not
counted. Ours is saccade's own loop. Each contender's weights, optimiser and curve are kept in `--out`, so that an interrupted measurement
goes on. Writes benchmarks/results/quality.json.
"""

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from sacrebleu.metrics.bleu import BLEU

from benchmarks import report
from benchmarks.measure import write_json
from benchmarks.translators import PlainTraining, marian, smoothed
from saccade import config as configs
from saccade.data.batching import PairBatch, collate
from saccade.data.shards import TokenPairs
from saccade.data.tokenizer import PAD
from saccade.tasks.translation import TranslationTask
from saccade.training.checkpoint import RunDirectory, optimizer_tensors, own_tensors, put_optimizer_tensors, put_tensors
from saccade.training.loop import Training
from saccade.training.reporter import Reporter
from saccade.training.start import open_task
from saccade.training.world import World

MARKS = (30.0, 34.0, 37.0)
GOAL = 2.0  # times sooner at 34
RECIPE = "multi30k-en-de-transformer"
STEPS = 1_000_000  # the minutes end the training, not the updates


class Ours:
    """saccade's loop, one update at a time."""

    def __init__(self, task: TranslationTask, minutes: float):
        self.task = task
        train = task.recipe.train.model_copy(update={"steps": STEPS, "minutes": minutes, "precision": "fp32"})
        self.training = Training(task, train, RunDirectory(Path()), Reporter(quiet=True), World())
        self.model, self.optimizer = task.model, self.training.optimizers[0]

    def update(self, work: Any, share: float) -> None:
        minutes = self.training.config.minutes
        assert minutes is not None
        self.training.progress.seconds = 60 * minutes * share
        self.training._update([work])

    def translate(self, sentences: Sequence[str]) -> list[str]:
        return [each.text for each in self.task.predict(sentences, beam=5)]


class Theirs:
    """MarianMTModel in the loop that everybody writes, over the same batches."""

    def __init__(self, task: TranslationTask, minutes: float):
        torch.manual_seed(task.recipe.train.seed)
        self.task, self.recipe = task, task.recipe
        self.model: Any = marian(
            task.recipe.model.sizes, len(task.vocabularies.target), task.recipe.model.dropout, longest=512
        )
        self.loop = PlainTraining(self.model, self._loss)
        self.optimizer = self.loop.optimizer
        self.updates = 0

    def update(self, work: Any, share: float) -> None:
        batch = self.task.batch(work)
        assert batch is not None
        self.updates += 1
        train = self.recipe.train
        warm = min(1.0, self.updates / max(1, train.warmup))
        for group in self.optimizer.param_groups:
            group["lr"] = train.rate * warm * (1 + math.cos(math.pi * share)) / 2
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


CONTENDERS: dict[str, Callable[[TranslationTask, float], Any]] = {report.OURS: Ours, "Hugging Face": Theirs}


def main() -> None:
    parser = report.parser(__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=40.0, help="of training, for each contender")
    parser.add_argument("--every", type=float, help="minutes between judgements (a twentieth of --minutes)")
    parser.add_argument("--sentences", type=int, default=1000, help="of test_2016 that are translated")
    parser.add_argument("--contenders", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS))
    parser.add_argument("--out", type=Path, default=Path("runs/quality"))
    options = report.settle(parser.parse_args())
    options.every = options.every or options.minutes / 20
    curves = {name: run(name, options) for name in options.contenders}
    rows = [row(name, curve) for name, curve in curves.items()]
    sooner = [_ratio(rows, mark) for mark in MARKS]
    named = {f"times sooner at {mark:.0f}": value for mark, value in zip(MARKS, sooner, strict=True)}
    report.keep("quality", options, minutes=options.minutes, goal=GOAL, curves=curves, contenders=rows, **named)
    report.show(rows)


def run(name: str, options: argparse.Namespace) -> list[dict[str, float]]:
    """The curve of one contender: minutes of training, updates, BLEU. What was measured before is kept."""
    task = prepared(options.out / "data")
    contender = CONTENDERS[name](task, options.minutes)
    place = options.out / name.replace(" ", "-").lower()
    curve, updates = restored(contender, place)
    seconds = 60 * curve[-1]["minutes"] if curve else 0.0
    works = endless(task, updates)
    pairs = task.corpus.held_out("test")[: options.sentences]
    while seconds < 60 * options.minutes:
        until = min(seconds + 60 * options.every, 60 * options.minutes)
        while seconds < until:
            start = time.monotonic()
            contender.update(next(works), seconds / (60 * options.minutes))
            updates += 1
            seconds += time.monotonic() - start
        texts = contender.translate([pair.source for pair in pairs])
        score = BLEU().corpus_score(texts, [[pair.target for pair in pairs]]).score
        curve.append({"minutes": seconds / 60, "updates": updates, "BLEU": score})
        save(contender, place, curve)
        print(f"{name}: {seconds / 60:.1f} minutes, {updates} updates, BLEU {score:.2f}", flush=True)
    return curve


def prepared(directory: Path) -> TranslationTask:
    """Both learn from the same tokenised corpus; made once. Cased, because cased BLEU is the measure."""
    changes = ["data.lowercase=false", "train.precision=fp32"]
    run_directory = RunDirectory(directory)
    new = not run_directory.config.exists()
    recipe = configs.load(RECIPE, changes) if new else configs.load(run_directory.config)
    task = open_task(recipe, run_directory, Reporter(quiet=True), World(), new)
    assert isinstance(task, TranslationTask)
    return task


def endless(task: TranslationTask, skipped: int) -> Iterator[Any]:
    """Batch after batch, epoch after epoch, from the one that an interrupted measurement would have taken next."""
    number = 0
    while True:
        works = task.epoch(number, 0, 1)
        yield from works[skipped:]
        skipped = max(0, skipped - len(works))
        number += 1


def save(contender: Any, place: Path, curve: list[dict[str, float]]) -> None:
    from safetensors.torch import save_file

    place.mkdir(parents=True, exist_ok=True)
    names = {parameter: name for name, parameter in contender.model.named_parameters()}
    tensors = {f"model.{name}": tensor for name, tensor in own_tensors(contender.model).items()}
    tensors |= {f"optimizer.{name}": tensor for name, tensor in optimizer_tensors(contender.optimizer, names)}
    save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, place / "aside")
    (place / "aside").replace(place / "state.safetensors")
    write_json(place / "curve.json", {"curve": curve})


def restored(contender: Any, place: Path) -> tuple[list[dict[str, float]], int]:
    """What was measured so far and after how many updates; the contender stands where it stood then."""
    from safetensors.torch import load_file

    if not (place / "curve.json").exists():
        return [], 0
    tensors = load_file(place / "state.safetensors")
    put_tensors(contender.model, _under("model.", tensors), "the saved state")
    names = {parameter: name for name, parameter in contender.model.named_parameters()}
    put_optimizer_tensors(contender.optimizer, names, _under("optimizer.", tensors))
    curve = json.loads((place / "curve.json").read_text(encoding="utf-8"))["curve"]
    updates = int(curve[-1]["updates"])
    if isinstance(contender, Ours):
        contender.training.progress.step = updates
    else:
        contender.updates = updates
    return curve, updates


def _under(prefix: str, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def row(name: str, curve: list[dict[str, float]]) -> dict[str, Any]:
    """When each mark was first reached, and the best of the curve."""
    reached = {
        f"minutes to {mark:.0f}": next((point["minutes"] for point in curve if point["BLEU"] >= mark), None)
        for mark in MARKS
    }
    return {"contender": name, **reached, "best BLEU": max((point["BLEU"] for point in curve), default=None)}


def _ratio(rows: list[dict[str, Any]], mark: float) -> float | None:
    minutes = {each["contender"]: each[f"minutes to {mark:.0f}"] for each in rows}
    mine, theirs = minutes.get(report.OURS), minutes.get("Hugging Face")
    return theirs / mine if mine and theirs else None


if __name__ == "__main__":
    main()
