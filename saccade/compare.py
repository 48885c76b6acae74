"""`saccade compare`: the same recipe with some settings varied, each combination trained alike, in one table and one plot.

Every combination is a run of its own below the output directory. Interrupted, the comparison goes on where it was.
"""

import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from saccade import config as configs
from saccade.config import Recipe
from saccade.errors import ConfigError
from saccade.files import replacing, write_text
from saccade.run import Run
from saccade.training.checkpoint import RunDirectory
from saccade.training.start import train


@dataclass(frozen=True)
class Row:
    settings: dict[str, str]
    parameters: int
    tokens_per_second: float
    minutes: float
    valid_perplexity: float
    bleu: float
    chrf: float
    exact: float
    alignment_error_rate: float | None

    @property
    def label(self) -> str:
        return ", ".join(self.settings.values())


def compare(recipe: str, vary: Sequence[str], changes: Sequence[str], out: Path) -> list[Row]:
    """Trains and evaluates every combination of the varied settings; rows in the order given."""
    wanted = {_directory(out, settings): settings for settings in combinations(vary)}
    own = {
        path: [*changes, *(f"{place}={value}" for place, value in settings.items())]
        for path, settings in wanted.items()
    }
    for path in wanted:  # all are checked before the first is trained
        _check_is_the_same(configs.load(recipe, own[path]), path)
    rows = []
    for path, settings in wanted.items():
        result = path / "result.json"
        if not result.exists():
            exists = RunDirectory(path).config.exists()
            train(recipe, [] if exists else own[path], path, resume=exists)
            write_text(result, json.dumps(asdict(_measure(settings, path))))
        rows.append(Row(**json.loads(result.read_text(encoding="utf-8"))))
    return rows


def _directory(out: Path, settings: dict[str, str]) -> Path:
    return out / re.sub(r"[^\w.,=-]+", "_", ",".join(f"{place}={value}" for place, value in settings.items()))


def _check_is_the_same(recipe: Recipe, path: Path) -> None:
    """A run that is there already must be of this very recipe: results of another one are never shown for it."""
    config = RunDirectory(path).config
    if config.exists() and not _fits(recipe.to_dict(), configs.load(config, check_files=False).to_dict()):
        raise ConfigError(f"{path} holds a run with other settings: choose another place with --out, or delete it")


def _fits(wanted: Any, found: Any) -> bool:
    """Equal, but for what was left open (auto) and has been chosen from the data since."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return wanted.keys() == found.keys() and all(_fits(wanted[name], found[name]) for name in wanted)
    return wanted in ("auto", found)


def combinations(vary: Sequence[str]) -> list[dict[str, str]]:
    """["model.score=dot,additive", "train.seed=1,2"] → four settings."""
    places, choices = [], []
    for each in vary:
        place, equals, values = each.partition("=")
        if not equals or not place or not all(values.split(",")):
            raise ConfigError(
                f"--vary {each!r} must be PLACE=VALUE,VALUE,..., for example --vary model.attention=none,additive"
            )
        places.append(place)
        choices.append(values.split(","))
    return [dict(zip(places, values, strict=True)) for values in itertools.product(*choices)]


def _measure(settings: dict[str, str], path: Path) -> Row:
    run = Run(path)
    scores = run.evaluate("test")
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    speeds = sorted(line["tokens/s"] for line in lines if "tokens/s" in line)
    return Row(
        settings=settings,
        parameters=sum(parameter.numel() for parameter in run.task.model.parameters()),
        tokens_per_second=speeds[len(speeds) // 2],
        minutes=max(line["seconds"] for line in lines if "seconds" in line) / 60,
        valid_perplexity=min(line["valid"]["perplexity"] for line in lines if "valid" in line),
        bleu=scores.bleu,
        chrf=scores.chrf,
        exact=scores.exact,
        alignment_error_rate=scores.alignment_error_rate,
    )


def columns(rows: Sequence[Row]) -> list[tuple[str, list[str]]]:
    """The table: a heading and a cell per row for each column."""
    table: list[tuple[str, list[str]]] = [(place, [row.settings[place] for row in rows]) for place in rows[0].settings]
    shown: list[tuple[str, str, str]] = [
        ("parameters", "parameters", ",.0f"),
        ("tokens/s", "tokens_per_second", ",.0f"),
        ("minutes", "minutes", ".1f"),
        ("valid perplexity", "valid_perplexity", ".2f"),
        ("BLEU", "bleu", ".1f"),
        ("exact %", "exact", ".1f"),
        ("AER", "alignment_error_rate", ".2f"),
    ]
    for heading, name, style in shown:
        values: list[Any] = [getattr(row, name) for row in rows]
        if any(value is not None for value in values):
            table.append((heading, ["–" if value is None else format(value, style) for value in values]))
    return table


def plot(rows: Sequence[Row], path: Path) -> None:
    """BLEU of each combination as bars."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 1.2 + 0.38 * len(rows)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    bars = axes.barh([row.label for row in rows], [row.bleu for row in rows], color="#3b6ea8")
    axes.bar_label(bars, fmt="%.1f", padding=3)
    axes.invert_yaxis()
    axes.set_xlabel("BLEU on the test set")
    axes.set_ylabel(", ".join(rows[0].settings))
    axes.margins(x=0.1)
    axes.spines[["top", "right"]].set_visible(False)
    with replacing(path) as aside:
        figure.savefig(aside, format="png", dpi=150)
