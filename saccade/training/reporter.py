"""What a person sees of a training: a bar on a terminal, plain lines elsewhere; always on stderr."""

import sys
from collections.abc import Mapping
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from saccade.printable import visible
from saccade.tasks.task import Validation


class Reporter:
    """Says what happens. `quiet` is for the processes that do not lead, and for tests."""

    def __init__(self, quiet: bool = False):
        self.quiet = quiet
        self.console = Console(stderr=True, quiet=quiet, highlight=False, soft_wrap=True)
        self._bar: Progress | None = None
        self._row = TaskID(0)

    def __enter__(self) -> "Reporter":
        if not self.quiet and sys.stderr.isatty():
            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
            self._bar = Progress(
                *columns, TimeElapsedColumn(), TimeRemainingColumn(), console=self.console, transient=True
            )
            self._bar.start()
            self._row = self._bar.add_task("starting", total=1.0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, sentence: str) -> None:
        self.console.print(visible(sentence), markup=False)

    def step(self, step: int, share_done: float, seconds_left: float, shown: Mapping[str, float]) -> None:
        """One report of the loss and the speed: a line, or the bar's text where there is one."""
        numbers = "  ".join(f"{name} {_short(value)}" for name, value in shown.items())
        if self._bar is not None:
            self._bar.update(self._row, completed=share_done, description=f"step {step}  {numbers}")
        else:
            self.say(f"step {step}  {numbers}  {_duration(seconds_left)} left")

    def validation(self, step: int, validation: Validation, is_best: bool) -> None:
        numbers = "  ".join(f"{name} {_short(value)}" for name, value in validation.metrics.items())
        self.say(f"valid at step {step}  {numbers}{'  (best so far)' if is_best else ''}")
        for sample in validation.samples:
            self.say(f"    {sample}")


def _short(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 1 else f"{value:.2f}"


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
