"""Ctrl-C and a polite kill, noted until the update they fall into is complete."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(Exception):
    """The training was asked to stop; its state was saved."""


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """SIGINT and SIGTERM are appended to the list instead of raising in the middle of an update."""
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        received.append(number)

    try:
        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: signals go elsewhere
        before = {}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
