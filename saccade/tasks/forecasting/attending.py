"""What the attention between variables says, and whether the data agree: is the most attended variable the most correlated one?

Axis legend: N windows, H heads, V variables, K targets.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade.attention import record_attention
from saccade.data.splits import SplitName
from saccade.views.axes import Axis, Dates, Variables

if TYPE_CHECKING:
    from saccade.tasks.forecasting.task import ForecastTask

_WINDOWS = 128  # from which the mean attention is taken


def correlated_shares(task: "ForecastTask", split: SplitName) -> dict[str, float]:
    """The share of targets whose most attended other variable is the most correlated one in the training part, percent."""
    alone = len(task.windows.timeline.variables) < 2
    mean = None if alone else between_variables(task, split)
    if mean is None:
        return {}
    correlation = np.abs(correlations(task))
    rows = np.arange(len(task.targets))
    for table in (mean, correlation):
        table[rows, task.targets] = -1.0  # a variable is no witness of itself
    agree = mean.argmax(1) == correlation.argmax(1)
    return {"most attended is most correlated": 100 * float(agree.mean())}


def between_variables(task: "ForecastTask", split: SplitName) -> NDArray[Any] | None:
    """The mean attention (K, V) of each target over layers, heads and windows; None where no attention looks at variables."""
    names = [name for name, axes in axes_of(task).items() if all(isinstance(axis, Variables) for axis in axes)]
    places = task.windows.places(split)
    if not names or not len(places):
        return None
    chosen = np.unique(np.linspace(places[0], places[-1], min(_WINDOWS, len(places))).astype(int))
    values, after = task.windows.examples(chosen)
    weights = record(task, values, after)
    layers = [rows_of_targets(task, weights[name]).mean((0, 1)) for name in names]
    mean: NDArray[Any] = np.mean(layers, 0)
    return mean


def correlations(task: "ForecastTask") -> NDArray[Any]:
    """Of each target with every variable (K, V), over the training part."""
    train = task.windows.filled[: task.windows.borders[0]]
    table: NDArray[Any] = np.nan_to_num(np.corrcoef(train.T))[task.targets]
    return table


def axes_of(task: "ForecastTask", labels: tuple[str, ...] | None = None) -> dict[str, tuple[Axis, Axis]]:
    """What stands along both sides of every attention of the model."""
    from saccade.attention import Attend

    windows = task.windows
    labels = tuple(map(str, range(windows.look_back))) if labels is None else labels
    axes: dict[str, Axis] = {"dates": Dates(labels), "variables": Variables(windows.timeline.variables)}
    names = [name for name, module in task.model.named_modules() if isinstance(module, Attend)]
    return {name: task.model.attention_axes(name, axes) for name in names}  # type: ignore[operator]


@torch.no_grad()
def record(task: "ForecastTask", values: Tensor, after: Tensor) -> dict[str, NDArray[Any]]:
    """The weights of every attention while these windows are read: (N or N·K or N·V, H, queries, keys)."""
    task.model.eval()
    with record_attention(task.model) as recorded:
        task.told(task.batch_of(values, after).values)
    return {name: recorded.joined(name).cpu().numpy() for name in recorded}


def rows_of_targets(task: "ForecastTask", weights: NDArray[Any]) -> NDArray[Any]:
    """Of attention between variables the rows of the targets, each from the pass in which it was hidden: (N, H, K, V)."""
    if not task.windows.same_day:
        return weights[:, :, task.targets]
    copies = weights.reshape(-1, len(task.targets), *weights.shape[1:])  # (N, K, H, V, V)
    return np.stack([copies[:, number, :, target] for number, target in enumerate(task.targets)], 2)
