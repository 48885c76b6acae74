"""Requests that wait for a worker. Those of the same kind that wait at the same time are answered together.

A single client never waits for a batch to fill: while a worker is busy with one, the next one gathers. Only after a batch of several is
there a pause of milliseconds, in which those who were answered ask again; without it they would split into two groups that take turns.

Who has fewer questions with the workers comes first, so that one client with many heavy ones does not make all others wait.
"""

from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Condition

from saccade.tasks.task import Json

_PAUSE = 0.005  # seconds for clients that were just answered together to ask again


class Busy(Exception):
    """The queue is full, or the answer would come too late."""


@dataclass(frozen=True)
class Reply:
    content: bytes
    media_type: str


@dataclass
class Job:
    """One question. Jobs of the same `kind` may be answered together; `kind` None is always alone. What a stream tells goes to `tell`."""

    run: str
    endpoint: str
    body: Json
    kind: Hashable | None = None
    client: str = ""
    tell: Callable[[bytes], None] | None = None
    answer: "Future[Reply]" = field(default_factory=Future)
    left: bool = False  # nobody waits for the answer any more: the client has gone, or its time is over


class Waiting:
    """The queue between the requests and the threads that hand them to workers."""

    def __init__(self, most: int, batch: int):
        self._jobs: deque[Job] = deque()
        self._running: Counter[str] = Counter()  # questions with workers, by client
        self._changed = Condition()
        self._closing = False
        self._most = most
        self._batch = batch

    def put(self, job: Job) -> None:
        """Raises Busy where too many wait already."""
        with self._changed:
            if self._closing:
                raise Busy("the server is shutting down: ask again later")
            if len(self._jobs) >= self._most:
                self._jobs = deque(job for job in self._jobs if not job.left)
            if len(self._jobs) >= self._most:
                raise Busy(f"{self._most} requests are waiting already: ask again in a moment")
            self._jobs.append(job)
            self._changed.notify()

    def __len__(self) -> int:
        return len(self._jobs)

    def close(self) -> None:
        """Nothing more is accepted; what was accepted is still given out."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def next_batch(self, after: int) -> Sequence[Job] | None:
        """The job whose turn it is and all that can be answered with it, after a batch of so many; None at the end."""
        with self._changed:
            while not self._jobs:
                if self._closing:
                    return None
                self._changed.wait()
            if after > 1 and not self._closing:
                self._changed.wait_for(lambda: len(self._jobs) >= after or self._closing, _PAUSE)
            jobs = self._gathered()
            self._running.update(job.client for job in jobs)
            return jobs

    def done(self, jobs: Sequence[Job]) -> None:
        with self._changed:
            self._running -= Counter(job.client for job in jobs)

    def _gathered(self) -> Sequence[Job]:
        wanted = [job for job in self._jobs if not job.left]
        if not wanted:
            self._jobs.clear()
            return []
        first = min(wanted, key=lambda job: self._running[job.client])  # the longest waiting among equals
        jobs, others = [first], deque[Job]()
        for job in wanted:
            if job is not first:
                fits = job.kind is not None and job.kind == first.kind and len(jobs) < self._batch
                (jobs if fits else others).append(job)
        self._jobs = others
        return jobs
