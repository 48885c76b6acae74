import threading
import time

import pytest

from saccade.errors import UserError
from saccade.serve.worker import Busy, Worker


@pytest.fixture
def make():
    workers = []

    def made(queue=16, batch=8):
        workers.append(Worker(queue, batch))
        return workers[-1]

    yield made
    for worker in workers:
        worker.close()


class Slow:
    """Doubles numbers once it may, and notes what was asked together."""

    def __init__(self):
        self.started, self.may = threading.Event(), threading.Event()
        self.batches = []

    def __call__(self, items):
        self.batches.append(list(items))
        self.started.set()
        assert self.may.wait(10)
        if "wrong" in items:
            raise UserError("this is wrong")
        return [item * 2 for item in items]


def test_what_waits_together_is_answered_together(make):
    worker, work = make(batch=3), Slow()
    first = worker.submit(work, 0, 10, "a")
    assert work.started.wait(10)
    later = [
        worker.submit(work, number, 10, kind) for number, kind in ((1, "a"), (2, "b"), (3, "a"), (4, "a"), (5, "a"))
    ]
    alone = [worker.submit(work, number, 10, None) for number in (6, 7)]
    work.may.set()
    assert [future.result(10) for future in (first, *later, *alone)] == [0, 2, 4, 6, 8, 10, 12, 14]
    assert work.batches == [[0], [1, 3, 4], [2], [5], [6], [7]]


def test_one_wrong_question_does_not_harm_the_others_in_its_batch(make):
    worker, work = make(), Slow()
    worker.submit(work, 0, 10, "a")
    assert work.started.wait(10)
    good, bad, also_good = [worker.submit(work, item, 10, "a") for item in (1, "wrong", 2)]
    work.may.set()
    assert (good.result(10), also_good.result(10)) == (2, 4)
    with pytest.raises(UserError, match="this is wrong"):
        bad.result(10)


def test_a_full_queue_refuses_and_recovers(make):
    worker, work = make(queue=1), Slow()
    worker.submit(work, 0, 10)
    assert work.started.wait(10)
    waiting = worker.submit(work, 1, 10)
    with pytest.raises(Busy, match="waiting already"):
        worker.submit(work, 2, 10)
    work.may.set()
    assert waiting.result(10) == 2
    assert worker.submit(work, 3, 10).result(10) == 6


def test_who_waited_too_long_or_left_is_not_worked_for(make):
    worker, work = make(), Slow()
    worker.submit(work, 0, 10)
    assert work.started.wait(10)
    late, left = worker.submit(work, 1, 0.0), worker.submit(work, 2, 10)
    left.cancel()
    time.sleep(0.01)
    work.may.set()
    with pytest.raises(Busy, match="too long"):
        late.result(10)
    worker.close()
    assert work.batches == [[0]]


def test_closing_finishes_what_was_accepted(make):
    worker, work = make(), Slow()
    futures = [worker.submit(work, number, 10) for number in range(3)]
    work.may.set()
    worker.close()
    assert [future.result(0) for future in futures] == [0, 2, 4]
    with pytest.raises(Busy, match="shutting down"):
        worker.submit(work, 1, 10)


def test_a_failure_reaches_those_who_asked_and_the_next_is_served(make):
    worker = make()

    def broken(items):
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        worker.submit(broken, 1, 10).result(10)
    assert worker.submit(lambda items: items, 5, 10).result(10) == 5
