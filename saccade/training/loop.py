"""The one loop: every task trains here, whatever its model and however many steps an update has (updates.py).

Random numbers are seeded anew for every update from (seed, step, rank), so a resumed run draws what the uninterrupted run would have
drawn, and its final weights are the same bit for bit.
"""

import hashlib
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from typing import Any

import torch
from torch import Tensor

from saccade.attention.routes import has_compiled_kernels
from saccade.errors import Diverged, UserError
from saccade.layers.dropout import set_share
from saccade.layers.sketch import own_tensors
from saccade.tasks.task import AnyTrained, Validation
from saccade.training.board import Board, NoBoard, open_board
from saccade.training.checkpoint import Progress, RunDirectory, weights_of_state
from saccade.training.config import TrainConfig
from saccade.training.interrupts import Interrupted, stop_signals
from saccade.training.moving_average import MovingAverage
from saccade.training.reporter import Reporter
from saccade.training.schedule import dropout_share
from saccade.training.updates import StepDiverged, Sums, Updates
from saccade.training.weights import below, put_tensors
from saccade.training.world import World

_FIRST_REPORT = 1.0  # seconds of training until the first loss is shown, if log_every is further away
_FIRST_STATE, _NEXT_STATE = 90.0, 300.0  # seconds until a state is saved, if checkpoint_every is further away


class NotFinite(UserError):
    """The loss, the gradient or the weights became NaN or infinite."""

    def __init__(self, what: str, remedy: str):
        super().__init__(f"{what}: {remedy}")
        self.what = what


