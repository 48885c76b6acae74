"""The one loop: every task trains here, whatever its model and however many objectives it has.

An update: add up the losses' totals over the batches of the update (and over all processes), divide the gradient once by what was counted,
clip, step. Random numbers are seeded anew for every update from (seed, step, rank), so a run that goes on from a checkpoint draws what the
uninterrupted run would have drawn, and its final weights are the same bit for bit.
"""

import hashlib
import math
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from saccade.errors import Diverged, UserError
from saccade.layers.dropout import set_share
from saccade.tasks.task import Objective, Task, Validation
from saccade.training.board import Board, NoBoard, open_board
from saccade.training.checkpoint import (
    Progress,
    RunDirectory,
    optimizer_tensors,
    own_tensors,
    put_optimizer_tensors,
    put_tensors,
)
from saccade.training.config import TrainConfig
from saccade.training.optimizer import optimizer_of
from saccade.training.precision import resolve
from saccade.training.reporter import Reporter
from saccade.training.schedule import rate_at
from saccade.training.world import World


class Interrupted(Exception):
    """Somebody asked to stop; the state was saved."""


class NotFinite(UserError):
    """The loss, the gradient or the weights became NaN or infinite."""

    def __init__(self, what: str, how_to_go_on: str):
        super().__init__(f"{what}: {how_to_go_on}")
        self.what = what


@dataclass
class Sums:
    """What the updates since the last report added up to."""

    count: float = 0.0
    seconds: float = 0.0
    totals: dict[str, float] | None = None

    def add(self, count: float, totals: dict[str, float]) -> None:
        self.count += count
        self.totals = {name: (self.totals or {}).get(name, 0.0) + value for name, value in totals.items()}


