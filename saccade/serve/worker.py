"""In a worker: questions are checked, pictures decoded and models run, one batch at a time.

What a worker is asked and what it says are bytes: JSON, never objects, so that one that was taken over by a picture can say nothing but
wrong answers. A message to the server is a line of JSON and then the content.
"""

import json
import math
import os
import resource
import signal
import traceback
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from saccade.errors import UserError
from saccade.serve.limits import Limits
from saccade.serve.requests import Question
from saccade.serve.served import Served, as_json
from saccade.tasks.task import Json

_GROWTH = 64 << 20  # bytes that a worker may keep between batches: beyond, it makes room for a fresh one
_PICTURES = {"png": "image/png", "svg": "image/svg+xml", "pdf": "application/pdf"}
Said = tuple[Json, bytes]
"""A header and its content."""


def work(connection: Connection, runs: Mapping[str, Served], limits: Limits, limits_memory: bool) -> None:
    """Answers until nobody asks any more."""
    if limits_memory:
        _limit_memory(limits.memory)
    start, worker = _own_memory(), Worker(limits, lambda content: _send(connection, {"is": "told"}, content))
    _send(connection, {"is": "ready"}, str(os.getpid()).encode())
    lives = True
    while lives:
        try:
            asked = json.loads(connection.recv_bytes())
        except (EOFError, OSError):
            return
        signal.alarm(math.ceil(limits.seconds) + 5)  # should the server die before it can end this process
        answers = worker.answers(runs[asked["run"]], asked["endpoint"], asked["bodies"])
        signal.alarm(0)
        lives = not worker.is_exhausted and _own_memory() - start < _GROWTH
        for header, content in answers:
            _send(connection, {**header, "lives": lives}, content)


class Worker:
    def __init__(self, limits: Limits, tell: Callable[[bytes], None]):
        self.limits = limits
        self.is_exhausted = False  # had no memory left once: what failed for want of it may be in any state
        self._tell = tell

    def answers(self, run: Served, endpoint: str, bodies: Sequence[Json]) -> list[Said]:
        if endpoint == "predict":
            return self._predicted(run, bodies)
        return [self._attempt(lambda body=body: self._answer(run, endpoint, body)) for body in bodies]  # type: ignore[misc]

    def _answer(self, run: Served, endpoint: str, body: Json) -> Said:
        question = run.read(endpoint, body)
        if endpoint == "figure":
            return {"is": "answer", "media_type": _PICTURES[question.fields.format]}, run.figure(question)
        if endpoint == "look":
            return _json(run.look(question))
        if endpoint == "stream":
            run.stream(question, lambda message: self._tell(as_json(message)))
            return {"is": "answer", "media_type": "application/x-ndjson"}, b""
        return _json(run.answer(endpoint, question))

    def _predicted(self, run: Served, bodies: Sequence[Json]) -> list[Said]:
        """Questions with the same options are answered together, unless their answers depend on each other."""
        questions: list[Question] = []

        def read(body: Json) -> Said:
            questions.append(run.read("predict", body))
            return {}, b""

        said = [self._attempt(lambda body=body: read(body)) for body in bodies]  # type: ignore[misc]
        answers = iter(self._together(run, questions))
        return [one if one[0] else next(answers) for one in said]

    def _together(self, run: Served, questions: Sequence[Question]) -> list[Said]:
        if len(questions) > 1 and all(one.options is not None and one.options.may_share_a_batch for one in questions):
            try:
                return [_json(answer) for answer in run.predict(questions)]
            except Exception:  # one of them is wrong: the others must not suffer for it
                pass
        return [self._attempt(lambda one=one: _json(run.predict([one])[0])) for one in questions]  # type: ignore[misc]

    def _attempt(self, answer: Callable[[], Said]) -> Said:
        try:
            return answer()
        except UserError as error:
            return {"is": "wrong"}, str(error).encode("utf-8", "replace")
        except Exception as error:
            if isinstance(error, MemoryError) or "allocate memory" in str(error):
                self.is_exhausted = True
                allowed = f"{self.limits.memory >> 20:,} MB of memory"
                return {"is": "wrong"}, f"this question needs more than the {allowed} it may: ask for less".encode()
            return {"is": "failed"}, traceback.format_exc().encode("utf-8", "replace")


def _json(content: Json) -> Said:
    return {"is": "answer", "media_type": "application/json"}, as_json(content)


def _send(connection: Connection, header: Json, content: bytes) -> None:
    connection.send_bytes(json.dumps(header).encode() + b"\n" + content)


def _limit_memory(more: int) -> None:
    """What is private to this process may grow by so much. Where the system does not say how much it is, time alone is limited."""
    sizes = _pages()
    if sizes is not None:
        most = sizes[5] * resource.getpagesize() + more
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def _own_memory() -> int:
    """Bytes of memory that are no file's."""
    sizes = _pages()
    return 0 if sizes is None else (sizes[1] - sizes[2]) * resource.getpagesize()


def _pages() -> list[int] | None:
    try:
        return [int(number) for number in Path("/proc/self/statm").read_text().split()]
    except OSError:
        return None
