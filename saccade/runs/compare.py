"""`saccade compare`: recipes with some settings varied, each combination trained alike, in one table and one plot.

Every combination is a run of its own below the output directory. Interrupted, the comparison is resumed.
Where the seed is varied, the table shows the mean over seeds and half their range.
"""

import itertools
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from statistics import fmean
from typing import Any

from saccade.config import recipe as configs
from saccade.config.recipe import Recipe
from saccade.errors import ConfigError, UserError
from saccade.files import write_text
from saccade.runs.opening import task_class
from saccade.runs.run import Run
from saccade.runs.train import train
from saccade.training.checkpoint import RunDirectory
from saccade.training.loop import NotFinite
from saccade.training.reporter import Reporter
from saccade.views import comparison
from saccade.views.comparison import Mark

SEED = "train.seed"
COSTS = ("parameters", "minutes")  # that a score can be plotted against


@dataclass(frozen=True)
class Row:
    settings: dict[str, str]
    costs: dict[str, float]  # parameters, speed, minutes, ...
    scores: dict[str, float]  # the task's own, the most important one first
    on_the_way: list[dict[str, float]] = field(default_factory=list)  # costs so far and scores of each validation

    def way(self, cost: str, score: str) -> list[tuple[float, float]]:
        """Cost and score of each validation; empty for a cost that training does not add to."""
        score = score.removesuffix(" %").lower()  # as validations name it
        return [
            (validation[cost], validation[score])
            for validation in self.on_the_way
            if cost in validation and score in validation
        ]


def compare(
    recipes: Sequence[str], vary: Sequence[str], changes: Sequence[str], out: Path, against: str | None = None
) -> list[Row]:
    """Trains and evaluates every combination of the recipes and the varied settings; rows in the order given.

    `against` is the cost that scores will be plotted against: like everything else, it is checked before the first training.
    """
    several = {"recipe": list(recipes)} if len(recipes) > 1 else {}
    wanted = _places(out, combinations(vary, several))
    _require_nothing_twice(vary, changes)
    plans: dict[Path, tuple[str, list[str]]] = {}
    for path, settings in wanted.items():
        varied = [f"{place}={value}" for place, value in settings.items() if place != "recipe"]
        plans[path] = settings.get("recipe", recipes[0]), varied
    loaded = {path: configs.load(recipe, changes, varied=varied) for path, (recipe, varied) in plans.items()}
    _require_one_task(list(loaded.values()), against)
    for path, recipe in loaded.items():
        _check_is_the_same(recipe, path)
    rows = []
    for number, (path, settings) in enumerate(wanted.items(), 1):
        result = path / "result.json"
        row = _read(result)
        if row is None:
            name, varied = plans[path]
            exists = RunDirectory(path).config.exists()
            Reporter(quiet=os.environ.get("RANK", "0") != "0").say(f"run {number} of {len(wanted)}: {path.name}")
            try:
                train(
                    name,
                    [] if exists else [*changes, *varied],
                    path,
                    exists,
                    how_to_resume="the same `saccade compare` again",
                )
            except NotFinite as error:
                if int(os.environ.get("WORLD_SIZE", "1")) > 1:
                    raise  # the other processes wait for this one
                Reporter().say(f"{path.name} has no figures, training continues with the others: {error.what}")
                row = Row(settings, {}, {})
            else:
                row = _measure(settings, path)
                write_text(result, json.dumps(asdict(row)))
        rows.append(row)
    if not any(row.scores for row in rows):
        raise UserError(
            "every training diverged: compare with a lower rate (--set train.learning_rate=...) and another --out"
        )
    return rows


def _read(path: Path) -> Row | None:
    """What was measured of a run before; None if nothing was, or less than is measured now."""
    if not path.exists():
        return None
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return Row(**values) if values.keys() == {column.name for column in fields(Row)} else None
    except (ValueError, AttributeError, TypeError, RecursionError):  # damaged: then it is measured again
        return None


def _places(out: Path, several: Sequence[dict[str, str]]) -> dict[Path, dict[str, str]]:
    """A directory for each combination."""
    places: dict[Path, dict[str, str]] = {}
    for settings in several:
        path = out / re.sub(r"[^\w.,=-]+", "_", _spelled(settings))
        if path in places:
            if places[path] == settings:
                raise ConfigError(f"{_spelled(settings)} is given twice: give it once")
            raise ConfigError(
                f"{_spelled(places[path])} and {_spelled(settings)} would both be the run {path}: rename one of them"
            )
        places[path] = settings
    return places


def _spelled(settings: dict[str, str]) -> str:
    return ",".join(f"{place}={value}" for place, value in settings.items())


def _require_one_task(recipes: Sequence[Recipe], against: str | None) -> None:
    tasks = list(dict.fromkeys(recipe.task for recipe in recipes))
    if len(tasks) > 1:
        raise ConfigError(
            f"the tasks {' and '.join(tasks)} are judged by different scores: compare recipes of one task"
        )
    costs = (*COSTS, *task_class(recipes[0]).costs_named)
    if against is not None and against not in costs:
        raise ConfigError(f"--against {against!r} is not a cost of the task {tasks[0]}: choose {', '.join(costs)}")


def _require_nothing_twice(vary: Sequence[str], changes: Sequence[str]) -> None:
    """A setting is either varied or the same for all."""
    varied = {choice.partition("=")[0] for choice in vary}
    for change in changes:
        place = change.partition("=")[0]
        if place in varied:
            raise ConfigError(
                f"{place} is both varied (--vary) and set for all (--set {change}): leave one of them out"
            )


