"""How the benchmarks measure: time side by side in one run, peak memory in a process of its own, results as JSON and a table.

Machines are noisy, so a time is only worth something next to another from the same minutes: `interleaved` runs all variants in turn,
again and again, and takes medians. Read the ratios, not the seconds. `rounds_apart` does it with a process for each variant, where one
must not get what another asked of the process.
"""

import gc
import importlib
import itertools
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parent / "results"
_ROOT = Path(__file__).parent.parent
_ANSWER = "seconds:"  # other lines are a library's own words


def interleaved(variants: Mapping[str, Callable[[], object]], repeats: int = 5) -> dict[str, float]:
    """Median seconds of each variant. All run once to warm up, then `repeats` rounds, each round in the other direction."""
    return {name: statistics.median(times) for name, times in rounds(variants, repeats).items()}


def rounds(
    variants: Mapping[str, Callable[[], object]], repeats: int = 5, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """The seconds of each variant in every round, by `clock`, so that ratios can be taken within a round."""
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for run in variants.values():
        run()
    for repeat in range(repeats):
        for name in list(variants)[:: 1 if repeat % 2 == 0 else -1]:
            gc.collect()
            start = clock()
            variants[name]()
            seconds[name].append(clock() - start)
    return seconds


def rounds_apart(
    function: str, variants: Mapping[str, Sequence[object]], repeats: int, busy: bool
) -> dict[str, list[float]]:
    """As `rounds`, each variant in a process of its own that waits while others run: function(*arguments) as for `peak_memory`."""
    with ExitStack() as stack:
        workers = {
            name: stack.enter_context(_Worker(function, arguments, busy)) for name, arguments in variants.items()
        }
        seconds: dict[str, list[float]] = {name: [] for name in variants}
        for repeat in range(repeats):
            for name in list(variants)[:: 1 if repeat % 2 == 0 else -1]:
                seconds[name].append(workers[name].seconds())
    return seconds


class _Worker:
    """A process that has prepared its work, done it once, and does it again whenever it is asked for its seconds."""

    def __init__(self, function: str, arguments: Sequence[object], busy: bool):
        self._function = function
        self._process = subprocess.Popen(
            _command("busy" if busy else "wall", function, arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
        )

    def __enter__(self) -> "_Worker":
        self._answer()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def seconds(self) -> float:
        assert self._process.stdin is not None
        print("again", file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> float:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(_ANSWER):
                return float(line.removeprefix(_ANSWER))
        raise RuntimeError(f"{self._function} failed while it was measured: what it said stands above")


def times_faster(seconds: Mapping[str, Sequence[float]], name: str, than: str) -> float:
    """How many times less time `name` takes: the median over the rounds of the ratio within each."""
    return statistics.median(
        theirs / ours for ours, theirs in zip(seconds[name], seconds[than], strict=True) if ours > 0
    )


def clock_for(busy: bool) -> Callable[[], float]:
    """Wall time; on a machine that is busy with other things, the processor time of this process instead."""
    return time.process_time if busy else time.perf_counter


def peak_memory(function: str, *arguments: object) -> int:
    """Bytes by which memory grows at its peak while the work runs, measured in a fresh process.

    `function` is "module:name". It gets the arguments as text, prepares everything (that is the base line) and returns the work to be
    measured as a callable.
    """
    finished = subprocess.run(_command("memory", function, arguments), capture_output=True, text=True, cwd=_ROOT)
    if finished.returncode:
        raise RuntimeError(f"measuring the memory of {function} failed:\n{finished.stderr}")
    return int(finished.stdout.split()[-1])


def _command(what: str, function: str, arguments: Sequence[object]) -> list[str]:
    return [sys.executable, "-m", "benchmarks.measure", what, function, *map(str, arguments)]


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write next to `path`, then rename: a reader never sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    aside.replace(path)


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table that also reads well as plain text; every column but the first is aligned to the right."""
    cells = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        first, *others = zip(row, widths, strict=True)
        lines.append(" | ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]))
    rule = " | ".join(["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])])
    return "\n".join(f"| {line} |" for line in (lines[0], rule, *lines[1:]))


def _processor() -> str:
    """The processor's name: the kernel's where it tells, otherwise Python's guess."""
    try:
        described = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    names = (line.split(":", 1)[1].strip() for line in described.splitlines() if line.startswith("model name"))
    return next(names, platform.processor())


def _peak() -> int:
    """The most memory this process has held so far, in bytes.

    Linux' own line first: getrusage there counts the process that started this one, until this one has outgrown it.
    """
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) * 1024


def _prepared(function: str, arguments: Sequence[str]) -> Callable[[], object]:
    module, name = function.split(":")
    work: Callable[[], object] = getattr(importlib.import_module(module), name)(*arguments)
    gc.collect()
    return work


def _memory_here(work: Callable[[], object]) -> int:
    base = _peak()
    work()
    return _peak() - base


def _answer_here(work: Callable[[], object], clock: Callable[[], float]) -> None:
    """Once to warm up, then at every line that comes in."""
    for _ in itertools.chain([""], sys.stdin):
        gc.collect()
        start = clock()
        work()
        print(f"{_ANSWER}{clock() - start}", flush=True)


if __name__ == "__main__":
    _what, _work = sys.argv[1], _prepared(sys.argv[2], sys.argv[3:])
    if _what == "memory":
        print(_memory_here(_work))
    else:
        _answer_here(_work, clock_for(_what == "busy"))
