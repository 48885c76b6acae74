"""`saccade serve` with one client and with many: translations a second, each client asking again as soon as it is answered.

    python -m benchmarks.serving runs/demo/with-attention [--quick]

Requests that arrive together are batched for the model, so many clients should get more out of the same processor. The two loads
alternate, and the ratio is taken within each round. Writes benchmarks/results/serving.json.
"""

import argparse
import http.client
import json
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import report

CLIENTS, GOAL = 16, 3.0


def main() -> None:
    parser = report.parser(__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="a trained translation run")
    options = report.settle(parser.parse_args())
    seconds, rounds = (3.0, 2) if options.quick else (8.0, max(5, options.repeats))
    with server(options) as port:
        texts = examples(port)
        load(port, texts, 1, 1.0)  # warms up
        measured = [(load(port, texts, 1, seconds), load(port, texts, CLIENTS, seconds)) for _ in range(rounds)]
    ratios = [many / one for one, many in measured]
    one, many = (statistics.median(column) for column in zip(*measured, strict=True))
    rows = [
        {"clients": 1, "translations/s": one, "against one": 1.0},
        {"clients": CLIENTS, "translations/s": many, "against one": statistics.median(ratios)},
    ]
    report.keep("serving", options, goal=GOAL, ratios=ratios, clients=rows)
    report.show(rows)


@contextmanager
def server(options: argparse.Namespace) -> Iterator[int]:
    command = [sys.executable, "-m", "saccade", "serve", str(options.run), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        said = running.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/", said)
        if found is None:
            raise SystemExit(said)
        try:
            yield int(found[1])
        finally:
            running.terminate()


def examples(port: int) -> list[str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/api/runs")
    found: list[str] = json.loads(connection.getresponse().read())["runs"][0]["examples"]
    return found


def load(port: int, texts: list[str], clients: int, seconds: float) -> float:
    """Answers a second."""
    answered, until = [0] * clients, time.monotonic() + seconds

    def ask(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        while time.monotonic() < until:
            question = json.dumps({"text": texts[(number + answered[number]) % len(texts)]})
            connection.request("POST", "/api/predict", question, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            if answer.status != 200:
                raise SystemExit(f"the server answered {answer.status}")
            answered[number] += 1

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(clients)]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(answered) / (time.monotonic() - started)


if __name__ == "__main__":
    main()
