"""Workers are processes: what waits together is answered together, and one that goes astray is replaced while the others go on."""

import json
import os
import shutil
import signal
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

import saccade
from saccade.errors import UserError
from saccade.serve.keeper import Keeper
from saccade.serve.limits import Limits
from saccade.serve.pool import Pool
from saccade.serve.served import Served
from saccade.serve.waiting import Busy, Job, Waiting

from .conftest import below, require_proc

LIMITS = Limits(memory=200 << 20)


class Asked:
    """A pool of one worker unless told otherwise, and the sizes of its batches."""

    def __init__(self, runs, queue=16, batch=8, workers=1):
        self.waiting, self.sizes = Waiting(queue, batch), []
        self.keeper = Keeper(runs, LIMITS, 1)
        self.pool = Pool(self.keeper, self.waiting, workers, self.sizes.append)

    def ask(self, text, kind=None, endpoint="predict", **more):
        job = Job("naughty", endpoint, {"text": text}, kind, **more)
        self.waiting.put(job)
        return job

    def answer(self, text, **more):
        return json.loads(self.ask(text, **more).answer.result(30).content)

    @property
    def keeper_process(self):
        return self.keeper._process.pid

    def pids(self):
        """Of the workers."""
        require_proc()
        return below(self.keeper_process)[1:]

    def keep_busy(self, seconds=0.4):
        """Until this is over the other questions wait together."""
        job = self.ask(f"wait {seconds}")
        while len(self.waiting):
            time.sleep(0.005)
        return job


@pytest.fixture(scope="module")
def one(naughty):
    """Shared, as its tests leave it able to answer."""
    asked = Asked(naughty)
    asked.answer("a")
    yield asked
    asked.pool.close()


@contextmanager
def asking(*arguments, **options):
    asked = Asked(*arguments, **options)
    yield asked
    asked.pool.close()


def test_what_waits_together_is_answered_together(naughty):
    with asking(naughty, batch=3) as asked:
        first = asked.keep_busy()
        later = [asked.ask("a" * number, kind) for number, kind in enumerate("abaaa", 1)]
        alone = [asked.ask("a"), asked.ask("aa")]
        for job in (first, *later, *alone):
            assert json.loads(job.answer.result(30).content)["text"] == job.body["text"]
        assert asked.sizes == [1, 3, 1, 1, 1, 1]


@pytest.mark.parametrize("bad", ["alone", "fail", "", "eat 2000", "die"])
def test_one_wrong_question_does_not_harm_the_others_in_its_batch(one, bad):
    one.keep_busy()
    jobs = [one.ask(text, "a") for text in ("a", bad, "aa")]
    if bad == "":
        jobs[1].body = {"text": 5}
    answers = [json.loads(jobs[place].answer.result(30).content)["text"] for place in (0, 2)]
    assert answers == ["a", "aa"]
    assert (jobs[1].answer.exception(30) is None) == (bad == "alone")


def test_a_full_queue_refuses_and_recovers(naughty):
    with asking(naughty, queue=1) as asked:
        asked.keep_busy()
        waiting = asked.ask("a")
        with pytest.raises(Busy, match="waiting already"):
            asked.ask("a")
        waiting.left = True
        assert asked.answer("aa")["text"] == "aa"  # who has gone takes no place


def test_closing_finishes_what_was_accepted(naughty):
    with asking(naughty) as asked:
        asked.keep_busy()
        jobs = [asked.ask(text) for text in ("a", "aa")]
    assert [json.loads(job.answer.result(0).content)["text"] for job in jobs] == ["a", "aa"]
    with pytest.raises(Busy, match="shutting down"):
        asked.ask("a")


def test_a_failure_reaches_who_asked_and_the_next_is_served(one):
    with pytest.raises(RuntimeError, match="the secret reason"):
        one.ask("fail").answer.result(30)
    assert one.answer("a")["text"] == "a"


def test_who_takes_too_much_memory_is_refused_and_the_next_is_served(one):
    with pytest.raises(UserError, match="more than the 200 MB of memory it may"):
        one.ask("eat 2000").answer.result(30)
    assert one.answer("eat 100")["text"] == "eat 100"


def test_who_kills_a_worker_is_told_and_the_next_is_served(one):
    with pytest.raises(UserError, match="ended the process that worked on it"):
        one.ask("die").answer.result(30)
    with pytest.raises(UserError, match="ended the process that worked on it"):
        one.ask("die", endpoint="stream", tell=lambda content: None).answer.result(30)
    assert one.answer("a")["text"] == "a"


def test_work_that_nobody_waits_for_is_ended_at_once_and_what_waits_is_forgotten(one):
    running = one.keep_busy(60)
    waiting = [one.ask("wait 60") for _ in range(10)]
    started = time.monotonic()
    for job in (running, *waiting):
        job.left = True
    assert one.answer("a")["text"] == "a"
    assert time.monotonic() - started < 2
    told = []
    stream = one.ask("a", endpoint="stream", tell=told.append)
    while not told:
        time.sleep(0.01)
    stream.left = True
    assert one.answer("a")["text"] == "a"
    assert len(told) < 100


def test_a_worker_that_keeps_memory_is_replaced(one):
    before = one.pids()
    one.answer("keep 30")
    assert one.pids() == before
    one.answer("keep 50")
    one.answer("a")
    assert one.pids() != before


def test_a_hanging_worker_does_not_stop_the_others(naughty):
    with asking(naughty, workers=2) as asked:
        hanging = asked.keep_busy(60)
        assert [asked.answer("a")["text"] for _ in range(3)] == ["a"] * 3
        hanging.left = True


def test_one_client_with_many_questions_does_not_make_another_wait(naughty):
    with asking(naughty, workers=2) as asked:
        asked.answer("a", client="one")
        many = [asked.ask(f"wait 0.{number}", client="one") for number in (5, 6, 7, 8)]
        assert asked.answer("a", client="other")["text"] == "a"
        assert sum(job.answer.done() for job in many) <= 2
        for job in many:
            job.left = True


def test_a_worker_that_was_killed_from_outside_and_a_keeper_too_are_replaced(one):
    for process in one.pids():
        os.kill(process, signal.SIGKILL)
    assert one.answer("a")["text"] == "a"
    os.kill(one.keeper_process, signal.SIGKILL)
    for process in one.pids():
        os.kill(process, signal.SIGKILL)
    assert one.answer("a")["text"] == "a"


def test_workers_share_the_memory_of_the_keeper(one):
    one.answer("a")
    (worker,) = one.pids()
    sizes = dict(line.split(":", 1) for line in Path(f"/proc/{worker}/smaps_rollup").read_text().splitlines()[1:])
    private = int(sizes["Private_Dirty"].split()[0]) / 1024
    assert private < 60


def test_a_run_that_has_gone_makes_nobody_wait(naughty, tmp_path):
    moved = tmp_path / "moved"
    shutil.copytree(naughty["naughty"].run.path, moved)
    runs = {"naughty": Served("naughty", saccade.load(moved), LIMITS)}
    shutil.rmtree(moved)
    with asking(runs) as asked, pytest.raises(Busy, match="cannot be asked at the moment"):
        asked.ask("a").answer.result(30)


def test_threads_end_with_the_pool(naughty):
    before = threading.active_count()
    with asking(naughty, workers=2) as asked:
        asked.answer("a")
    assert threading.active_count() == before
