"""The benchmarks as pictures: speed beside the best peer, and the cost of a layer by sequence length.

    python -m benchmarks.picture

Reads what the other benchmarks wrote into benchmarks/results; what was not measured is left out. Writes benchmarks/results/speed.png
and docs/images/complexity.png. The table in docs/results/README.md is made of the same bars: run benchmarks.glance as well.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import report
from benchmarks.measure import RESULTS
from saccade.models.transformer import SIZES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

IMAGES = Path(__file__).parent.parent / "docs" / "images"
# The inks of saccade/views; the orange of its comparisons (Okabe and Ito), told apart from the blue with any colour vision.
DARK, BLUE, ORANGE = "#23217c", "#287acd", "#d55e00"
INK, QUIET, FRAME = "#1b2330", "#5c6675", "#d5dae1"
LINES = {"self-attention": DARK, "restricted": BLUE, "recurrent": QUIET, "convolution": ORANGE}
BLEU_LOST = 0.3  # at most, for speed to count


@dataclass(frozen=True)
class Bar:
    """`peer` is the fastest one measured in the same run. Without a `goal` the peer itself is the goal. `as_good`: in quality too."""

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
        raise SystemExit(f"{RESULTS} holds no measurement: run benchmarks.training or another benchmark first")
    draw_speed(bars)
    print(f"drew {len(bars)} bars into {RESULTS / 'speed.png'}")
    measured = (report.kept("attention") or {}).get("complexity")
    if measured:
        draw_complexity(measured)
        print(f"drew {IMAGES / 'complexity.png'}")


def training(name: str = "training") -> Iterator[Bar]:
    sizes = (report.kept(name) or {}).get("sizes", {})
    for size in SIZES:
        if size in sizes:
            yield _against_best_peer(f"training a Transformer, {size}", sizes[size])


def recurrent(name: str = "recurrent") -> Iterator[Bar]:
    measured = report.kept(name)
    if measured:
        yield _against_best_peer("training a recurrent model with attention", measured)


def decoding() -> Iterator[Bar]:
    measured = report.kept("decoding") or {}
    for batch, how in (("batch 32", "32 at a time"), ("batch 1", "one by one")):
        rows = measured.get(batch, {}).get("contenders", [])
        peer_bleu = next((row["BLEU"] for row in rows if row["contender"] == "Hugging Face"), 0.0)
        for row in rows:
            name = row["contender"]
            if name.startswith(report.OURS):
                engine = name.removeprefix(f"{report.OURS}, ").replace(report.OURS, "torch")
                goal = measured[batch]["goals"].get(name)
                label = f"translating {how}, {engine} (BLEU {row['BLEU']:.1f})"
                as_good = row["BLEU"] >= peer_bleu - BLEU_LOST
                yield Bar(label, row["faster than Hugging Face"], "Hugging Face", goal, as_good)


def vision(name: str = "vision") -> Iterator[Bar]:
    measured = report.kept(name) or {}
    for mode, label in (("train", "training a vision Transformer"), ("predict", "classifying images")):
        if mode in measured:
            yield _against_best_peer(label, measured[mode])


def quality() -> Iterator[Bar]:
    measured = report.kept("quality") or {}
    times = measured.get("times sooner at 34")
    if times:
        yield Bar("time to 34 BLEU on Multi30k, Muon", times, "Hugging Face, AdamW", measured["goal"])


def _against_best_peer(label: str, measured: dict[str, Any]) -> Bar:
    peers = [row for row in measured["contenders"] if not row["contender"].startswith(report.OURS)]
    best = min(peers, key=lambda row: row[f"{report.OURS} is faster"])
    return Bar(label, measured["against the best peer"], best["contender"], measured.get("goal"))


def draw_speed(bars: list[Bar]) -> None:
    figure, axes = _blank(9, 1.1 + 0.36 * len(bars))
    for row, bar in enumerate(bars):
        axes.barh(row, bar.times, height=0.62, color=BLUE if bar.is_reached else ORANGE)
        end = max(bar.times, bar.goal or 0.0)
        axes.text(end, row, f"  {bar.times:.2f} × {bar.peer}", va="center", fontsize=9, color=INK)
        if bar.goal is not None:
            axes.plot([bar.goal, bar.goal], [row - 0.42, row + 0.42], color=INK, linewidth=2)
    axes.axvline(1.0, color=INK, linewidth=0.8, linestyle=":")
    axes.set_yticks(range(len(bars)), [bar.label for bar in bars])
    axes.invert_yaxis()
    axes.margins(y=0.01)
    axes.set_xlim(0, 1.4 * max(max(bar.times, bar.goal or 0.0) for bar in bars))
    axes.set_xlabel("times faster than the best peer\n(dotted line: as fast; black marks: goals; orange: goal missed)")
    figure.savefig(RESULTS / "speed.png", dpi=130)


def draw_complexity(measured: dict[str, Any]) -> None:
    """Every layer's milliseconds over n, its name and its two exponents written at the end of its line."""
    figure, axes = _blank(8.5, 4.6)
    lengths = measured["n"]
    for name, seconds in measured["seconds"].items():
        layer, _, cost = name.rpartition(", ")
        colour = next((colour for start, colour in LINES.items() if layer.startswith(start)), BLUE)
        axes.loglog(lengths, [1e3 * value for value in seconds], marker="o", markersize=4, linewidth=1.8, color=colour)
        exponent, theory = measured["fitted exponent"][name], measured["theory"][name]
        label = f"{layer}, {cost}\nmeasured n$^{{{exponent:.2f}}}$, theory n$^{{{theory:.0f}}}$"
        above = 12 if layer.startswith("restricted") else -8 if layer.startswith("convolution") else 0
        end = (lengths[-1], 1e3 * seconds[-1])
        place = {"xytext": (9, above), "textcoords": "offset points", "va": "center", "annotation_clip": False}
        axes.annotate(label, end, fontsize=9, color=colour, **place)
    axes.set_xlabel("sequence length n")
    axes.set_ylabel("milliseconds, one layer, forward")
    axes.set_xticks(lengths, [f"{length:,}" for length in lengths])
    axes.set_yticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
    axes.minorticks_off()
    axes.grid(color=FRAME, linewidth=0.6)
    axes.set_axisbelow(True)
    figure.savefig(IMAGES / "complexity.png", dpi=130, bbox_inches="tight", pad_inches=0.15)


def _blank(width: float, height: float) -> "tuple[Figure, Axes]":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FRAME)
    axes.tick_params(color=FRAME, labelcolor=INK, labelsize=9)
    axes.xaxis.label.set_color(QUIET)
    axes.yaxis.label.set_color(QUIET)
    return figure, axes


if __name__ == "__main__":
    main()
