"""How good a run's forecasts are: every window of a held-out part, beside what needs no training at all."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade.data.series.timeline import read_timeline
from saccade.data.series.windows import Windows
from saccade.data.splits import SplitName
from saccade.errors import UserError
from saccade.metrics.forecasts import Errors, ForecastScores, Measured, coverage, seasonal
from saccade.models import ridge
from saccade.models.ridge import Ridge, SameDayRidge
from saccade.models.shapes import Shapes, WindowShape

if TYPE_CHECKING:
    from saccade.tasks.forecasting.options import ForecastOptions
    from saccade.tasks.forecasting.task import ForecastTask

Tell = Callable[[Tensor], NDArray[Any]]  # windows (B, L, V) to forecasts (B, H, K)


def evaluate(task: "ForecastTask", split: SplitName, options: "ForecastOptions") -> ForecastScores:
    from saccade.tasks.forecasting.attending import correlated_shares

    windows = task.windows if options.data is None else _other(task, options)
    told: dict[str, Tell] = {"this run": _teller(task)}
    told |= _yardsticks(task)
    measured = _measured(task, windows, split, told)
    own = measured.pop("this run")
    remarks = []
    if own.mse >= measured["no change"].mse:
        remarks.append("no better than no change: of these rows this run knows nothing that helps")
    return ForecastScores(
        variables=task.names,
        windows=len(windows.places(split)),
        model=own,
        yardsticks=measured,
        same_day=windows.same_day,
        coverage=_coverage(task, windows, split),
        remarks=remarks,
        attention=correlated_shares(task, split),
    )


def errors(task: "ForecastTask", windows: Windows, split: SplitName) -> Measured:
    """Of the run alone."""
    return _measured(task, windows, split, {"this run": _teller(task)})["this run"]


def parts(windows: Windows, split: SplitName) -> Iterator[tuple[Tensor, Tensor]]:
    """Every window of a split, some at a time."""
    from saccade.tasks.forecasting.task import AT_A_TIME

    places = windows.places(split)
    for start in range(0, len(places), AT_A_TIME):
        yield windows.examples(places[start : start + AT_A_TIME])


def fit_ridge(model: Ridge | SameDayRidge, windows: Windows) -> float:
    return model.fit(parts(windows, "train"), list(parts(windows, "valid")))


def _measured(task: "ForecastTask", windows: Windows, split: SplitName, told: dict[str, Tell]) -> dict[str, Measured]:
    sums = {name: Errors(windows.deviation[task.targets]) for name in told}
    for values, after in parts(windows, split):
        truth = after[:, :, task.targets].numpy()
        for name, tell in told.items():
            sums[name].add(tell(values), truth)
    return {name: one.measured() for name, one in sums.items()}


def _teller(task: "ForecastTask") -> Tell:
    middle = task.quantiles.index(0.5) if task.quantiles else 0
    task.model.eval()

    @torch.no_grad()
    def tell(values: Tensor) -> NDArray[Any]:
        batch = task.batch_of(values, values[:, :1])
        told: NDArray[Any] = task.told(batch.values)[..., middle].cpu().numpy()
        return told

    return tell


def _yardsticks(task: "ForecastTask") -> dict[str, Tell]:
    """No change, the last season, and a ridge, where they are not the run itself."""
    windows, targets = task.windows, task.targets
    told: dict[str, Tell] = {"no change": lambda values: _no_change(task, values.numpy())}
    season = task.recipe.data.season
    if season is not None and season <= windows.look_back:
        told[f"the last {season} rows again"] = lambda values: seasonal(values.numpy(), windows.steps, season)[
            :, :, targets
        ]
    if not isinstance(task.model, Ridge | SameDayRidge):
        shape = WindowShape(
            len(windows.timeline.variables), windows.look_back, windows.steps, same_day=windows.same_day
        )
        linear = ridge.build(ridge.Config(penalty=None), Shapes(window=shape))
        fit_ridge(linear, windows)
        told["a ridge"] = lambda values: linear(values)[..., 0][:, :, targets].numpy()
    return told


def _no_change(task: "ForecastTask", values: NDArray[Any]) -> NDArray[Any]:
    """Returns of nothing; or the last levels that are known: of the same day, the day before's, and the mean where none is read."""
    windows = task.windows
    if task.recipe.data.change == "returns":
        last = np.broadcast_to(-windows.mean / windows.deviation, (len(values), 1, values.shape[2]))
    elif not windows.same_day:
        last = values[:, -1:]
    else:
        last = values[:, -2:-1] if windows.look_back > 1 else np.zeros_like(values)
    repeated: NDArray[Any] = np.repeat(last[:, :, task.targets], windows.steps, 1)
    return repeated


@torch.no_grad()
def _coverage(task: "ForecastTask", windows: Windows, split: SplitName) -> dict[str, float]:
    if len(task.quantiles) < 2:
        return {}
    inside = known = 0
    for values, after in parts(windows, split):
        told = task.told(task.batch_of(values, after).values).cpu().numpy()
        counts = coverage(told[..., 0], told[..., -1], after[:, :, task.targets].numpy())
        inside, known = inside + counts[0], known + counts[1]
    name = f"{100 * task.quantiles[0]:g} to {100 * task.quantiles[-1]:g} %"
    return {name: 100 * inside / max(known, 1)}


def _other(task: "ForecastTask", options: "ForecastOptions") -> Windows:
    """All windows of another table, scaled as the run's own."""
    assert options.data is not None
    own, data = task.windows, task.recipe.data
    timeline = read_timeline(options.data, lambda sentence: None, data.date, data.day_first)
    timeline = timeline.chosen(own.timeline.variables, str(options.data)).changed(data.change)
    before = own.look_back - 1 if own.same_day else own.look_back
    if len(timeline) < before + own.steps:
        raise UserError(
            f"{options.data} has {len(timeline):,} rows, and a window of this run takes {before + own.steps:,}"
        )
    return Windows(timeline, own.mean, own.deviation, (0, 0, len(timeline)), own.look_back, own.steps, own.same_day)
