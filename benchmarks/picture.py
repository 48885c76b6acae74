"""The results against peers as one picture: how many times faster ours is than the best peer, with the goals marked.

    python -m benchmarks.picture

Reads what the other benchmarks wrote into benchmarks/results; what was not measured is left out. Writes speed.png and speed.svg there.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks import report
from benchmarks.measure import RESULTS
from saccade.models.transformer import SIZES

REACHED, MISSED, MARK = "#2a7f62", "#b0793a", "#333333"
BLEU_LOST = 0.3  # at most, for speed to count


@dataclass(frozen=True)
class Bar:
    """`peer` is whom it is measured against; `goal` is None where none was set: then the peer itself is. `as_good`: in quality too."""

    label: str
    times: float
    peer: str
    goal: float | None
    as_good: bool = True

    @property
    def is_reached(self) -> bool:
        return self.as_good and self.times >= (self.goal or 1.0)


def main() -> None:
    bars = [*training(), *recurrent(), *decoding(), *vision(), *quality()]
    if not bars:
        raise SystemExit(f"there is nothing to draw in {RESULTS}: run benchmarks.training or another one first")
    draw(bars)
    print(f"drew {len(bars)} bars into {RESULTS / 'speed.png'} and speed.svg")


def training() -> Iterator[Bar]:
    sizes = (report.kept("training") or {}).get("sizes", {})
    for size in SIZES:
        if size in sizes:
            found = sizes[size]
            yield _bar(f"training a Transformer, {size}", found, found["contenders"])


def recurrent() -> Iterator[Bar]:
    found = report.kept("recurrent")
    if found:
        yield _bar("training a recurrent model with attention", found, found["contenders"])


def decoding() -> Iterator[Bar]:
    found = report.kept("decoding") or {}
    for batch, how in (("batch 32", "32 at a time"), ("batch 1", "one by one")):
        rows = found.get(batch, {}).get("contenders", [])
        theirs = next((row["BLEU"] for row in rows if row["contender"] == "Hugging Face"), 0.0)
        for row in rows:
            name = row["contender"]
            if name.startswith(report.OURS):
                engine = name.removeprefix(f"{report.OURS}, ").replace(report.OURS, "torch")
                goal = found[batch]["goals"].get(name)
                label = f"translating {how}, {engine} (BLEU {row['BLEU']:.1f})"
                as_good = row["BLEU"] >= theirs - BLEU_LOST
                yield Bar(label, row["faster than Hugging Face"], "Hugging Face", goal, as_good)


def vision() -> Iterator[Bar]:
    found = report.kept("vision") or {}
    for mode, label in (("train", "training a vision Transformer"), ("predict", "classifying images")):
        if mode in found:
            yield _bar(label, found[mode], found[mode]["contenders"])


def quality() -> Iterator[Bar]:
    found = report.kept("quality") or {}
    if found.get("times sooner at 34"):
        yield Bar(
            "time to 34 BLEU on Multi30k, Muon", found["times sooner at 34"], "Hugging Face, AdamW", found["goal"]
        )


def _bar(label: str, found: dict[str, Any], rows: list[dict[str, Any]]) -> Bar:
    peers = [row for row in rows if not row["contender"].startswith(report.OURS)]
    best = min(peers, key=lambda row: row[f"{report.OURS} is faster"])
    return Bar(label, found["against the best peer"], best["contender"], found.get("goal"))


def draw(bars: list[Bar]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1.2 + 0.42 * len(bars)), layout="constrained")
    axes = figure.add_subplot()
    for place, bar in enumerate(bars):
        axes.barh(place, bar.times, height=0.6, color=REACHED if bar.is_reached else MISSED)
        axes.text(max(bar.times, bar.goal or 0.0), place, f"  {bar.times:.2f} × {bar.peer}", va="center", fontsize=9)
        if bar.goal is not None:
            axes.plot([bar.goal, bar.goal], [place - 0.42, place + 0.42], color=MARK, linewidth=2)
    axes.axvline(1.0, color=MARK, linewidth=0.8, linestyle=":")
    axes.set_yticks(range(len(bars)), [bar.label for bar in bars])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.4 * max(max(bar.times, bar.goal or 0.0) for bar in bars))
    axes.set_xlabel("times faster than the best peer\n(dotted: as fast; black marks: goals; brown: not reached)")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for ending in ("png", "svg"):
        figure.savefig(RESULTS / f"speed.{ending}", dpi=130)


if __name__ == "__main__":
    main()
