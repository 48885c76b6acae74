"""The run directory: what a training leaves behind and what it goes on from.

    config.yaml          the whole recipe, every value
    tokenizer.json       written by the task (or whatever else it learned from the data)
    model.safetensors    the best weights so far
    metrics.jsonl        a line per report
    tensorboard/         the same, if that package is installed
    state/STEP.safetensors   everything needed to go on exactly: weights, optimiser, where in the data; with a checksum
    state/STEP.stopped.safetensors   the same, at a step where somebody stopped the training

Nothing is ever unpickled. A state that is half-written or damaged is recognised by its checksum, and the one before it is used.
"""

import hashlib
import json
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from saccade.errors import UserError
from saccade.files import held, identity, make_directory, replacing, write_text

_STOPPED = ".stopped"
_TOKENIZER = "tokenizer.json"
_VOCABULARY = "vocabulary"  # in the weights' metadata: which one they belong to
_DAMAGE = (SafetensorError, ValueError, KeyError, TypeError, OSError)  # what reading a damaged state raises


@dataclass
class Progress:
    """Where a training stands."""

    step: int = 0
    epoch: int = 0
    next_batch: int = 0
    seconds: float = 0.0
    best_score: float | None = None
    best_step: int = 0
    validations_since_best: int = 0
    finished: bool = False
    optimizer: str | None = None  # whose state is saved beside this


class RunDirectory:
    def __init__(self, path: Path):
        self.path = path
        self.config = path / "config.yaml"
        self.model = path / "model.safetensors"
        self.metrics = path / "metrics.jsonl"
        self.states = path / "state"
        self._unready = path / ".unready"
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

    def save_model(self, tensors: Mapping[str, Tensor]) -> None:
        self._require_it_is_there()
        vocabulary = _vocabulary_beside(self.model)
        metadata = {} if vocabulary is None else {_VOCABULARY: vocabulary}
        with replacing(self.model) as aside:
            save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, aside, metadata)

    def save_state(self, tensors: Mapping[str, Tensor], progress: Progress, keep: int, stopped: bool = False) -> None:
        """Leaves the last `keep` regular states and, if it was stopped after them, this one.

        Where somebody stops a training must not change its outcome, so that state is never one of those that are averaged.
        """
        self._require_it_is_there()
        plain = {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}
        metadata = {"progress": json.dumps(asdict(progress)), "checksum": _checksum(plain)}
        new = self.states / f"{progress.step:09d}{_STOPPED if stopped else ''}.safetensors"
        with replacing(new) as aside:
            save_file(plain, aside, metadata)
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
            except _DAMAGE as error:
                before = "going on from the state before it" if path != paths[0] else "no other is left"
                say(f"{path} is damaged ({error}); {before}")
        return None

    def saved_steps(self) -> list[int]:
        """Of the states that can be gone on from, damaged or not, oldest first."""
        steps = (path.name.partition(".")[0] for path in self._states())
        return [int(step) for step in steps if step.isdigit()]

    def has_lost_its_states(self) -> bool:
        """Whether there is a trained model and there were states to go on from; to be asked where none is whole."""
        return self.model.exists() and (self._saved.exists() or bool(self._states()))

    def last_weights(self, count: int, say: Callable[[str], None]) -> list[dict[str, Tensor]]:
        """The model's tensors of the last `count` regular states, oldest first; without those that are damaged."""
        weights = []
        for path in self._regular_states()[-count:]:
            try:
                tensors, _ = _read_state(path)
            except _DAMAGE as error:
                say(f"{path} is damaged ({error}) and left out of the average")
                continue
            own = {name: tensor for name, tensor in tensors.items() if name.startswith("model.")}
            weights.append({name.removeprefix("model."): tensor for name, tensor in own.items()})
        return weights

    def write_metrics(self, **values: Any) -> None:
        self._require_it_is_there()
        try:
            with self.metrics.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(values) + "\n")
        except OSError as error:
            raise UserError(
                f"{self.metrics} cannot be written ({error.strerror or error}): see to its place, then go on with "
                f"saccade train {shlex.quote(str(self.path))} --resume"
            ) from error

    def forget_metrics_after(self, step: int) -> None:
        """A run that goes on from `step` reports the later steps again."""
        if not self.metrics.exists():
            return
        kept = [line for line in self.metrics.read_text(encoding="utf-8").splitlines() if _step_of(line) <= step]
        with replacing(self.metrics) as aside:
            aside.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")

    def be_there(self) -> None:
        """Before the first step. Where nobody holds it (a loop of one's own) it is made."""
        if self._identity is None:
            make_directory(self.path)
        self._require_it_is_there()

    def _require_it_is_there(self) -> None:
        if not self._is_the_same():
            raise UserError(
                f"{self.path} is gone: it was deleted or moved while it was trained; move it back and go on with it by --resume, "
                "or train it anew"
            )

    def _is_the_same(self) -> bool:
        """Whether it is still the directory that was made or found, not another one in its place."""
        return self.path.exists() if self._identity is None else identity(self.path) == self._identity

    def _states(self) -> list[Path]:
        return sorted(self.states.glob("*.safetensors"))

    def _regular_states(self) -> list[Path]:
        return [path for path in self._states() if _STOPPED not in path.name]


