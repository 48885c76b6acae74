"""From the start of `saccade predict RUN "sentence"` to its translation: the median of 5 runs of the command, by torch and by CTranslate2.

    python -m benchmarks.startup runs/en-de [--quick]

CTranslate2's export is made before the clock starts, as it is made once in the life of a run. Writes benchmarks/results/startup.json.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import report

SENTENCE = "a man is riding a bicycle down the street ."
ENGINES = {"saccade predict": (), "saccade predict --engine ctranslate2": ("--engine", "ctranslate2")}
GOAL = 3.0


def main() -> None:
    parser = report.parser(__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="a trained translation run")
    options = report.settle(parser.parse_args())
    options.repeats = 1 if options.quick else max(5, options.repeats)
    rows = [{"command": name, **measure(engine, options)} for name, engine in ENGINES.items()]
    report.keep("startup", options, goal=GOAL, commands=rows)
    report.show(rows)


def measure(engine: tuple[str, ...], options: argparse.Namespace) -> dict[str, float | str]:
    """Seconds of the whole command, wall and processor time; the first run is not counted."""
    command = [sys.executable, "-m", "saccade", "predict", str(options.run), SENTENCE, *engine]
    environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads)}
    walls, processors = [], []
    for _ in range(options.repeats + 1):
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        finished = subprocess.run(command, env=environment, capture_output=True, text=True)
        if finished.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{finished.stderr}")
        walls.append(time.perf_counter() - start)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        processors.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return {
        "seconds": statistics.median(walls[1:]),
        "processor seconds": statistics.median(processors[1:]),
        "translation": finished.stdout.strip(),
    }


if __name__ == "__main__":
    main()
