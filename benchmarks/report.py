"""What the benchmarks against peers share: their options, the row of each contender, a result file and a table."""

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from benchmarks.measure import RESULTS, machine, table, times_faster, write_json

OURS = "saccade"


def parser(description: str, rounds: bool = True) -> argparse.ArgumentParser:
    """With the options that all of them have, or all that measure in rounds."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--threads", type=int, default=1, help="threads of every contender (1 unless given)")
    options.add_argument(
        "--busy", action="store_true", help="count processor time, not wall time: for one thread on a busy machine"
    )
    if rounds:
        options.add_argument("--quick", action="store_true", help="fewer rounds and shorter work: a first look")
        options.add_argument("--repeats", type=int, help="rounds (7, or 3 with --quick)")
        options.add_argument("--without-memory", action="store_true", help="measure no memory: it takes a process each")
    return options


def settle(options: argparse.Namespace) -> argparse.Namespace:
    """The options with what follows from them; torch gets its threads."""
    if options.busy and options.threads > 1:
        raise SystemExit("--busy adds up the time of all threads, waiting ones too: give --threads 1, or leave it out")
    if "repeats" in options:
        options.repeats = options.repeats or (3 if options.quick else 7)
    torch.set_num_threads(options.threads)
    return options


def contenders(seconds: Mapping[str, Sequence[float]], amount: float, unit: str) -> list[dict[str, Any]]:
    """A row each: `amount` of `unit` is what one round does; a ratio is the median of the ratios within each round."""
    return [
        {
            "contender": name,
            f"{unit}/s": amount / statistics.median(times),
            f"{OURS} is faster": times_faster(seconds, OURS, than=name),
        }
        for name, times in seconds.items()
    ]


def against_best(rows: Sequence[Mapping[str, Any]], ours: Sequence[str] = (OURS,)) -> float:
    """How many times faster ours is than the best of the others."""
    return min(row[f"{OURS} is faster"] for row in rows if row["contender"] not in ours)


def keep(name: str, options: argparse.Namespace, **content: Any) -> None:
    """Writes the result file `name`, with what it was measured on."""
    measured = {
        "machine": machine(),
        "threads": options.threads,
        "clock": "processor" if options.busy else "wall",
        **{name: value for name, value in vars(options).items() if name in ("repeats", "quick")},
    }
    write_json(RESULTS / f"{name}.json", {**measured, **content})


def kept(name: str) -> dict[str, Any] | None:
    """A result file, if it was ever written."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def show(rows: Sequence[Mapping[str, Any]]) -> None:
    header = list(dict.fromkeys(name for row in rows for name in row))
    print(table(header, [[_cell(row.get(name)) for name in header] for row in rows]), end="\n\n", flush=True)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 100 else f"{value:.2f}"