def own_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and saved buffers by name, each once: of tied weights only the first name."""
    saved = model.state_dict(keep_vars=True)
    named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {name: tensor for name, tensor in named.items() if name in saved}


@torch.no_grad()
def put_tensors(model: nn.Module, tensors: Mapping[str, Tensor], origin: str) -> None:
    """Copies saved tensors into the model; names and shapes must be just the model's own."""
    own = own_tensors(model)
    wrong = set(own) ^ set(tensors) or {name for name in own if own[name].shape != tensors[name].shape}
    if wrong:
        raise UserError(
            f"{origin} does not fit the model of its config.yaml: {', '.join(sorted(wrong)[:3])} differ; train it anew"
        )
    for name, tensor in own.items():
        tensor.copy_(tensors[name])


def load_model(model: nn.Module, path: Path) -> None:
    try:
        with safe_open(path, framework="pt") as file:
            trained_with = (file.metadata() or {}).get(_VOCABULARY)
        if trained_with not in (None, _vocabulary_beside(path)):
            raise UserError(
                f"{path.parent / _TOKENIZER} is not the vocabulary that {path.name} was trained with: copy the run again, whole"
            )
        put_tensors(model, load_file(path), str(path))
    except FileNotFoundError as error:
        raise UserError(
            f"{path} is missing: this run has not been trained to its first validation yet; "
            f"go on with it: saccade train {path.parent} --resume"
        ) from error
    except SafetensorError as error:
        raise UserError(f"{path} is damaged ({error}): copy the run again or train it with --resume") from error


def _vocabulary_beside(model: Path) -> str | None:
    """A digest of the vocabulary that the task keeps beside its weights, if it has one."""
    tokenizer = model.with_name(_TOKENIZER)
    return hashlib.blake2b(tokenizer.read_bytes(), digest_size=16).hexdigest() if tokenizer.exists() else None


def optimizer_tensors(
    optimizer: torch.optim.Optimizer, names: Mapping[nn.Parameter, str]
) -> Iterator[tuple[str, Tensor]]:
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            yield f"{names[cast(nn.Parameter, parameter)]}.{key}", value


def put_optimizer_tensors(
    optimizer: torch.optim.Optimizer, names: Mapping[nn.Parameter, str], tensors: Mapping[str, Tensor]
) -> None:
    by_name = {name: parameter for parameter, name in names.items()}
    for full, tensor in tensors.items():
        name, key = full.rsplit(".", 1)
        if name in by_name:
            optimizer.state[by_name[name]][key] = tensor.to(by_name[name].device, copy=True)


def _read_state(path: Path) -> tuple[dict[str, Tensor], Progress]:
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    if metadata.get("checksum") != _checksum(tensors):
        raise ValueError("its checksum is wrong")
    return tensors, Progress(**json.loads(metadata["progress"]))


def _checksum(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _step_of(line: str) -> int:
    """The step of a line of metrics; a half-written last line counts as later than everything."""
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return 1 << 60
