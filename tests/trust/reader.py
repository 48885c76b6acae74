"""A process that opens runs as a person would, with 1 GB of memory beyond what it starts with: one request a line, one answer a line.

-> {"run": PATH, "do": "predict" | "resume"}
<- {"told": SENTENCE} | {"answer": TEXT} | {"broken": TRACEBACK}
"""

import contextlib
import io
import json
import resource
import sys
import traceback

import torch

import saccade
from saccade.errors import UserError
from saccade.runs.train import train
from saccade.tasks import task as _loaded  # noqa: F401 (imported before memory is limited)

MEMORY = 1 << 30


def limit_memory() -> None:
    with open("/proc/self/statm", encoding="ascii") as file:
        pages = int(file.read().split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def predicted(path: str) -> str:
    run = saccade.load(path)
    example = run.example("test:0")
    (answer,) = run.task.answers([example], run.options("predict", {}))
    run.look("test:0")
    return json.dumps(answer.to_dict())


def resumed(path: str) -> str:
    train(path, ["train.steps=3"], resume=True)
    return "resumed"


def main() -> None:
    torch.set_num_threads(1)
    answers = sys.stdout
    warm = json.loads(sys.stdin.readline())
    for run in warm:  # imports and caches, before memory is limited
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            predicted(run)
    limit_memory()
    print("{}", file=answers, flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                result = {"answer": predicted(job["run"]) if job["do"] == "predict" else resumed(job["run"])}
        except UserError as error:
            result = {"told": str(error)}
        except BaseException:
            result = {"broken": traceback.format_exc()[-3000:]}
        print(json.dumps(result), file=answers, flush=True)


if __name__ == "__main__":
    main()
