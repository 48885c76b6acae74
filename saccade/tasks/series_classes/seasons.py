"""What a model attends to over the season: on clouds, and by class.

The attention that is scored is the one that the class is read from (`pooling.attention`), the mean of its heads.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from saccade.attention import record_attention
from saccade.data.series.clouds import CLOUDED, is_index
from saccade.data.series.splits import Numbers
from saccade.data.series.table import SeriesTable
from saccade.errors import UserError
from saccade.metrics.clouds import CloudScores, mass_and_chance
from saccade.models.shapes import Shapes
from saccade.tasks.task import build_model

if TYPE_CHECKING:
    from saccade.tasks.series_classes.task import SeriesClassTask

POOLING = "pooling.attention"
_AT_A_TIME = 256
_SCORED = 4000  # series at most


def pools_by_attention(model: nn.Module) -> bool:
    return any(name == POOLING for name, _ in model.named_modules())


def cloud_scores(task: "SeriesClassTask", table: SeriesTable, numbers: Numbers) -> CloudScores | None:
    """None where nothing says what is clouded, or the model has no attention that its class is read from."""
    if table.clouds is None or not pools_by_attention(task.model):
        return None
    part = table.chosen(numbers[:_SCORED])
    is_clouded = np.asarray(part.clouds) >= CLOUDED
    if not is_clouded.any():
        return None
    dates = np.unique(part.days, return_inverse=True)[1]
    if len(part) < 4 * (int(dates.max()) + 1) and part.has_dates:  # dates of their own: by the week
        dates = (part.days // 7 - part.days.min() // 7).astype(np.int64)
    untrained = build_model(task.recipe, Shapes(classes=len(task.classes), series=task.series.shape), task.device)
    mass, chance = mass_and_chance(attention_over(task, task.model, part), is_clouded, dates, len(part))
    before = mass_and_chance(attention_over(task, untrained, part), is_clouded, dates, len(part))
    return CloudScores(mass, float(is_clouded.mean()), chance, before[0] / before[1] if before[1] else float("nan"))


@torch.no_grad()
def attention_over(task: "SeriesClassTask", model: nn.Module, table: SeriesTable) -> NDArray[np.float64]:
    """The pooling attention on every observation of the table, (T,)."""
    model.eval()
    parts = []
    for numbers in _parts(len(table)):
        batch = task.series.batch(numbers, table).to(task.device)
        with record_attention(model, POOLING) as recorded:
            model(batch)
        mean = recorded.joined(POOLING).mean(1)[:, 0]  # (B, H, 1, N) -> (B, N)
        lengths = torch.from_numpy(table.lengths[numbers]).to(mean.device)
        there = torch.arange(mean.shape[1], device=mean.device) < lengths[:, None]
        parts.append(mean[there].double().cpu().numpy())
    return np.concatenate(parts)


def draw_seasons(task: "SeriesClassTask", table: SeriesTable, numbers: Numbers, truths: Any, path: Path) -> None:
    """The mean attention of each class over the season, with the mean of two of its bands on clear dates."""
    from saccade.views.seasons import Season, draw

    if not pools_by_attention(task.model):
        raise UserError("--seasons draws the attention that classes are read from, and this model has none: train ltae")
    part = table.chosen(numbers)
    attention = attention_over(task, task.model, part)
    days = task.series.calendar.numbers(part.days, part.starts)
    series = np.repeat(np.arange(len(part)), part.lengths)
    edges = np.array(_edges(days))
    place = np.clip(np.searchsorted(edges, days, side="right") - 1, 0, len(edges) - 2)
    is_clear = np.ones(len(days), bool) if part.clouds is None else np.asarray(part.clouds) < CLOUDED
    seasons = []
    for number, name in enumerate(task.classes):
        own = truths[series] == number
        count = int((truths == number).sum())
        if not count:
            continue
        mass = np.bincount(place[own], attention[own], len(edges) - 1) / count
        bands = {}
        for column, band in _shown(table.bands):
            values = part.values[own, column]
            known = np.isfinite(values) & is_clear[own]
            total = np.bincount(place[own][known], values[known], len(edges) - 1)
            seen = np.bincount(place[own][known], minlength=len(edges) - 1)
            bands[band] = np.where(seen > 0, total / np.maximum(seen, 1), np.nan)
        seasons.append(Season(name, count, mass, bands))
    middles = (edges[:-1] + edges[1:]) / 2
    draw(seasons, middles, table.has_dates, path)


def _shown(bands: Sequence[str]) -> list[tuple[int, str]]:
    """Two bands, indices first."""
    numbered = list(enumerate(bands))
    return [*(one for one in numbered if is_index(one[1])), *(one for one in numbered if not is_index(one[1]))][:2]


def _edges(days: NDArray[np.float64]) -> NDArray[np.float64]:
    """Between the dates where there are few, else every eight days."""
    known = np.unique(days)
    if len(known) <= 80:
        between = (known[:-1] + known[1:]) / 2
        return np.concatenate([[known[0] - 0.5], between, [known[-1] + 0.5]])
    return np.arange(known[0], known[-1] + 9, 8.0)


def _parts(count: int) -> Iterator[Numbers]:
    for start in range(0, count, _AT_A_TIME):
        yield np.arange(start, min(start + _AT_A_TIME, count))
