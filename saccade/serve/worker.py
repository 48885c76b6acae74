"""One thread that owns the models. Requests that wait at the same time and ask the same kind of question are answered in one batch.

A single client never waits for a batch to fill: while the model works on one, the next one gathers. Only after a batch of several is there
a pause of milliseconds, in which those who were answered ask again; without it they would split into two groups that take turns. A torch
model on a CPU uses all cores for one batch already, so a second thread would only make both slower.
"""

import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Condition, Thread
from typing import Any

from saccade.errors import UserError

_PAUSE = 0.005  # seconds for clients that were just answered together to ask again


class Busy(Exception):
    """The queue is full, or the answer would come too late."""


@dataclass(frozen=True)
class Job:
    """`work` answers a list of items in order. Jobs of the same `kind` may be answered by one call; `kind` None is always alone."""

    kind: Hashable | None
    item: Any
    work: Callable[[Sequence[Any]], Sequence[Any]]
    deadline: float
    future: "Future[Any]" = field(default_factory=Future)


class Worker:
    def __init__(self, queue: int, batch: int, report: Callable[[int], None] = lambda size: None):
        self._waiting: deque[Job] = deque()
        self._changed = Condition()
        self._closing = False
        self._queue = queue
        self._batch = batch
        self._report = report
        self._thread = Thread(target=self._run, name="saccade-worker", daemon=True)
        self._thread.start()

    def submit(
        self, work: Callable[[Sequence[Any]], Sequence[Any]], item: Any, seconds: float, kind: Hashable | None = None
    ) -> "Future[Any]":
        """The answer to come. Raises Busy where too many wait already."""
        job = Job(kind, item, work, time.monotonic() + seconds)
        with self._changed:
            if self._closing:
                raise Busy("the server is shutting down: ask again later")
            if len(self._waiting) >= self._queue:
                raise Busy(f"{self._queue} requests are waiting already: ask again in a moment")
            self._waiting.append(job)
            self._changed.notify()
        return job.future

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def close(self) -> None:
        """Answers what was accepted, accepts nothing more, and returns when all is done."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        last = 1
        while True:
            with self._changed:
                while not self._waiting:
                    if self._closing:
                        return
                    self._changed.wait()
                if last > 1 and not self._closing:
                    self._gather(last)
                jobs = self._next_batch()
            last = len(jobs)
            jobs = [job for job in jobs if self._still_wanted(job)]
            if jobs:
                self._report(len(jobs))
                _answer(jobs)

    def _gather(self, count: int) -> None:
        self._changed.wait_for(lambda: len(self._waiting) >= count or self._closing, _PAUSE)

    def _next_batch(self) -> list[Job]:
        """The job that waited longest and all that can be answered with it."""
        first = self._waiting.popleft()
        if first.kind is None:
            return [first]
        jobs, others = [first], deque[Job]()
        while self._waiting:
            job = self._waiting.popleft()
            (jobs if job.kind == first.kind and len(jobs) < self._batch else others).append(job)
        self._waiting = others
        return jobs

    @staticmethod
    def _still_wanted(job: Job) -> bool:
        if not job.future.set_running_or_notify_cancel():
            return False
        if time.monotonic() > job.deadline:
            job.future.set_exception(Busy("this request waited too long for its turn: ask again in a moment"))
            return False
        return True


def _answer(jobs: Sequence[Job]) -> None:
    try:
        answers = jobs[0].work([job.item for job in jobs])
    except UserError as error:
        if len(jobs) == 1:
            jobs[0].future.set_exception(error)
            return
        for job in jobs:  # one of them is wrong: the others must not suffer for it
            _answer([job])
    except BaseException as error:
        for job in jobs:
            job.future.set_exception(error)
    else:
        for job, answer in zip(jobs, answers, strict=True):
            job.future.set_result(answer)
