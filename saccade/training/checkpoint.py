"""The run directory: what a training leaves behind and what it is resumed from.

    config.yaml          the whole recipe, every value
    tokenizer.json       written by the task (or whatever else it learned from the data)
    model.safetensors    the best weights so far
    metrics.jsonl        a line per report
    samples/             files that validations wrote, STEP-NAME
    tensorboard/         the same as metrics.jsonl, if that package is installed
    state/STEP.safetensors           everything needed to resume exactly: weights, optimisers, where in the data
    state/STEP.between.safetensors   the same, at a step where the training was stopped or some minutes were over

A state that is half-written or damaged is recognised by its checksum, and the one before it is used.
"""

import hashlib
import json
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from torch import Tensor, nn

from saccade.errors import UserError
from saccade.files import held, identity, make_directory, read_bytes, replacing, write_text
from saccade.stored import parsed
from saccade.training.weights import DAMAGE, below, put_tensors, read_shapes, read_tensors, write_tensors

_BETWEEN = ".between"
_MOST_METRICS = 1 << 28  # bytes
_TOKENIZER = "tokenizer.json"
_VOCABULARY = "vocabulary"  # beside the weights: a digest of the one they belong to


_Count = Annotated[int, Field(ge=0, lt=1 << 62)]


@dataclass
class Progress:
    """Where a training stands."""

    step: _Count = 0
    epoch: _Count = 0
    next_batch: _Count = 0
    seconds: float = 0.0
    best_score: float | None = None
    best_step: int = 0
    validations_since_best: int = 0
    finished: bool = False
    optimizer: str | None = None  # whose state is saved beside this; of several steps, with commas between
    conditions: dict[str, str] | None = None  # that its bits depend on: how the training began


