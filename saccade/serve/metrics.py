"""What the server did, in the text form that Prometheus reads."""

from collections import Counter
from collections.abc import Callable
from threading import Lock

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SIZES = (1, 2, 4, 8, 16, 32)


class Histogram:
    def __init__(self, name: str, help_text: str, bounds: tuple[float, ...]):
        self.name, self.help_text, self.bounds = name, help_text, bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0
        self._lock = Lock()

    def observe(self, value: float) -> None:
        place = next((index for index, bound in enumerate(self.bounds) if value <= bound), len(self.bounds))
        with self._lock:
            self._counts[place] += 1
            self._total += value

    def lines(self) -> list[str]:
        with self._lock:
            counts, total = list(self._counts), self._total
        lines, below = [f"# HELP {self.name} {self.help_text}", f"# TYPE {self.name} histogram"], 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), counts, strict=True):
            below += count
            lines.append(f'{self.name}_bucket{{le="{bound}"}} {below}')
        return [*lines, f"{self.name}_sum {total:.6f}", f"{self.name}_count {below}"]


class Metrics:
    def __init__(self) -> None:
        self._requests: Counter[tuple[str, int]] = Counter()
        self._lock = Lock()
        self.seconds = Histogram("saccade_request_seconds", "From the first byte of a request to its answer.", _SECONDS)
        self.batches = Histogram("saccade_batch_size", "Requests answered together by the model.", _SIZES)

    def count(self, path: str, status: int, seconds: float) -> None:
        with self._lock:
            self._requests[path, status] += 1
        self.seconds.observe(seconds)

    def text(self, waiting: Callable[[], int]) -> str:
        with self._lock:
            requests = sorted(self._requests.items())
        lines = ["# HELP saccade_requests_total Requests by path and status.", "# TYPE saccade_requests_total counter"]
        lines += [
            f'saccade_requests_total{{path="{path}",status="{status}"}} {count}' for (path, status), count in requests
        ]
        lines += [
            "# HELP saccade_waiting Requests that wait for the model.",
            "# TYPE saccade_waiting gauge",
            f"saccade_waiting {waiting()}",
        ]
        return "\n".join([*lines, *self.seconds.lines(), *self.batches.lines()]) + "\n"
