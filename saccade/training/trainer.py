"""What a task is fitted with: `task.fit(trainer)`, which for most is `trainer.loop(task)`."""

import shlex
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import nn

from saccade.attention.routes import has_compiled_kernels
from saccade.tasks.task import AnyTrained
from saccade.training.checkpoint import Progress, RunDirectory
from saccade.training.config import TrainConfig
from saccade.training.loop import Training
from saccade.training.reporter import Reporter
from saccade.training.schedule import warmup_steps
from saccade.training.weights import own_tensors
from saccade.training.world import World


class Trainer:
    """Fits the task of one run. `resume` continues from its newest state; `names_commands` says how to train a finished one further."""

    def __init__(
        self,
        config: TrainConfig,
        run: RunDirectory,
        reporter: Reporter,
        world: World,
        resume: bool = False,
        names_commands: bool = True,
    ):
        self.config = config
        self.run = run
        self.reporter = reporter
        self.world = world
        self.progress = Progress()
        self.has_looped = False
        self._resumes = resume
        self._names_commands = names_commands

    @property
    def directory(self) -> Path:
        """The run directory: a task that is fitted without the loop keeps there what it learned."""
        return self.run.path

    @property
    def leads(self) -> bool:
        """Whether this process writes files; of several, one does."""
        return self.world.leads

    def say(self, sentence: str) -> None:
        self.reporter.say(sentence)

    def keep(self, model: nn.Module) -> None:
        """Writes the weights of a model that was fitted without the loop."""
        if self.leads:
            self.run.save_model(own_tensors(model))

    def loop(self, task: AnyTrained) -> None:
        training = Training(task, self.config, self.run, self.reporter, self.world)
        self.has_looped = True
        if self._resumes:
            if training.resume():
                self.say(f"resuming from step {training.progress.step} of {self.directory}")
            else:
                self.say("no state was saved; starting from step 0")
        self.progress = training.progress
        for sentence in other_bits(training.progress.conditions, training.conditions):
            self.say(sentence)
        self._announce(task, training)
        training.run()
        for sentence in too_short(training.progress, self.config):
            self.say(sentence)
        self.say(
            f"done: step {self.progress.step}, best at step {self.progress.best_step}; the run is {self.directory}"
        )

    def _announce(self, task: AnyTrained, training: Training) -> None:
        if training.progress.finished:
            further = f"; to train further: {self.further()}" if self._names_commands else ""
            self.say(f"this run is finished{further}")
            return
        count = sum(parameter.numel() for parameter in task.model.parameters())
        dtype = str(training.updates.dtype).removeprefix("torch.")
        threads = torch.get_num_threads()
        where = f"{threads} thread{'s' if threads > 1 else ''} on {training.updates.device}"
        if training.updates.device.type == "cpu":
            where += f" with{'' if has_compiled_kernels() else 'out'} compiled kernels"
        self.say(f"{count:,} parameters, {dtype}, {where}")

    def further(self) -> str:
        """The command that removes the limit which ended the training."""
        config, progress = self.config, self.progress
        changes = []
        if progress.step >= config.steps:
            changes.append(f"steps={2 * config.steps}")
        if config.minutes is not None and progress.seconds >= 60 * config.minutes:
            changes.append(f"minutes={2 * config.minutes:g}")
        if config.patience is not None and progress.validations_since_best >= config.patience:
            changes.append("patience=null")
        path = shlex.quote(str(self.directory))
        return " ".join([f"saccade train {path} --resume", *(f"--set train.{change}" for change in changes)])


def other_bits(before: Mapping[str, str] | None, now: Mapping[str, str]) -> list[str]:
    """What a resumed training computes by otherwise than when it began: then it is no longer the same bit for bit."""
    changed = [
        f"{name} {before[name]} then and {now[name]} now"
        for name in now
        if before and before.get(name, now[name]) != now[name]
    ]
    if not changed:
        return []
    return [
        f"this run began under other conditions ({', '.join(changed)}): its weights will differ in their last digits from those of an "
        "uninterrupted training"
    ]


def too_short(progress: Progress, config: TrainConfig) -> list[str]:
    """What the training had too few steps for. A budget of minutes shortens the ramps instead."""
    sentences = []
    warmup = warmup_steps(config, progress.step, share_done=1.0)
    if 0 < progress.step < 2 * warmup:
        rose = "was still rising at the end" if progress.step <= warmup else "rose for most of the training"
        sentences.append(
            f"the learning rate {rose}: train.warmup_steps is {config.warmup_steps:,} of {progress.step:,} steps; "
            "lower it, or train for longer"
        )
    if config.minutes is None and progress.epoch < config.dropout_epochs:
        sentences.append(
            f"dropout was still rising at the end: {progress.epoch:,} of the {config.dropout_epochs:,} epochs of "
            "train.dropout_epochs are over; lower it, or train for longer"
        )
    return sentences
