"""Forecasting: a window of a table over time in, the rows after it out; or, of the same day, what one column is from the others.

    loss = Σ (y − ŷ)²                    the mean                    y standardised by the training part
    loss = Σ_q max(q (y − ŷ_q), (q − 1)(y − ŷ_q))     quantiles (Koenker 1978)

Values that are missing are not judged. With `data.same_day` each target is told in a pass of its own in which its last value is hidden:
that is nowcasting, and never mixed with forecasts of later rows.

Axis legend: B batch, L look-back, H horizon, V variables, K targets, Q outputs of a step.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, field_validator
from torch import Tensor

from saccade.config.recipe import Config as BaseConfig
from saccade.config.recipe import Recipe
from saccade.data.images.splits import batches
from saccade.data.series import windows as window_data
from saccade.data.series.dates import iso
from saccade.data.series.timeline import Timeline
from saccade.data.series.windows import TimelineConfig, Windows, fill_forward
from saccade.data.splits import SplitName
from saccade.errors import ConfigError, UserError
from saccade.metrics.forecasts import ForecastScores
from saccade.models.ridge import Ridge, SameDayRidge
from saccade.models.shapes import Shapes, WindowShape
from saccade.tasks.forecasting import evaluating
from saccade.tasks.forecasting.input import Excerpt, Table
from saccade.tasks.forecasting.options import ForecastOptions
from saccade.tasks.held_out import HeldOut
from saccade.tasks.task import Example, Loss, Say, Step, Trained, Trainer, Validation, build_model, device, trainable
from saccade.views.view import View

AT_A_TIME = 256  # windows judged in one go


class ObjectiveConfig(BaseConfig):
    quantiles: tuple[float, ...] = Field(
        (), description="forecast these quantiles, such as [0.1, 0.5, 0.9], not the mean"
    )

    @field_validator("quantiles")
    @classmethod
    def _are_shares_in_order(cls, quantiles: tuple[float, ...]) -> tuple[float, ...]:
        if list(quantiles) != sorted(set(quantiles)) or not all(0 < share < 1 for share in quantiles):
            raise ValueError("quantiles must rise and lie between 0 and 1, such as [0.1, 0.5, 0.9]")
        if quantiles and 0.5 not in quantiles:
            raise ValueError("quantiles must hold 0.5, the median, which is the forecast that is judged")
        return quantiles


class Config(BaseConfig):
    model_kind: ClassVar[str] = "forecast"

    data: TimelineConfig
    objective: ObjectiveConfig


@dataclass(frozen=True)
class Forecast:
    """Rows that are to come: a value for each target, and the ends of an interval where quantiles are forecast."""

    source: str
    labels: tuple[str, ...]  # (H,)
    variables: tuple[str, ...]  # (K,)
    values: tuple[tuple[float, ...], ...]  # (H, K)
    low: tuple[tuple[float, ...], ...] | None = None
    high: tuple[tuple[float, ...], ...] | None = None

    def lines(self) -> list[str]:
        """A table, tab-separated, under a line of names."""
        names = list(self.variables)
        if self.low is not None:
            names = [title for name in self.variables for title in (name, f"{name} low", f"{name} high")]
        return ["\t".join(["date", *names]), *("\t".join([label, *row]) for label, row in self._rows())]

    def _rows(self) -> Iterator[tuple[str, list[str]]]:
        for place, label in enumerate(self.labels):
            parts = [self.values[place]]
            if self.low is not None and self.high is not None:
                parts += [self.low[place], self.high[place]]
            yield label, [f"{number:.6g}" for numbers in zip(*parts, strict=True) for number in numbers]

    def to_dict(self) -> dict[str, Any]:
        def by_name(rows: tuple[tuple[float, ...], ...]) -> dict[str, list[float]]:
            return {name: [row[place] for row in rows] for place, name in enumerate(self.variables)}

        values: dict[str, Any] = {"source": self.source, "dates": list(self.labels), "forecast": by_name(self.values)}
        if self.low is not None and self.high is not None:
            values |= {"low": by_name(self.low), "high": by_name(self.high)}
        return values


@dataclass(frozen=True)
class WindowBatch:
    values: Tensor  # (B, L, V), or (B·K, L, V) where each target is hidden in a copy of its own
    truth: Tensor  # (B, H, K), NaN where it is unknown


class ForecastTask(Trained[Excerpt, ForecastOptions]):
    unit = "values"

    def __init__(self, recipe: Recipe, windows: Windows):
        self.recipe = recipe
        self.windows = windows
        self.device = device()
        variables = windows.timeline.variables
        self.targets = [variables.index(name) for name in recipe.data.targets or variables]
        self.quantiles: tuple[float, ...] = recipe.objective.quantiles
        shape = WindowShape(
            len(variables), windows.look_back, windows.steps, len(self.quantiles) or 1, windows.same_day
        )
        self._require_it_can_tell()
        try:
            self.model = build_model(recipe, Shapes(window=shape), self.device)
        except ValueError as error:
            raise ConfigError(str(error)) from None

    def _require_it_can_tell(self) -> None:
        config = self.recipe.model
        if self.windows.same_day and not config.mixes_variables:
            raise ConfigError(
                f"model {self.recipe.model_name} reads each variable alone and cannot tell one from the others of the same "
                "day: choose itransformer or ridge, or leave data.same_day out"
            )
        if self.quantiles and not config.tells_quantiles:
            raise ConfigError(
                f"model {self.recipe.model_name} forecasts the mean: leave objective.quantiles out, or choose another model"
            )

    @classmethod
    def prepare(cls, recipe: Recipe, directory: Path, say: Say) -> "ForecastTask":
        return cls(recipe, window_data.prepare(recipe.data, directory, say))

    @classmethod
    def reopen(cls, recipe: Recipe, directory: Path) -> "ForecastTask":
        return cls(recipe, window_data.reopen(recipe.data, directory))

    @classmethod
    def options(cls, recipe: Recipe) -> type[ForecastOptions]:
        return ForecastOptions

    @property
    def input(self) -> Table:
        return Table(self.recipe.data.date, self.recipe.data.day_first, self.recipe.data.change)

    @property
    def attends(self) -> bool:
        from saccade.attention import Attend

        return any(isinstance(module, Attend) for module in self.model.modules())

    @property
    def names(self) -> tuple[str, ...]:
        """Of the targets."""
        return tuple(self.windows.timeline.variables[place] for place in self.targets)

    # Training

    def fit(self, trainer: Trainer) -> None:
        if not isinstance(self.model, Ridge | SameDayRidge):
            trainer.loop(self)
            return
        penalty = evaluating.fit_ridge(self.model, self.windows)
        trainer.say(f"solved at once, with the penalty {penalty:g}")
        trainer.keep(self.model)

    def steps(self) -> list[Step]:
        return [Step("loss", trainable([self.model]), self._loss)]

    def epoch(self, number: int, rank: int, world: int) -> Sequence[NDArray[Any]]:
        places = self.windows.places("train")
        parts = batches(len(places), self.recipe.data.batch_size, self.recipe.train.seed, number, (rank, world))
        return [part + places.start for part in parts]

    def batch(self, work: NDArray[Any]) -> WindowBatch | None:
        return self.batch_of(*self.windows.examples(work)) if len(work) else None

    def batch_of(self, values: Tensor, after: Tensor) -> WindowBatch:
        values, truth = values.to(self.device), after[:, :, self.targets].to(self.device)
        return WindowBatch(self.hidden(values) if self.windows.same_day else values, truth)

    def hidden(self, values: Tensor) -> Tensor:
        """A copy of each window for each target, whose last value stands at its mean: (B, L, V) -> (B·K, L, V)."""
        copies = values[:, None].repeat(1, len(self.targets), 1, 1)
        for number, target in enumerate(self.targets):
            copies[:, number, -1, target] = 0.0
        return copies.flatten(0, 1)

    def describe(self, work: NDArray[Any]) -> str:
        first = self.windows.timeline.labels(slice(int(work[0]), int(work[0]) + 1))[0] if len(work) else "none"
        return f"{len(work)} windows, the first before {first}"

    def _loss(self, batch: WindowBatch) -> Loss:
        told = self.told(batch.values)  # (B, H, K, Q)
        known = batch.truth.isfinite()
        error = torch.where(known, batch.truth, 0.0)[..., None] - told
        if self.quantiles:
            shares = torch.tensor(self.quantiles, device=error.device)
            each = torch.maximum(shares * error, (shares - 1) * error).sum(-1)
        else:
            each = error.square().squeeze(-1)
        return Loss(torch.where(known, each, 0.0).sum(), int(known.sum()))

    def told(self, values: Tensor) -> Tensor:
        """What the model says of the targets (B, H, K, Q)."""
        forecast: Tensor = self.model(values).float()  # (B, H, V, Q)
        if not self.windows.same_day:
            return forecast[:, :, self.targets]
        copies = forecast.view(-1, len(self.targets), *forecast.shape[1:])  # (B, K, H, V, Q)
        own = [copies[:, number, :, target] for number, target in enumerate(self.targets)]
        return torch.stack(own, 2)

    # Judging

    def validate(self) -> Validation:
        scores = evaluating.errors(self, self.windows, "valid")
        return Validation({"mse": scores.mse, "mae": scores.mae}, -scores.mse)

    def evaluate(self, split: SplitName, options: ForecastOptions) -> ForecastScores:
        return evaluating.evaluate(self, split, options)

    def held_out(self, split: SplitName) -> Sequence[Example[Excerpt]]:
        places, windows = self.windows.places(split), self.windows

        def example(number: int) -> Example[Excerpt]:
            first = places[number]
            rows = slice(first + int(windows.same_day) - windows.look_back, first + int(windows.same_day))
            part = Timeline(
                windows.timeline.variables,
                windows.timeline.days[rows],
                np.array(windows.timeline.values[rows]),
                windows.timeline.has_dates,
            )
            after = np.array(windows.timeline.values[first : first + windows.steps])
            label = windows.timeline.labels(slice(first, first + 1))[0]
            return Example(
                Excerpt(part, windows.filled[rows], after), f"{split}:{number}", f"what came from {label} on"
            )

        return HeldOut(len(places), example)

    # Forecasting

    @torch.no_grad()
    def answers(self, examples: Sequence[Example[Excerpt]], options: ForecastOptions) -> Iterator[Forecast]:
        self.model.eval()
        for example in examples:
            part, values = self.readable(example)
            told = self.told(self.batch_of(values, values[:, :1]).values)[0].cpu().numpy()  # (H, K, Q)
            middle = self.quantiles.index(0.5) if self.quantiles else 0
            rows = [self._rows(told[..., place]) for place in range(told.shape[-1])]
            ends = {"low": rows[0], "high": rows[-1]} if len(self.quantiles) > 1 else {}
            yield Forecast(example.name, self.later(part), self.names, rows[middle], **ends)

    def readable(self, example: Example[Excerpt]) -> tuple[Timeline, Tensor]:
        """The rows that are read, in the run's own units and variables, and what the model gets of them (1, L, V): gaps hold the last value
        that is known, also from before these rows."""
        excerpt, need = example.content, self.windows.look_back
        if excerpt.read is not None:
            return excerpt.timeline, torch.from_numpy(np.array(excerpt.read))[None]
        origin = example.name or "the table"
        timeline = excerpt.timeline.chosen(self.windows.timeline.variables, origin).changed(self.recipe.data.change)
        if len(timeline) < need:
            given, lost = len(excerpt.timeline), len(excerpt.timeline) - len(timeline)
            raise UserError(f"{origin} has {given:,} rows, and this run reads {need + lost:,}: give more")
        scaled = ((timeline.values - self.windows.mean) / self.windows.deviation).astype(np.float32)
        rows = slice(len(timeline) - need, len(timeline))
        part = Timeline(timeline.variables, timeline.days[rows], timeline.values[rows], timeline.has_dates)
        return part, torch.from_numpy(fill_forward(scaled)[rows].copy())[None]

    def later(self, part: Timeline) -> tuple[str, ...]:
        """The dates that are told: where rows are evenly spaced, else how many rows later. A calendar is never made up."""
        if self.windows.same_day:
            return part.labels(slice(-1, None))
        apart = np.diff(part.days)
        if part.has_dates and len(apart) and np.allclose(apart, apart[0], atol=1e-4):
            return tuple(iso(part.days[-1] + apart[0] * step) for step in range(1, self.windows.steps + 1))
        return tuple(f"+{step}" for step in range(1, self.windows.steps + 1))

    def _rows(self, scaled: NDArray[Any]) -> tuple[tuple[float, ...], ...]:
        """(H, K) in the units of the table."""
        columns = [self.windows.original(scaled[:, number], place) for number, place in enumerate(self.targets)]
        return tuple(tuple(float(value) for value in row) for row in np.stack(columns, 1))

    def look(self, example: Example[Excerpt], options: ForecastOptions) -> View:
        from saccade.tasks.forecasting.look import look

        return look(self, example, options)


TASK = ForecastTask
