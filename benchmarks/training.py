"""Training a Transformer beside peers of the same size: useful target tokens per second, peak memory, share of the matmul limit.

    python -m benchmarks.training                 tiny, small and base; about half an hour on one core
    python -m benchmarks.training --quick         fewer batches and rounds
    python -m benchmarks.training --sizes tiny

All get the same padded batches of 2048 tokens, sorted by length as ours are (benchmarks/pairs.py), the same dropout, label smoothing,
clipping and fused AdamW (benchmarks/translators.py). Each has a process of its own, because ours tells its allocator to keep freed
memory, as `saccade train` does. Padding counts for nothing, neither as tokens nor as arithmetic. The limit is what the machine's fp32
matmul reaches in the same rounds. Writes benchmarks/results/training.json.
"""

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from benchmarks import report
from benchmarks.measure import peak_memory, rounds_apart
from benchmarks.pairs import VOCABULARY, batches, useful_tokens
from benchmarks.translators import TRANSFORMERS, Trainer, build, installed
from saccade.data.text.batching import PairBatch
from saccade.models.transformer import SIZES, Size

LIMIT = "matmul"
MATMUL = 1024  # rows, columns and depth: large enough for the machine's best, small enough for its cache
GOALS = {"tiny": 1.5, "small": 1.5, "base": 1.3}


def main() -> None:
    parser = report.parser(__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", choices=list(GOALS), default=list(GOALS))
    parser.add_argument("--contenders", nargs="+", choices=list(TRANSFORMERS), default=list(TRANSFORMERS))
    options = report.settle(parser.parse_args())
    results = (report.kept("training") or {}).get("sizes", {})
    for size in options.sizes:
        count = 3 if options.quick else 6  # of these about 5 % is padding, as of an epoch
        results[size] = compare(size, options, count)
        report.keep("training", options, sizes=results)
        goal = results[size]["goal"]
        print(f"{size} ({SIZES[size]}): {results[size]['against the best peer']:.2f} x the best peer, goal {goal}")
        report.show(results[size]["contenders"])


def compare(size: str, options: Any, count: int) -> dict[str, Any]:
    """One row per contender, from `count` batches a round."""
    drawn, names = batches(count), installed(options.contenders)
    variants = {name: (name, size, options.threads, count) for name in (*names, LIMIT)}
    seconds = rounds_apart("benchmarks.training:once", variants, options.repeats, options.busy)
    limit = seconds.pop(LIMIT)
    rows = report.contenders(seconds, useful_tokens(drawn), "tokens")
    for row in rows:
        row["% of the matmul limit"] = 100 * statistics.median(
            arithmetic(SIZES[size], drawn) / taken * matmul / (2 * MATMUL**3 * MULTIPLICATIONS)
            for taken, matmul in zip(seconds[row["contender"]], limit, strict=True)
        )
        if not options.without_memory:
            row["peak MB"] = peak_memory("benchmarks.training:once", row["contender"], size, options.threads) / 1e6
    return {
        "against the best peer": report.against_best(rows),
        "goal": GOALS[size],
        "batches": count,
        "matmul GFLOP/s": 2 * MATMUL**3 * MULTIPLICATIONS / statistics.median(limit) / 1e9,
        "contenders": rows,
    }


def epoch(trainer: Trainer, drawn: list[PairBatch]) -> None:
    for batch in drawn:
        trainer.update(batch)


MULTIPLICATIONS = 8


def multiply() -> None:
    a = torch.ones(MATMUL, MATMUL)
    product = torch.empty_like(a)
    for _ in range(MULTIPLICATIONS):
        torch.mm(a, a, out=product)


def arithmetic(size: Size, drawn: list[PairBatch]) -> float:
    """Floating point operations of the updates by the formulas, padding left out; backward does twice what forward does."""
    width, layers = size.width, size.layers
    feed_forward = 2 * width * size.feed_forward
    total = 0.0
    for batch in drawn:
        source, target = batch.source_lengths.double(), batch.target_lengths.double()
        per_source = (
            layers * (4 * width**2 + feed_forward) + layers * 2 * width**2
        )  # and the decoder's keys and values of it
        per_target = layers * (6 * width**2 + feed_forward) + width * VOCABULARY
        looks = layers * 2 * width * (source**2 + target**2 / 2 + source * target)  # scores and sums; causal: half
        total += float((source * per_source + target * per_target + looks).sum())
    return 3 * 2 * total


def once(name: str, size: str, threads: str, count: str = "3") -> Callable[[], None]:
    """Some updates, to be measured in a process of its own; for memory three: all there is to hold is there after the first."""
    torch.set_num_threads(int(threads))
    return multiply if name == LIMIT else partial(epoch, build(name, size), batches(int(count)))


if __name__ == "__main__":
    main()
