"""Workers: processes that decode what strangers send and run the models. One that goes astray is killed, and the others go on.

Each thread of a pool owns one worker and hands it a batch at a time. A worker has nobody to answer to when every client of its batch has
gone or has waited for as long as a request may: it is killed then, whatever it is doing. One that takes too much memory is stopped by the
system (keeper.py sets the limit). The next batch gets a new worker, which takes milliseconds: workers are copies of a process that holds
the models already, and share its memory.
"""

import json
import logging
import os
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import InvalidStateError
from contextlib import suppress
from multiprocessing.connection import Connection
from threading import Thread

from saccade.errors import UserError
from saccade.serve.keeper import Keeper
from saccade.serve.waiting import Busy, Job, Reply, Waiting

_LOOK = 0.05  # seconds between looks at who is still there; an answer is taken at once
_PAUSES = (0.0, 0.1, 1.0)  # seconds before each try to get a worker: the keeper itself may have died, or be dying
_log = logging.getLogger("saccade.serve")


class Died(Exception):
    """A worker ended before it had answered."""


class Pool:
    def __init__(
        self, keeper: Keeper, waiting: Waiting, workers: int, report: Callable[[int], None] = lambda size: None
    ):
        self._keeper = keeper
        self._waiting = waiting
        self._report = report
        self._threads = [Thread(target=self._run, name="saccade-pool", daemon=True) for _ in range(workers)]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Answers what was accepted, accepts nothing more, and returns when all is done."""
        self._waiting.close()
        for thread in self._threads:
            thread.join()
        self._keeper.close()

    def _run(self) -> None:
        last, worker = 1, self._new()
        while (jobs := self._waiting.next_batch(last)) is not None:
            last = len(jobs)
            if jobs:
                self._report(len(jobs))
                worker = self._answered(worker, jobs)
                self._waiting.done(jobs)
        if worker is not None:
            worker.close()

    def _new(self) -> "Worker | None":
        for seconds in _PAUSES:
            time.sleep(seconds)
            with suppress(Died, Busy):
                return Worker(self._keeper.connection())
        return None

    def _answered(self, worker: "Worker | None", jobs: Sequence[Job]) -> "Worker | None":
        """The worker if it can be asked again."""
        is_new = worker is None
        worker = worker or self._new()
        if worker is None:
            sentence = "the models cannot be asked at the moment, and the server's log says why: try later"
            _settle_all(jobs, Busy(sentence))
            return None
        try:
            if worker.answer(jobs):
                return worker
        except Died:
            _log.warning("a worker died of a question to /api/%s", jobs[0].endpoint)
            worker.kill()
            if (is_new and len(jobs) == 1) or jobs[0].tell is not None:
                _settle_all(jobs, UserError(_FATAL))
                return None
            # One of them is deadly, and the others must not suffer for it; or it died of something else.
            for job in jobs:
                if not job.answer.done():
                    survivor = self._answered(None, [job])
                    if survivor is not None:
                        survivor.close()
            return None
        except Exception as error:
            _settle_all(jobs, error)
        worker.kill()
        return None


_FATAL = (
    "this question ended the process that worked on it, as one does that takes too much memory: ask for less at a time"
)


class Worker:
    """The near end of a worker."""

    def __init__(self, connection: Connection):
        self._connection = connection
        self._process = int(self._received(60)[1])

    def answer(self, jobs: Sequence[Job]) -> bool:
        """Every job gets its answer, or nobody waits for the rest. Returns whether the worker can be asked again."""
        asked = {"run": jobs[0].run, "endpoint": jobs[0].endpoint, "bodies": [job.body for job in jobs]}
        try:
            self._connection.send_bytes(json.dumps(asked).encode())
        except OSError:
            raise Died from None
        headers = [self._answer_to(job, jobs) for job in jobs]
        return headers[-1] is not None and bool(headers[-1]["lives"])

    def _answer_to(self, job: Job, jobs: Sequence[Job]) -> "dict[str, object] | None":
        while not all(one.left for one in jobs):
            if self._has_spoken(_LOOK):
                header, content = self._received(None)
                if header["is"] != "told":
                    _settle(job, header, content)
                    return header
                assert job.tell is not None
                job.tell(content)
        return None

    def _has_spoken(self, seconds: float) -> bool:
        try:
            return self._connection.poll(seconds)
        except OSError:
            raise Died from None

    def _received(self, seconds: float | None) -> "tuple[dict[str, object], bytes]":
        try:
            if seconds is not None and not self._connection.poll(seconds):
                raise Busy("the models are not ready yet: ask again in a moment")
            header, _, content = self._connection.recv_bytes().partition(b"\n")
            return json.loads(header), content
        except (EOFError, OSError):
            raise Died from None

    def close(self) -> None:
        """It ends by itself."""
        self._connection.close()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._process, signal.SIGKILL)
        self._connection.close()


def _settle(job: Job, header: "dict[str, object]", content: bytes) -> None:
    if header["is"] == "answer":
        with suppress(InvalidStateError):  # its client has gone
            job.answer.set_result(Reply(content, str(header["media_type"])))
    elif header["is"] == "wrong":
        _settle_all([job], UserError(content.decode()))
    else:
        _settle_all([job], RuntimeError(f"in a worker:\n{content.decode()}"))


def _settle_all(jobs: Sequence[Job], error: Exception) -> None:
    for job in jobs:
        with suppress(InvalidStateError):
            job.answer.set_exception(error)