class RunDirectory:
    def __init__(self, path: Path):
        self.path = path
        self.config = path / "config.yaml"
        self.model = path / "model.safetensors"
        self.metrics = path / "metrics.jsonl"
        self.states = path / "state"
        self._unready = path / ".unready"
        self._fitted = path / ".fitted"
        self._saved = path / ".saved"  # there since the first state was, whatever became of it
        self._was_there = True
        self._was_empty = False
        self._identity: tuple[int, int] | None = None  # of the directory that this training holds

    def is_foreign(self) -> bool:
        """Whether there are files that no training wrote, nor one that was killed before it had begun."""
        known = self.config.exists() or self._unready.exists()
        return not known and self.path.exists() and not (self.path.is_dir() and self._is_empty())

    def _is_empty(self) -> bool:
        return all(path.name.startswith(".") and path.name.endswith(".partial") for path in self.path.iterdir())

    @contextmanager
    def made_and_held(self) -> Iterator[bool]:
        """Makes the directory if need be, for this training alone: False if another process trains in it."""
        self._was_there = self.path.exists()
        make_directory(self.path)
        with held(self.path) as free:
            if free:
                self._was_empty, self._identity = self._is_empty(), identity(self.path)
            yield free

    def is_in_use(self) -> bool:
        """Whether another process trains in it."""
        if not self.path.is_dir():
            return False
        with held(self.path) as free:
            return not free

    def begin(self) -> None:
        write_text(self._unready, "The data of this run are being prepared.\n")

    def require_it_is_whole(self) -> None:
        """Of a new run: nobody deleted what was written first while the rest was prepared."""
        if not self._unready.exists() or not self._is_the_same():
            raise UserError(
                f"{self.path} was deleted or moved while its data were prepared: delete what is left of it and start it again"
            )

    def is_ready(self) -> None:
        self._unready.unlink(missing_ok=True)

    def undo_begin(self) -> None:
        """Of a run that could not begin nothing stays. A directory that held anything before, or is another one now, is left as it is."""
        if not self._was_empty or not self._is_the_same():
            return
        for path in self.path.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        if not self._was_there:
            self.path.rmdir()

    def mark_fitted(self) -> None:
        """The task was fitted without the training loop: there are neither states nor a model.safetensors."""
        write_text(self._fitted, "This run was fitted without training steps.\n")

    def is_fitted(self) -> bool:
        return self._fitted.exists()

    def save_model(self, tensors: Mapping[str, Tensor]) -> None:
        self._require_it_is_there()
        write_tensors(self.model, tensors, {_VOCABULARY: _vocabulary_beside(self.model)})

    def has_model(self) -> bool:
        """Whether its model.safetensors is whole."""
        try:
            read_tensors(self.model)
        except DAMAGE:
            return False
        return True

    def save_sample(self, step: int, name: str, content: bytes | Callable[[Path], None]) -> None:
        """A file that a validation wrote: whole or not there, under its own ending from the beginning."""
        self._require_it_is_there()
        path = self.path / "samples" / f"{step:09d}-{name}"
        with replacing(path) as aside:
            if isinstance(content, bytes):
                aside.write_bytes(content)
            else:
                under_its_ending = aside.with_name(f"{aside.name}{path.suffix}")
                try:
                    content(under_its_ending)
                    under_its_ending.replace(aside)
                finally:
                    under_its_ending.unlink(missing_ok=True)

    def save_state(self, tensors: Mapping[str, Tensor], progress: Progress, keep: int, between: bool = False) -> None:
        """Leaves the last `keep` regular states and, if it was saved between two of them, this one.

        When a training is stopped, or how fast it is, must not change its outcome, so such a state is never one of those averaged.
        """
        self._require_it_is_there()
        new = self.states / f"{progress.step:09d}{_BETWEEN if between else ''}.safetensors"
        write_tensors(new, tensors, {"progress": asdict(progress)})
        if not self._saved.exists():
            write_text(self._saved, "The states of this training are in the folder state.\n")
        # Training stands at this step, so a later state is one that could not be read.
        regular = [path for path in self._regular_states() if path.name <= new.name]
        for path in {*self._states()} - {*regular[-keep:], new}:
            path.unlink()

    def latest_state(self, say: Callable[[str], None]) -> tuple[dict[str, Tensor], Progress] | None:
        """The newest state that is whole."""
        paths = self._states()
        for path in reversed(paths):
            try:
                return _read_state(path)
            except DAMAGE as error:
                before = "using the state before it" if path != paths[0] else "there is no other"
                say(f"{path} is damaged ({error}); {before}")
        return None

    def state_of(self, step: int) -> dict[str, Tensor] | None:
        """The tensors of one state, if it is there and whole."""
        try:
            return _read_state(self.states / f"{step:09d}.safetensors")[0]
        except DAMAGE:
            return None

    def saved_steps(self) -> list[int]:
        """Of all states, damaged or not, oldest first."""
        steps = (path.name.partition(".")[0] for path in self._states())
        return [int(step) for step in steps if step.isdigit()]

    def newest_state(self) -> Path | None:
        return max(self._states(), default=None)

    def has_lost_its_states(self) -> bool:
        """Whether there is a trained model and there were states; to be asked where none is whole."""
        return self.model.exists() and (self._saved.exists() or bool(self._states()))

    def last_weights(self, count: int, say: Callable[[str], None]) -> list[dict[str, Tensor]]:
        """The model's tensors of the last `count` regular states, oldest first; without those that are damaged."""
        weights = []
        for path in self._regular_states()[-count:]:
            try:
                tensors, _ = _read_state(path)
            except DAMAGE as error:
                say(f"{path} is damaged ({error}) and left out of the average")
                continue
            weights.append(below("model.", tensors))
        return weights

    def write_metrics(self, **values: Any) -> None:
        self._require_it_is_there()
        try:
            with self.metrics.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(values) + "\n")
        except OSError as error:
            raise UserError(
                f"{self.metrics} cannot be written ({error.strerror or error}): free some space, then resume with "
                f"{_resume(self.model)}"
            ) from error

    def forget_metrics_after(self, step: int) -> None:
        """A run resumed from `step` reports the later steps again."""
        if not self.metrics.exists():
            return
        try:
            lines = read_bytes(self.metrics, _MOST_METRICS).split(b"\n")
        except (OSError, ValueError) as error:
            raise UserError(
                f"{self.metrics} cannot be read ({error}): delete it, nothing but reports of the training is in it"
            ) from None
        with replacing(self.metrics) as aside:
            aside.write_bytes(b"".join(line + b"\n" for line in lines if _step_of(line) <= step))

    def be_there(self) -> None:
        """Before the first step. Where nobody holds it (a loop of one's own) it is made."""
        if self._identity is None:
            make_directory(self.path)
        self._require_it_is_there()

    def _require_it_is_there(self) -> None:
        if not self._is_the_same():
            raise UserError(
                f"{self.path} is gone: it was deleted or moved while it was trained; move it back and use --resume, "
                "or train it anew"
            )

    def _is_the_same(self) -> bool:
        """Whether it is still the directory that was made or found, not another one in its place."""
        return self.path.exists() if self._identity is None else identity(self.path) == self._identity

    def _states(self) -> list[Path]:
        return sorted(self.states.glob("*.safetensors"))

    def _regular_states(self) -> list[Path]:
        return [path for path in self._states() if _BETWEEN not in path.name]


