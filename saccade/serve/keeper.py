"""The keeper: a process that opens the runs, does nothing with them, and is copied for every worker that is wanted.

A copy shares the memory of the weights with all others and is there in milliseconds, so that a worker can be thrown away lightly. The
keeper itself computes nothing and has one thread: threads do not survive copying. Where there is a GPU, whose state does not survive it
either, each worker opens the runs itself.
"""

import gc
import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from saccade.errors import UserError
from saccade.serve.limits import Limits
from saccade.serve.waiting import Busy

if TYPE_CHECKING:
    from saccade.serve.served import Served


@dataclass(frozen=True)
class Kept:
    """A run to open."""

    name: str
    path: Path
    limits: Limits


class Keeper:
    """The near end of the keeper, which is started when the first worker is wanted, and again if it should die."""

    def __init__(self, runs: Mapping[str, "Served"], limits: Limits, threads: int):
        if not hasattr(os, "fork"):
            raise UserError("serving needs a system that can copy processes: Linux, macOS, or WSL on Windows")
        self._runs = [Kept(name, served.run.path.absolute(), served.limits) for name, served in runs.items()]
        self._limits = limits
        self._threads = threads
        self._lock = Lock()
        self._process: multiprocessing.process.BaseProcess | None = None
        self._control: socket.socket | None = None

    def connection(self) -> Connection:
        """To a new worker."""
        with self._lock:
            for _ in range(2):
                if self._process is None or not self._process.is_alive():
                    self._end()
                    self._start()
                ours, theirs = socket.socketpair()
                assert self._control is not None
                with theirs:
                    try:
                        socket.send_fds(self._control, [b"+"], [theirs.fileno()])
                        return Connection(ours.detach())
                    except OSError:
                        ours.close()
                        self._end()
        raise Busy("the models could not be opened again: the server's log says why")

    def _start(self) -> None:
        start = _context([name for name in sorted(sys.modules) if name.startswith("saccade.")])
        self._control, theirs = socket.socketpair()
        with theirs:
            arguments = (theirs, self._runs, self._limits, self._threads)
            self._process = start.Process(target=_keep, args=arguments, name="saccade-keeper", daemon=True)
            self._process.start()

    def close(self) -> None:
        with self._lock:
            self._end()

    def _end(self) -> None:
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            self._process.join(5)
            self._process.kill()
        self._control = self._process = None


def start_importing() -> None:
    """What keepers need is imported while the caller does something else."""
    _context(["saccade.serve.worker"]).Process(target=_keep_nothing).start()


def _context(modules: Sequence[str]) -> multiprocessing.context.ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(modules))
    return context


def _keep_nothing() -> None:
    """Is there to be started."""


def _keep(control: socket.socket, kept: Sequence[Kept], limits: Limits, threads: int) -> None:
    """In the keeper: copies itself for everybody who sends one end of a connection, until nobody is left to send one."""
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # asking for a GPU by CUDA itself would spoil the copies
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which finishes what was asked
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no worker stays behind as a zombie
    import torch

    from saccade.serve.worker import work

    torch.set_num_threads(1)
    on_gpu = torch.cuda.is_available()
    runs = {} if on_gpu else _opened(kept)
    gc.collect()
    gc.freeze()  # what is shared is not touched by collections in the copies
    while True:
        try:
            _, handles, _, _ = socket.recv_fds(control, 1, 1)
        except OSError:
            handles = []
        if not handles:
            os._exit(0)
        if os.fork():
            os.close(handles[0])
            continue
        control.close()
        status = 1
        try:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            torch.set_num_threads(threads)
            torch.seed()
            work(Connection(handles[0]), _opened(kept) if on_gpu else runs, limits, limits_memory=not on_gpu)
            status = 0
        finally:
            sys.stderr.flush()
            os._exit(status)


def _opened(kept: Sequence[Kept]) -> "dict[str, Served]":
    from saccade.runs.run import Run
    from saccade.serve.served import Served

    return {one.name: Served(one.name, Run(one.path), one.limits) for one in kept}