class Training:
    """One training of one task in one run directory."""

    def __init__(
        self, task: AnyTrained, config: TrainConfig, directory: RunDirectory, reporter: Reporter, world: World
    ):
        self.task = task
        self.config = config
        self.directory = directory
        self.reporter = reporter
        self.world = world
        self.updates = Updates(task, config, world)
        self.average = MovingAverage(task.model, config.ema) if config.ema is not None and world.leads else None
        self.progress = Progress()
        self.sums = Sums()
        self.board: Board = NoBoard()
        self._epoch = 0  # of the batches that are being trained on
        self._has_reported = False
        self._saved_at: float | None = None  # seconds of training

    @property
    def conditions(self) -> dict[str, str]:
        """What the bits of the weights depend on beside the recipe."""
        device = self.updates.device
        return {
            "processes": str(self.world.size),
            "threads": str(torch.get_num_threads()),
            "device": device.type,
            "precision": str(self.updates.dtype).removeprefix("torch."),
            "compiled kernels": "yes" if device.type == "cpu" and has_compiled_kernels() else "no",
            "instructions": torch.backends.cpu.get_cpu_capability(),
            "torch": torch.__version__,
        }

    def resume(self) -> bool:
        """Restores the newest complete state; False if no state was saved."""
        state = self.directory.latest_state(self.reporter.say)
        if state is None:
            if self.directory.has_lost_its_states():
                raise UserError(
                    f"{self.directory.states} holds no complete state to resume from, and training from the first step again would "
                    f"replace the trained {self.directory.model}: put the states back, or start a new run with another --out"
                )
            if self.world.leads:
                self.directory.forget_metrics_after(0)
            return False
        tensors, self.progress = state
        if self.progress.optimizer not in (None, self.updates.optimizer_names):
            raise UserError(
                f"{self.directory.path} was trained with train.optimizer {self.progress.optimizer} and its config.yaml says "
                f"{self.updates.optimizer_names} now: put {self.progress.optimizer} back, or start a new run"
            )
        self.progress.finished = self.progress.finished and self._is_over()
        put_tensors(self.task.model, below("model.", tensors), "the saved state")
        self.updates.restore(tensors)
        if self.average is not None:
            self.average.restore(below("ema.", tensors))
        self._saved_at = self.progress.seconds
        if self.world.leads:
            self.directory.forget_metrics_after(self.progress.step)
            self._repair_model(tensors)
        return True

    def run(self) -> Progress:
        self.directory.be_there()
        self.world.share_weights(list(own_tensors(self.task.model).values()))
        started = time.monotonic() - self.progress.seconds
        if self.average is not None and self.progress.step == 0:
            self.average.restore({})  # others may have changed the weights since
        if self.world.leads:
            self.board = open_board(self.directory.path / "tensorboard", self.progress.step)
        with closing(self.board), stop_signals() as asked_to_stop, self.reporter:
            if self._is_over() and not self.progress.finished:
                self._after_update()  # the run was stopped between its last update and its end
            while not self.progress.finished:
                for works in self._next_works():
                    before = time.monotonic()
                    self._update(works)
                    self.sums.seconds += time.monotonic() - before
                    self.progress.seconds = self.world.from_leader(time.monotonic() - started)
                    self._after_update()
                    if self.progress.finished:
                        break
                    if self.world.sum_numbers([len(asked_to_stop)])[0]:
                        if self.progress.step % self.config.checkpoint_every:
                            self._save_state(between=True)
                        raise Interrupted
        return self.progress

    # An update

    def _next_works(self) -> Iterator[Sequence[Any]]:
        """The rest of this epoch, the batches of an update at a time; then the next epoch stands ready."""
        self._ramp_dropout(self.progress.epoch)
        works = self.task.epoch(self.progress.epoch, self.world.rank, self.world.size)
        if not works:
            raise UserError(
                "there is nothing to train on: the training data are empty; check the data section of the recipe"
            )
        size = self.updates.batches
        for start in range(self.progress.next_batch, len(works), size):
            self.progress.next_batch = start + size
            if start + size >= len(works):
                self.progress.epoch, self.progress.next_batch = self.progress.epoch + 1, 0
            yield works[start : start + size]

    def _ramp_dropout(self, epoch: int) -> None:
        self._epoch = epoch
        if self.config.dropout_epochs:
            set_share(self.task.model, dropout_share(self.config, epoch, self._share_done()))

    def _update(self, works: Sequence[Any]) -> None:
        self.progress.step += 1
        torch.manual_seed(_update_seed(self.config.seed, self.progress.step, self.world.rank))
        if self.config.minutes is not None:
            self._ramp_dropout(self._epoch)
        self.task.model.train()
        try:
            self.updates.take(works, self.progress.step, self._share_done(), self.sums)
        except StepDiverged as error:
            what = f"the {error.what} at step {self.progress.step} ({error.where})"
            raise NotFinite(what, self._remedy()) from None
        if self.average is not None:
            self.average.update(self.progress.step)

    def _after_update(self) -> None:
        step, config = self.progress.step, self.config
        last = self._is_over()
        if self.sums.totals and (step % config.log_every == 0 or last):
            self._report()
        elif not self._has_reported and self.sums.seconds >= _FIRST_REPORT:
            self._show()
        if step % config.validate_every == 0 or last:
            self._validate()
            last = self._is_over()
        if last and config.average > 1:
            self._save_state()
            self._average_checkpoints()
        self.progress.finished = last
        if step % config.checkpoint_every == 0 or last:
            self._save_state()
        elif self.progress.seconds >= (_FIRST_STATE if self._saved_at is None else self._saved_at + _NEXT_STATE):
            self._save_state(between=True)

    # What is said and kept

    def _show(self) -> dict[str, float]:
        """Shows the loss and the speed since the last report."""
        figures = self.sums.means()
        figures["learning_rate"] = self.updates.rate
        count, seconds = max(self.sums.counts.values(), default=0.0), max(self.sums.seconds, 1e-9)
        figures[f"{self.task.unit}/s"] = max(count, 1.0) / seconds
        self._has_reported = True
        if self.world.leads:
            done = self._share_done()
            left = self.progress.seconds * (1 - done) / max(done, 1e-9)
            self.reporter.step(self.progress.step, done, left, figures)
        return figures

    def _report(self) -> None:
        figures = self._show()
        self.sums = Sums()
        if self.world.leads:
            seconds = round(self.progress.seconds, 2)
            self.directory.write_metrics(step=self.progress.step, epoch=self.progress.epoch, seconds=seconds, **figures)
            self.board.write(self.progress.step, figures, "train")

    def _validate(self) -> None:
        """Validates and keeps the weights (their moving average, where there is one) if they are the best so far."""
        score = -math.inf
        with self.average.in_model() if self.average is not None else nullcontext():
            if self.world.leads:
                validation = self._validated()
                score = validation.score
            score = self.world.from_leader(score)
            best = self.progress.best_score
            is_best = best is None or score > best
            if is_best:
                self.progress.best_score, self.progress.best_step = score, self.progress.step
                self.progress.validations_since_best = 0
            else:
                self.progress.validations_since_best += 1
            if self.world.leads:
                self._keep(validation, is_best)

    def _keep(self, validation: Validation, is_best: bool) -> None:
        step = self.progress.step
        self.reporter.validation(step, validation, is_best)
        seconds = round(self.progress.seconds, 2)
        self.directory.write_metrics(step=step, seconds=seconds, valid=dict(validation.metrics))
        self.board.write(step, validation.metrics, "valid")
        for name, content in validation.files.items():
            self.directory.save_sample(step, name, content)
        if is_best:
            self._save_model()

    def _validated(self) -> Validation:
        self._require_finite()
        self.task.model.eval()
        try:
            return self.task.validate()
        except Diverged as error:
            what = f"the model's scores became NaN or infinite at step {self.progress.step}, in its validation"
            raise NotFinite(what, self._remedy()) from error

    def _save_model(self) -> None:
        self.directory.save_model(own_tensors(self.task.model))

    def _repair_model(self, newest: dict[str, Tensor]) -> None:
        """A model.safetensors that was validated and is gone or damaged is written again, from the best state that is left."""
        if self.progress.best_score is None or self.directory.has_model():
            return
        step, tensors = self.progress.best_step, self.directory.state_of(self.progress.best_step)
        if tensors is None:
            step, tensors = self.progress.step, newest
        self.directory.save_model(weights_of_state(tensors))
        self.reporter.say(
            f"{self.directory.model} was missing or damaged and is written again, with the weights of step {step}"
        )

    def _require_finite(self) -> None:
        tensors = own_tensors(self.task.model)
        wrong = [name for name, tensor in tensors.items() if not torch.isfinite(tensor).all()]
        if wrong:
            what = (
                f"the weights became NaN or infinite at step {self.progress.step} ({wrong[0]}), though the loss did not"
            )
            raise NotFinite(what, self._remedy())

    def _average_checkpoints(self) -> None:
        """The mean of the last checkpoints' weights becomes the model if it validates better than the best single one."""
        if not self.world.leads:
            return
        weights = self.directory.last_weights(self.config.average, self.reporter.say)
        if len(weights) < 2:
            return
        own = {name: tensor.detach().clone() for name, tensor in own_tensors(self.task.model).items()}
        mean = {name: torch.stack([w[name].double() for w in weights]).mean(0).to(own[name]) for name in own}
        put_tensors(self.task.model, mean, "the average of the last checkpoints")
        validation = self._validated()
        is_best = self.progress.best_score is None or validation.score > self.progress.best_score
        self.reporter.say(f"average of the last {len(weights)} checkpoints:")
        self.reporter.validation(self.progress.step, validation, is_best)
        if not is_best:
            self.reporter.say(f"the best single checkpoint, of step {self.progress.best_step}, is better and stays")
        self.directory.write_metrics(step=self.progress.step, averaged=len(weights), valid=dict(validation.metrics))
        if is_best:
            self.progress.best_score, self.progress.best_step = validation.score, self.progress.step
            self._save_model()
        put_tensors(self.task.model, own, "the weights before averaging")

    def _save_state(self, between: bool = False) -> None:
        self.progress.optimizer = self.updates.optimizer_names
        self.progress.conditions = self.progress.conditions or self.conditions
        self._saved_at = self.progress.seconds
        if self.world.leads:
            self._require_finite()
            tensors: dict[str, Tensor] = {f"model.{name}": t for name, t in own_tensors(self.task.model).items()}
            tensors |= self.updates.tensors()
            if self.average is not None:
                tensors |= {f"ema.{name}": tensor for name, tensor in self.average.tensors.items()}
            self.directory.save_state(tensors, self.progress, max(2, self.config.average), between)
        self.world.wait()

    # How far it is

    def _share_done(self) -> float:
        by_steps = self.progress.step / self.config.steps
        if self.config.minutes is None:
            return min(by_steps, 1.0)
        return min(max(by_steps, self.progress.seconds / (60 * self.config.minutes)), 1.0)

    def _is_over(self) -> bool:
        out_of_time = self.config.minutes is not None and self.progress.seconds >= 60 * self.config.minutes
        return self.progress.step >= self.config.steps or out_of_time or self._out_of_patience()

    def _out_of_patience(self) -> bool:
        return self.config.patience is not None and self.progress.validations_since_best >= self.config.patience

    def _remedy(self) -> str:
        gentler = (
            f"a lower rate (--resume --set train.learning_rate={self.config.learning_rate / 3:.2g}), more train.warmup_steps "
            "or a smaller train.max_grad_norm"
        )
        saved = self.directory.saved_steps()
        if not saved:
            return f"no checkpoint was saved yet, so start again with {gentler}"
        again = "; if it diverges again, delete that one to resume from the one before" if saved[1:] else ""
        return (
            f"the checkpoint of step {saved[-1]} stays in {self.directory.states}; resume from it with {gentler}{again}"
        )


def _update_seed(seed: int, step: int, rank: int) -> int:
    digest = hashlib.blake2b(f"{seed}/{step}/{rank}".encode(), digest_size=7)
    return int.from_bytes(digest.digest(), "big")