class Training:
    """One training of one task in one run directory."""

    def __init__(self, task: Task, config: TrainConfig, directory: RunDirectory, reporter: Reporter, world: World):
        self.task = task
        self.config = config
        self.directory = directory
        self.reporter = reporter
        self.world = world
        self.objectives = list(task.objectives())
        self.names = {parameter: name for name, parameter in task.model.named_parameters()}
        self.optimizers = [optimizer_of(objective, config, task.model) for objective in self.objectives]
        self.device = next(task.model.parameters()).device
        self.dtype = resolve(config.precision, self.device)
        self.progress = Progress()
        self.sums = Sums()
        self.board: Board = NoBoard()

    def resume(self) -> bool:
        """Goes on from the newest whole state, if there is one."""
        state = self.directory.latest_state(self.reporter.say)
        if state is None:
            if self.directory.has_lost_its_states():
                raise UserError(
                    f"{self.directory.states} holds no whole state to go on from, and training from the first step again would "
                    f"replace the trained {self.directory.model}: put the states back, or start a new run with another --out"
                )
            if self.world.leads:
                self.directory.forget_metrics_after(0)
            return False
        tensors, self.progress = state
        if self.progress.optimizer not in (None, self.config.optimizer):
            raise UserError(
                f"{self.directory.path} was trained with train.optimizer {self.progress.optimizer} and its config.yaml says "
                f"{self.config.optimizer} now: put {self.progress.optimizer} back, or start a new run"
            )
        self.progress.finished = self.progress.finished and self._is_over()
        own = {name.removeprefix("model."): tensor for name, tensor in tensors.items() if name.startswith("model.")}
        put_tensors(self.task.model, own, "the saved state")
        for objective, optimizer in zip(self.objectives, self.optimizers, strict=True):
            prefix = f"optimizer.{objective.name}."
            put_optimizer_tensors(
                optimizer,
                self.names,
                {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)},
            )
        if self.world.leads:
            self.directory.forget_metrics_after(self.progress.step)
        return True

    def run(self) -> Progress:
        self.directory.be_there()
        self.world.share_weights(list(own_tensors(self.task.model).values()))
        started = time.monotonic() - self.progress.seconds
        if self.world.leads:
            self.board = open_board(self.directory.path / "tensorboard", self.progress.step)
        with closing(self.board), _stop_signals() as asked_to_stop, self.reporter:
            if self._is_over() and not self.progress.finished:
                self._after_update()  # the run was stopped between its last update and its end
            while not self.progress.finished:
                for work in self._next_works():
                    before = time.monotonic()
                    self._update(work)
                    self.sums.seconds += time.monotonic() - before
                    self.progress.seconds = self.world.from_leader(time.monotonic() - started)
                    self._after_update()
                    if self.progress.finished:
                        break
                    if self.world.sum_numbers([len(asked_to_stop)])[0]:
                        if self.progress.step % self.config.checkpoint_every:
                            self._save_state(stopped=True)
                        raise Interrupted
        return self.progress

    def _next_works(self) -> Iterator[Sequence[Any]]:
        """The rest of this epoch in pieces of `accumulate` batches; then the next epoch stands ready."""
        self._ease_dropout(self.progress.epoch)
        works = self.task.epoch(self.progress.epoch, self.world.rank, self.world.size)
        if not works:
            raise UserError(
                "there is nothing to train on: the training data are empty; check the data section of the recipe"
            )
        size = self.config.gradient_accumulation
        for start in range(self.progress.next_batch, len(works), size):
            self.progress.next_batch = start + size
            if start + size >= len(works):
                self.progress.epoch, self.progress.next_batch = self.progress.epoch + 1, 0
            yield works[start : start + size]

    def _ease_dropout(self, epoch: int) -> None:
        if self.config.dropout_epochs:
            set_share(self.task.model, min(1.0, epoch / self.config.dropout_epochs))

    def _update(self, works: Sequence[Any]) -> None:
        self.progress.step += 1
        torch.manual_seed(_update_seed(self.config.seed, self.progress.step, self.world.rank))
        rate = rate_at(self.config, self.progress.step, self._share_done())
        self.task.model.train()
        for objective, optimizer in zip(self.objectives, self.optimizers, strict=True):
            optimizer.zero_grad(set_to_none=True)
            count, totals = self._backward(objective, works)
            self.world.sum_gradients(objective.parameters)
            norm = _scale_and_clip(objective.parameters, count, self.config.max_grad_norm)
            loss = totals[objective.name] / max(count, 1.0)
            if not (math.isfinite(loss) and math.isfinite(norm)):
                raise NotFinite(self._not_finite(objective, works, loss, norm), self._how_to_go_on())
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            self.sums.add(count, totals)

    def _backward(self, objective: Objective, works: Sequence[Any]) -> tuple[float, dict[str, float]]:
        """Gradients of the summed loss; how much was counted and what it added up to, over all processes."""
        count, totals = 0.0, dict.fromkeys((objective.name, *objective.shown), 0.0)
        for work in works:
            batch = self.task.batch(work)
            if batch is None:
                continue
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.dtype == torch.bfloat16):
                loss = objective.loss(batch)
            loss.total.backward()
            count += loss.count
            totals[objective.name] += float(loss.total.detach())
            for name in objective.shown:
                totals[name] += loss.shown[name]
        count, *values = self.world.sum_numbers([count, *totals.values()])
        return count, dict(zip(totals, values, strict=True))

    def _after_update(self) -> None:
        step, config = self.progress.step, self.config
        last = self._is_over()
        if self.sums.count and (step % config.log_every == 0 or last):
            self._report()
        if step % config.validate_every == 0 or last:
            self._validate()
            last = self._is_over()
        if last and config.average > 1:
            self._save_state()
            self._average()
        self.progress.finished = last
        if step % config.checkpoint_every == 0 or last:
            self._save_state()

    def _report(self) -> None:
        count, seconds = max(self.sums.count, 1.0), max(self.sums.seconds, 1e-9)
        shown = {name: total / count for name, total in (self.sums.totals or {}).items()}
        shown["learning_rate"] = self.optimizers[0].param_groups[0]["lr"]
        shown[f"{self.task.unit}/s"] = count / seconds
        self.sums = Sums()
        if self.world.leads:
            done = self._share_done()
            left = self.progress.seconds * (1 - done) / max(done, 1e-9)
            self.reporter.step(self.progress.step, done, left, shown)
            self.directory.write_metrics(
                step=self.progress.step, epoch=self.progress.epoch, seconds=round(self.progress.seconds, 2), **shown
            )
            self.board.write(self.progress.step, shown, "train")

    def _validate(self) -> None:
        """Validates and keeps the weights if they are the best so far."""
        score = -math.inf
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
            self.reporter.validation(self.progress.step, validation, is_best)
            seconds = round(self.progress.seconds, 2)
            self.directory.write_metrics(step=self.progress.step, seconds=seconds, valid=dict(validation.metrics))
            self.board.write(self.progress.step, validation.metrics, "valid")
            if is_best:
                self._save_model()

    def _validated(self) -> Validation:
        self._require_numbers()
        self.task.model.eval()
        try:
            return self.task.validate()
        except Diverged as error:
            what = f"the model's scores are not numbers at step {self.progress.step}, in its validation"
            raise NotFinite(what, self._how_to_go_on()) from error

    def _save_model(self) -> None:
        self.directory.save_model(own_tensors(self.task.model))

    def _require_numbers(self) -> None:
        tensors = own_tensors(self.task.model)
        wrong = [name for name, tensor in tensors.items() if not torch.isfinite(tensor).all()]
        if wrong:
            what = f"the weights are no numbers any more at step {self.progress.step} ({wrong[0]}), though the loss is"
            raise NotFinite(what, self._how_to_go_on())

    def _average(self) -> None:
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

    def _save_state(self, stopped: bool = False) -> None:
        self.progress.optimizer = self.config.optimizer
        if self.world.leads:
            self._require_numbers()
            tensors: dict[str, Tensor] = {f"model.{name}": t for name, t in own_tensors(self.task.model).items()}
            for objective, optimizer in zip(self.objectives, self.optimizers, strict=True):
                for name, tensor in optimizer_tensors(optimizer, self.names):
                    tensors[f"optimizer.{objective.name}.{name}"] = tensor
            self.directory.save_state(tensors, self.progress, max(2, self.config.average), stopped)
        self.world.wait()

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

    def _not_finite(self, objective: Objective, works: Sequence[Any], loss: float, norm: float) -> str:
        what = f"loss became {loss}" if not math.isfinite(loss) else f"gradient became {norm}"
        where = f"at step {self.progress.step} ({objective.name}; batch: {self.task.describe(works[0])})"
        return f"the {what} {where}"

    def _how_to_go_on(self) -> str:
        gentler = (
            f"a lower rate (--resume --set train.learning_rate={self.config.learning_rate / 3:.2g}), more train.warmup_steps "
            "or a smaller train.max_grad_norm"
        )
        saved = self.directory.saved_steps()
        if not saved:
            return f"no checkpoint was saved yet, so begin again with {gentler}"
        again = "; if it diverges again, remove that one, and the one before it is gone on from" if saved[1:] else ""
        return (
            f"the checkpoint of step {saved[-1]} stays in {self.directory.states}; go on from it with {gentler}{again}"
        )


@torch.no_grad()
def _scale_and_clip(parameters: Sequence[nn.Parameter], count: float, clip: float | None) -> float:
    """Divides the gradients by what was counted, then limits their common norm. Gives the norm before clipping."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not gradients:
        return 0.0
    norm = float(torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))) / max(count, 1.0)
    scale = 1.0 / max(count, 1.0)
    if clip is not None and norm > clip:
        scale *= clip / norm
    torch._foreach_mul_(gradients, scale)
    return norm


def _update_seed(seed: int, step: int, rank: int) -> int:
    digest = hashlib.blake2b(f"{seed}/{step}/{rank}".encode(), digest_size=7)
    return int.from_bytes(digest.digest(), "big")


@contextmanager
def _stop_signals() -> Iterator[list[int]]:
    """Ctrl-C and a polite kill fill the list instead of breaking off in the middle of an update."""
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
