"""Every file of a run may be a stranger's, or damaged: each of thousands of changes ends in a sentence or in an answer."""

import json
import os
import random
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from trust import runs
from trust.damage import damage

SECONDS = 60  # for one run on a busy machine

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is limited by /proc and RLIMIT_AS")


class Reader:
    """Answers requests about runs, in a process that is started anew when it has died."""

    def __init__(self, warm: list[Path]):
        self.warm = [str(path) for path in warm]
        self.process: subprocess.Popen[str] | None = None

    def ask(self, run: Path, do: str) -> dict[str, str]:
        if self.process is None:
            self._start()
        answer = self._exchange({"run": str(run), "do": do})
        if answer is None:
            assert self.process is not None
            self.process.kill()
            code = self.process.wait()
            self.process = None
            return {"broken": f"the process ended with {code}" if code != -9 else f"no answer after {SECONDS} s"}
        return answer

    def _start(self) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("reader.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
            env=environment,
            cwd=Path(__file__).parents[2],
        )
        assert self._exchange(self.warm) == {}

    def _exchange(self, question: object) -> dict[str, str] | None:
        assert self.process is not None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(question) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return None
        ready, _, _ = select.select([self.process.stdout], [], [], SECONDS)
        line = self.process.stdout.readline() if ready else ""
        return json.loads(line) if line else None

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def broken(trained: dict[str, Path], folder: Path, seed: int, count: int) -> list[str]:
    """What went wrong of so many changes, of all files of all runs in turn."""
    reader = Reader(list(trained.values()))
    wrong = []
    try:
        whole = {name: reader.ask(run, "predict") for name, run in trained.items()}
        assert all("answer" in answer for answer in whole.values()), whole
        places = [(name, path.relative_to(run)) for name, run in trained.items() for path in runs.files(run)]
        random.Random(seed).shuffle(places)
        for number in range(count):
            draw = random.Random(f"{seed}/{number}")
            name, place = places[number % len(places)]
            run = folder / "damaged"
            shutil.copytree(trained[name], run, ignore=shutil.ignore_patterns("tensorboard", "samples"))
            strangers = draw.random() < 0.6  # who leaves checksums out; else they notice any damage
            how = damage(run / place, draw)
            if strangers:
                (run / "checksums.json").unlink(missing_ok=True)
            do = "resume" if draw.random() < 0.3 else "predict"
            result = reader.ask(run, do)
            what = f"change {number}: {do} {name}/{place}{', no checksums' * strangers}, {how}: "
            if "broken" in result or result.get("told") == "" or len(result.get("told", "")) > 3000:
                wrong.append(what + str(result))
            elif (
                do == "predict"
                and not strangers
                and result.get("answer", whole[name]["answer"]) != whole[name]["answer"]
            ):
                wrong.append(what + "another answer: " + result["answer"][:200])
            shutil.rmtree(run)
    finally:
        reader.close()
    return wrong


def test_a_hundred_changes_of_a_run_of_every_task_end_in_a_sentence_or_an_answer(tmp_path):
    trained = runs.trained(runs.one_for_each_task(), tmp_path)
    wrong = broken(trained, tmp_path, seed=29, count=100)
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
def test_two_thousand_changes_of_runs_of_every_task_and_model_end_in_a_sentence_or_an_answer(tmp_path):
    trained = runs.trained(runs.recipes(), tmp_path)
    wrong = broken(
        trained, tmp_path, seed=int(os.environ.get("FUZZ_SEED", "1")), count=int(os.environ.get("FUZZ_COUNT", "2000"))
    )
    assert not wrong, "\n".join(wrong)