class SavedWeights:
    """The weights of a run, for `task.restore`."""

    def __init__(self, directory: Path, say: Callable[[str], None]):
        self.directory = directory
        self._say = say

    def load_into(self, model: nn.Module) -> None:
        load_weights(model, self.directory, self._say)
        model.eval()


def load_weights(model: nn.Module, directory: Path, say: Callable[[str], None]) -> None:
    put_tensors(model, read_weights(directory, say), str(directory))


def read_weights(directory: Path, say: Callable[[str], None]) -> dict[str, Tensor]:
    """The run's weights: those of its best validation or, before the first one, of its newest state."""
    run = RunDirectory(directory)
    if run.model.exists() or not run.saved_steps():
        return read_model(run.model)
    state = run.latest_state(say)
    if state is None:
        raise _no_weights(run.model)
    tensors, progress = state
    say(f"{directory} has not been validated yet: these are the weights of step {progress.step}")
    return weights_of_state(tensors)


def shapes_of(directory: Path, of_a_state: bool = False) -> dict[str, tuple[int, ...]] | None:
    """The shapes of the weights that `read_weights` gives, or (`of_a_state`) that a training is resumed with, from a file's header alone;
    None where there are none yet, or where they cannot be read: reading them says why."""
    run = RunDirectory(directory)
    try:
        if run.model.exists() and not of_a_state:
            return read_shapes(run.model)
        state = run.newest_state()
        return None if state is None else below("model.", read_shapes(state))
    except DAMAGE:
        return None


def load_model(model: nn.Module, path: Path) -> None:
    put_tensors(model, read_model(path), str(path))


def read_model(path: Path) -> dict[str, Tensor]:
    """The tensors of a run's model.safetensors."""
    try:
        tensors, about = read_tensors(path)
    except FileNotFoundError as error:
        raise _no_weights(path) from error
    except DAMAGE as error:
        raise UserError(
            f"{path} is damaged ({error}): copy the run again, or repair it with {_resume(path)}"
        ) from error
    if about.get(_VOCABULARY) not in (None, _vocabulary_beside(path)):
        raise UserError(
            f"{path.parent / _TOKENIZER} is not the vocabulary that {path.name} was trained with: copy the run again, whole"
        )
    return tensors


def weights_of_state(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What a state holds of the model: the moving average where there is one."""
    return {**below("model.", tensors), **below("ema.", tensors)}


def _no_weights(model: Path) -> UserError:
    return UserError(
        f"{model} is missing: this run has not been trained to its first validation or state yet; resume it with {_resume(model)}"
    )


def _resume(model: Path) -> str:
    return f"`saccade train {shlex.quote(str(model.parent))} --resume`"


def _read_state(path: Path) -> tuple[dict[str, Tensor], Progress]:
    tensors, about = read_tensors(path)
    return tensors, parsed(json.dumps(about["progress"]), Progress)


def _vocabulary_beside(model: Path) -> str | None:
    """A digest of the vocabulary that the task keeps beside its weights, if it has one."""
    tokenizer = model.with_name(_TOKENIZER)
    return hashlib.blake2b(read_bytes(tokenizer), digest_size=16).hexdigest() if tokenizer.exists() else None


def _step_of(line: bytes) -> int:
    """The step of a line of metrics; a half-written last line counts as later than everything."""
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return 1 << 60
