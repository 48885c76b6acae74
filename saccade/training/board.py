"""The same numbers as metrics.jsonl as TensorBoard's event files, where that package is installed (pip install 'saccade[tensorboard]').

tensorboard --logdir runs
"""

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol


class Board(Protocol):
    def write(self, step: int, values: Mapping[str, float], group: str) -> None: ...

    def close(self) -> None: ...


class NoBoard:
    """TensorBoard is not installed: metrics.jsonl has everything."""

    def write(self, step: int, values: Mapping[str, float], group: str) -> None:
        pass

    def close(self) -> None:
        pass


class TensorBoard:
    """Writes into `directory`. A run that goes on from `step` hides what was written of the steps after it."""

    def __init__(self, directory: Path, step: int):
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(directory), purge_step=step + 1)

    def write(self, step: int, values: Mapping[str, float], group: str) -> None:
        for name, value in values.items():
            self._writer.add_scalar(f"{group}/{name}", value, step)

    def close(self) -> None:
        self._writer.close()


def open_board(directory: Path, step: int) -> Board:
    installed = importlib.util.find_spec("tensorboard") is not None
    return TensorBoard(directory, step) if installed else NoBoard()
