import io
import os
import shutil
import subprocess
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import torch

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

torch.set_num_threads(1)  # tests are small: more threads only wait for each other

TINY = [
    "data.examples=200",
    "model.hidden=16",
    "model.embedding=8",
    "train.steps=6",
    "train.validate_every=3",
    "train.checkpoint_every=2",
    "train.threads=1",
    "train.precision=fp32",
    "decode.valid_sentences=5",
]


@pytest.fixture
def saccade(monkeypatch):
    """Runs the command in this process, which has paid for its imports; `saccade_process` runs it as a person would."""

    def run(*arguments: object, cwd: Path | None = None, stdin: str | bytes = b""):
        from saccade.cli import main

        command = ["saccade", *map(str, arguments)]
        entered = stdin.encode() if isinstance(stdin, str) else stdin
        out, said = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
        with monkeypatch.context() as patched, redirect_stdout(out), redirect_stderr(said):
            patched.setattr(sys, "argv", command)
            patched.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(entered), encoding="utf-8"))
            patched.chdir(cwd or Path.cwd())
            code = 0
            try:
                main()
            except SystemExit as exit:
                code = int(exit.code or 0)
            except Exception:
                code = 1
                traceback.print_exc()
        printed = [stream.buffer.getvalue().decode() for stream in (out, said) if stream.flush() is None]
        return subprocess.CompletedProcess(command, code, *printed)

    return run


@pytest.fixture
def saccade_process():
    """Runs the command in a process of its own: seconds of imports, so for what only a process shows."""

    def run(*arguments: object, cwd: Path | None = None, stdin: str = "", env: dict[str, str] | None = None):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **(env or {})}
        command = [sys.executable, "-m", "saccade", *map(str, arguments)]
        return subprocess.run(
            command, cwd=cwd, input=stdin, capture_output=True, text=True, env=environment, timeout=300
        )

    return run


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory) -> Path:
    """A run of a few steps on reversed digits: it knows nothing, but everything works."""
    from saccade.runs.train import train

    return train("digits-rnn", TINY, tmp_path_factory.mktemp("runs") / "tiny")


@pytest.fixture
def tiny_settings() -> list[str]:
    return list(TINY)


@pytest.fixture(scope="module")
def browser():
    """A real browser, where this machine has one."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed (pip install playwright)"
    )
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine (apt-get install chromium)")
    arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield running
        running.close()
