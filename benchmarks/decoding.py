"""Translating with a beam of 5 beside Hugging Face's `generate` with the same weights: sentences and tokens per second, and BLEU.

    python -m benchmarks.decoding runs/en-de [--quick]

The run is a trained Transformer translation run with a shared vocabulary. The same held-out sentences are translated, sorted by length,
32 at a time and one at a time, by ours with torch, ours exported to CTranslate2 in fp32 and int8, and by a Hugging Face model whose logits
are proved equal first. From text to text: tokenising is part of it. BLEU is over the sentences that were timed. Writes
benchmarks/results/decoding.json.
"""

import argparse
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from sacrebleu.metrics.bleu import BLEU

from benchmarks import report
from benchmarks.measure import clock_for, rounds
from benchmarks.twins import twin
from saccade.data.text.batching import collate
from saccade.data.text.shards import TokenPairs
from saccade.data.text.tokenizer import PAD
from saccade.runs.run import Run
from saccade.tasks.translation.export.engine import CTranslate2Engine

BEAM = 5
HUGGING_FACE = "Hugging Face"
FP32, INT8 = "saccade, CTranslate2 fp32", "saccade, CTranslate2 int8"
GOALS = {32: {report.OURS: 1.7, INT8: 4.0}, 1: {report.OURS: 2.0, INT8: 8.0}}


class Generate:
    """Hugging Face's `generate`, fed with sorted batches as its users feed it."""

    def __init__(self, run: Run, sentences: list[str]):
        self.run = run
        self.model = twin(run, sentences)

    @torch.no_grad()
    def __call__(self, sentences: Sequence[str], batch: int) -> list[str]:
        tokens = self.run.task.encode(sentences)
        order = sorted(range(len(tokens)), key=lambda row: len(tokens[row]))
        texts: dict[int, str] = {}
        for start in range(0, len(order), batch):
            rows = order[start : start + batch]
            source = collate(TokenPairs.from_lists([(tokens[row], ()) for row in rows]), range(len(rows))).source
            written = self.model.generate(
                input_ids=source,
                attention_mask=(source != PAD).long(),
                num_beams=BEAM,
                do_sample=False,
                max_new_tokens=2 * source.shape[1] + 20,
                length_penalty=1.0,
            )
            for row, output in zip(rows, written.tolist(), strict=True):
                target = self.run.task.vocabularies.target
                texts[row] = target.decode([token for token in output if token > 2]).strip()
        return [texts[row] for row in range(len(tokens))]


def main() -> None:
    parser = report.parser(__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="a trained translation run")
    parser.add_argument(
        "--sentences", type=int, help="how many (320 for batches, 64 one by one; 64 and 8 with --quick)"
    )
    parser.add_argument("--batches", type=int, nargs="+", default=[32, 1])
    options = report.settle(parser.parse_args())
    run = Run(options.run)
    pairs = run.task.corpus.test or run.task.corpus.valid
    before = report.kept("decoding") or {}
    results = {name: part for name, part in before.items() if name.startswith("batch ")}
    for batch in options.batches:
        usual = (64 if batch > 1 else 8) if options.quick else (320 if batch > 1 else 64)
        chosen = pairs[: options.sentences or usual]
        results[f"batch {batch}"] = compare(run, chosen, batch, options)
        report.keep("decoding", options, run=options.run.name, beam=BEAM, **results)
        print(f"batch {batch}, beam {BEAM}, {len(chosen)} sentences")
        report.show(results[f"batch {batch}"]["contenders"])


def compare(run: Run, pairs: Sequence[Any], batch: int, options: argparse.Namespace) -> dict[str, Any]:
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    programs = translators(run, sources[:8], options.threads)
    texts = {name: program(sources, batch) for name, program in programs.items()}
    work = {name: partial(program, sources, batch) for name, program in programs.items()}
    seconds = rounds(work, options.repeats, clock_for(options.busy))
    rows = report.contenders(seconds, len(sources), "sentences")
    for row in rows:
        name = row["contender"]
        tokens = sum(map(len, run.task.vocabularies.target.encode_batch(texts[name])))
        row["tokens/s"] = tokens / statistics.median(seconds[name])
        row["faster than Hugging Face"] = statistics.median(
            theirs / mine for mine, theirs in zip(seconds[name], seconds[HUGGING_FACE], strict=True)
        )
        row["BLEU"] = BLEU().corpus_score(texts[name], [references]).score
    return {"sentences": len(sources), "goals": GOALS.get(batch, {}), "contenders": rows}


def translators(run: Run, samples: list[str], threads: int) -> dict[str, Callable[[Sequence[str], int], list[str]]]:
    def by(program: Any) -> Callable[[Sequence[str], int], list[str]]:
        return lambda sources, batch: [each.text for each in program.predict(sources, batch_size=batch, beam=BEAM)]

    return {
        report.OURS: by(run),
        FP32: by(CTranslate2Engine(run, quantization=None, threads=threads)),
        INT8: by(CTranslate2Engine(run, quantization="int8", threads=threads)),
        HUGGING_FACE: Generate(run, samples),
    }


if __name__ == "__main__":
    main()