def _check_is_the_same(recipe: Recipe, path: Path) -> None:
    """A run that is there already must be of this very recipe: results of another one are never shown for it."""
    config = RunDirectory(path).config
    if not config.exists():
        return
    other = next(_differences(recipe.to_dict(), configs.load(config, check_files=False).to_dict()), None)
    if other is not None:
        raise ConfigError(
            f"{path} holds a run with other settings ({other}): choose another place with --out, or delete it"
        )


def _differences(wanted: Any, present: Any, place: str = "") -> Iterator[str]:
    """Where two recipes differ, but for what was left open (auto) and has been chosen from the data since."""
    if isinstance(wanted, dict) and isinstance(present, dict):
        for name in {**wanted, **present}:
            yield from _differences(wanted.get(name), present.get(name), f"{place}.{name}" if place else name)
    elif wanted not in ("auto", present):
        yield f"{place} {present}, wanted {wanted}"


def combinations(vary: Sequence[str], fixed: dict[str, list[str]] | None = None) -> list[dict[str, str]]:
    """["model.score=dot,additive", "train.seed=1,2"] → four settings; `fixed` choices come first."""
    choices = dict(fixed or {})
    for choice in vary:
        place, equals, values = choice.partition("=")
        several = _outside_brackets(values)
        if not equals or not place or not all(several):
            raise ConfigError(
                f"--vary {choice!r} must be PLACE=VALUE,VALUE,..., for example --vary model.attention=none,additive"
            )
        if place in choices:
            raise ConfigError(f"--vary {place} is given twice: give all values at once, --vary {place}=VALUE,VALUE")
        choices[place] = several
    if not choices:
        raise ConfigError(
            "there is nothing to compare: give several recipes, or --vary PLACE=VALUE,VALUE such as --vary model.attention=none,additive"
        )
    return [dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values())]


def _outside_brackets(values: str) -> list[str]:
    """ "1,[2,3]" → "1", "[2,3]"."""
    return re.split(r",(?![^\[\]]*\])", values)


def _measure(settings: dict[str, str], path: Path) -> Row:
    run = Run(path)
    unit = run.task.unit
    metrics = path / "metrics.jsonl"  # a task that was fitted without the loop has none
    lines = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()] if metrics.exists() else []
    speeds = sorted(line[f"{unit}/s"] for line in lines if f"{unit}/s" in line)
    losses = [line["loss"] for line in lines if "loss" in line]
    costs: dict[str, float] = {}
    if lines:
        costs["parameters"] = float(sum(parameter.numel() for parameter in run.model.parameters()))
    if speeds:
        costs[f"{unit}/s"] = speeds[len(speeds) // 2]
    if losses:
        costs["loss"] = losses[-1]
    own = run.task.costs()
    costs |= own.prediction
    per_step = dict(own.update)
    on_the_way = list(validations(lines, per_step))
    grown = {name: on_the_way[-1][name] for name in ("minutes", *per_step)} if on_the_way else {}
    return Row(settings, costs | grown, run.evaluate("test").compared(), on_the_way)


def validations(lines: Sequence[dict[str, Any]], per_step: dict[str, float]) -> Iterator[dict[str, float]]:
    """What each validation found, with the minutes and `per_step` costs until then; not that of averaged weights, which cost nothing."""
    minutes = 0.0
    for line in lines:
        minutes = line.get("seconds", 60 * minutes) / 60
        if "valid" in line and "averaged" not in line:
            spent = {name: cost * line["step"] for name, cost in per_step.items()}
            yield {"minutes": minutes, **spent, **line["valid"]}


def columns(rows: Sequence[Row]) -> list[tuple[str, list[str]]]:
    """The table: a heading and a cell per row for each column, the seeds of a setting in one row."""
    groups = _by_setting(rows)
    places = [place for place in rows[0].settings if place != SEED]
    table = [(place, [group[0].settings[place] for group in groups]) for place in places]
    if SEED in rows[0].settings:
        table.append(("seeds", [str(sum(bool(row.scores) for row in group)) for group in groups]))
    for kind in ("costs", "scores"):
        headings = dict.fromkeys(name for row in rows for name in getattr(row, kind))
        for heading in headings:
            table.append((heading, [_cell([getattr(row, kind).get(heading) for row in group]) for group in groups]))
    return table


def save_table(rows: Sequence[Row], path: Path) -> None:
    """The same, tab-separated."""
    table = columns(rows)
    lines = [[heading for heading, _ in table], *zip(*(cells for _, cells in table), strict=True)]
    write_text(path, "".join("\t".join(line) + "\n" for line in lines))


def _by_setting(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows that differ in their seed only, together."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(v for place, v in row.settings.items() if place != SEED), []).append(row)
    return list(groups.values())


def _cell(values: Sequence[float | None]) -> str:
    """The mean, and half the range where there are several that differ."""
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    mean, spread = fmean(known), (max(known) - min(known)) / 2
    digits = 0 if mean >= 1000 else 1 if mean >= 10 else 2 if mean >= 1 else 3
    return f"{mean:,.{digits}f}" + (f" ± {spread:,.{digits}f}" if spread and len(known) > 1 else "")


def plot(rows: Sequence[Row], path: Path, against: str | None = None) -> None:
    """The first score of each setting: as bars, or against a cost."""
    rows = [row for row in rows if row.scores]
    score = next(iter(rows[0].scores))
    marks = []
    for group in _by_setting(rows):
        name = ", ".join(value for place, value in group[0].settings.items() if place != SEED) or "the recipe"
        cost = fmean(row.costs[against] for row in group) if against else 0.0
        ways = [row.way(against, score) for row in group] if against else []
        marks.append(Mark(name, [row.scores[score] for row in group], cost, [way for way in ways if way]))
    compared = ", ".join(place for place in rows[0].settings if place != SEED)
    if against:
        comparison.against(marks, path, score, against, compared)
    else:
        comparison.bars(marks, path, score, compared)
