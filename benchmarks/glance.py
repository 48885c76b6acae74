"""The table at the top of docs/results/README.md, made from the files in benchmarks/results.

    python -m benchmarks.glance

Speed comes from the bars that benchmarks.picture draws, so table and picture show the same numbers; quality comes from
evaluations.json. Everything between the two markers of the page is replaced; a test compares the page with a fresh table.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from benchmarks import picture, report
from benchmarks.picture import Bar

PAGE = Path(__file__).parent.parent / "docs" / "results" / "README.md"
BEGIN, END = "<!-- python -m benchmarks.glance writes from here -->\n", "<!-- to here -->\n"
HEADER = ("system", "data or setting", "Saccade", "for comparison", "details")
LANES = {"Intel(R) Xeon(R) Processor": "AVX-512", "AMD EPYC": "AVX2"}
LONG = 1024  # words from which attention should be ATTENTION_GOAL times faster than the formula
ATTENTION_GOAL = 3.0
LOCAL_GOAL, LOCAL_MEMORY_GOAL = 5.0, 3.0
MATMUL_GOAL = 60.0  # per cent of the machine's fp32 matrix product


@dataclass(frozen=True)
class Row:
    system: str
    setting: str
    ours: str
    beside: str
    details: str


def main() -> None:
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"wrote the table of {PAGE}")


def with_table(page: str) -> str:
    """The page with a fresh table between its markers."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"{PAGE} needs the two lines {BEGIN.strip()} and {END.strip()}")
    return f"{before}{begin}{table()}{end}{after}"


def table() -> str:
    """In Markdown, without padding: a changed figure changes one line."""
    lines = [HEADER, ("---",) * len(HEADER), *(astuple(row) for row in rows())]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def rows() -> list[Row]:
    parts: Sequence[Callable[[], Iterator[Row]]] = (
        evaluations, training, recurrent, vision, time_to_quality, decoding, startup, attention, local_attention
    )  # fmt: skip
    return [row for part in parts for row in part()]


def evaluations() -> Iterator[Row]:
    for row in (report.kept("evaluations") or {}).get("rows", []):
        yield Row(row["system"], row["data"], row["ours"], row["beside"], f"[quality](quality.md#{row['section']})")


def training() -> Iterator[Row]:
    for name in ("training", "training-avx2"):
        measured = report.kept(name)
        if measured:
            bars, sizes = list(picture.training(name)), measured["sizes"]
            system = f"Training a Transformer, {' / '.join(sizes)}"
            yield Row(system, _lanes(measured), _times(bars), _peers(bars), "[training](speed.md#training)")
            yield _memory(measured)
            if name == "training":  # the other machine's own limit moved too much while it was measured
                yield _share_of_matmul(measured)


def _share_of_matmul(measured: dict[str, Any]) -> Row:
    contenders = measured["sizes"]["base"]["contenders"]
    shares = {row["contender"]: row["% of the matmul limit"] for row in contenders}
    ours = shares.pop(report.OURS)
    share = f"{ours:.0f} %" if ours >= MATMUL_GOAL else f"**{ours:.0f} %**"
    beside = f"best peer {max(shares.values()):.0f} %; goal {MATMUL_GOAL:.0f} %"
    return Row(
        "… base, share of the fp32 matmul limit", _lanes(measured), share, beside, "[training](speed.md#training)"
    )


def _memory(measured: dict[str, Any]) -> Row:
    ratios = []
    for size in measured["sizes"].values():
        peaks = {row["contender"]: row["peak MB"] for row in size["contenders"]}
        ratios.append(peaks.pop(report.OURS) / min(peaks.values()))
    ours = f"{min(ratios):.2f} to {max(ratios):.2f} ×"
    beside = "best peer in the same run; goal: at most 1 ×"
    return Row("… peak memory", _lanes(measured), ours, beside, "[training](speed.md#training)")


def recurrent() -> Iterator[Row]:
    for name in ("recurrent", "recurrent-avx2"):
        bars = list(picture.recurrent(name))
        if bars:
            lanes = _lanes(report.kept(name) or {})
            system, details = "Training a recurrent model with attention", "[training](speed.md#recurrent-models)"
            yield Row(system, lanes, _times(bars), _peers(bars), details)


def vision() -> Iterator[Row]:
    for name in ("vision", "vision-avx2"):
        bars = list(picture.vision(name))
        if bars:
            lanes = _lanes(report.kept(name) or {})
            system, details = "Vision Transformer, training / predicting", "[training](speed.md#vision-transformer)"
            yield Row(system, lanes, _times(bars), _peers(bars), details)


def time_to_quality() -> Iterator[Row]:
    bars = list(picture.quality())
    if bars:
        setting = f"Multi30k English to German, {_lanes(report.kept('quality') or {})}"
        ours = _times(bars).replace("faster", "sooner")
        yield Row("Time to 34 BLEU, Muon", setting, ours, _peers(bars), "[time to quality](speed.md#time-to-quality)")


def decoding() -> Iterator[Row]:
    measured, bars = report.kept("decoding") or {}, list(picture.decoding())
    for engine in ("torch", "CTranslate2 fp32", "CTranslate2 int8"):
        both = [bar for bar in bars if f", {engine} (" in bar.label]
        if both:
            system = f"Translating by {engine}, 32 at a time / one by one"
            setting = f"beam {measured['beam']}, {_lanes(measured)}"
            yield Row(system, setting, _times(both), _peers(both), "[decoding](speed.md#decoding)")


def startup() -> Iterator[Row]:
    measured = report.kept("startup")
    if measured:
        seconds = measured["commands"][0]["seconds"]
        ours = f"{seconds:.2f} s" if seconds < measured["goal"] else f"**{seconds:.2f} s**"
        goal = f"goal: under {measured['goal']:.0f} s"
        system, details = "`saccade predict`, start to first translation", "[start-up](speed.md#start-up)"
        yield Row(system, _lanes(measured), ours, goal, details)


def attention() -> Iterator[Row]:
    details = "[attention](speed.md#attention-beside-torchnn-and-the-plain-formula)"
    peer = f"plain formula; goal {ATTENTION_GOAL:.0f}"
    measured = report.kept("attention") or {}
    if "mechanism" in measured:
        lanes = LANES[measured["machines"]["mechanism"]["processor"]]
        rows = [row for row in measured["mechanism"] if row["keys"] == "all"]
        yield Row("softmax(QKᵀ)V, heads of 32 / 64", f"{LONG:,} words and more, {lanes}", _least(rows), peer, details)
    for name in ("attention", "attention-avx2"):
        measured = report.kept(name) or {}
        if "lengths" in measured:
            lanes = LANES[measured["machines"]["lengths"]["processor"]]
            setting = f"{LONG:,} words and more, {lanes}"
            yield Row("Attention layer, heads of 32 / 64", setting, _least(measured["lengths"]), peer, details)


def _least(rows: Sequence[dict[str, Any]]) -> str:
    """The least gain over long sequences, with gradients and forward alone, for both sizes of heads."""
    gains = []
    for mode in ("forward+backward", "forward"):
        least = [
            min(
                row["plain / ours"]
                for row in rows
                if row["length"] >= LONG and row["mode"] == mode and row["features a head"] == features
            )
            for features in (32, 64)
        ]
        gains.append(" / ".join(_goal(gain, ATTENTION_GOAL, digits=1) for gain in least))
    return f"at least {gains[0]} × with gradients, {gains[1]} × forward"


def local_attention() -> Iterator[Row]:
    measured = report.kept("local2d")
    if measured:
        ratio = measured["results"][0]["ratio"]
        faster = _goal(ratio["forward_backward_seconds"], LOCAL_GOAL, digits=1)
        ours = f"{faster} × faster, {_goal(ratio['peak_bytes'], LOCAL_MEMORY_GOAL, digits=0)} × less memory"
        beside = f"`unfold`; goals {LOCAL_GOAL:.0f} and {LOCAL_MEMORY_GOAL:.0f}"
        details = "[local attention](speed.md#local-2-d-self-attention-beside-unfold)"
        yield Row("Local 2-D attention, 7 × 7", f"8 heads, {_lanes(measured)}", ours, beside, details)


def _times(bars: Sequence[Bar]) -> str:
    shown = [f"{bar.times:.2f}" if bar.is_reached else f"**{bar.times:.2f}**" for bar in bars]
    return f"{' / '.join(shown)} × faster"


def _peers(bars: Sequence[Bar]) -> str:
    peers = " / ".join(dict.fromkeys(bar.peer for bar in bars))
    goals = [f"{bar.goal:g}" for bar in bars if bar.goal is not None]
    return f"{peers}; goal {' / '.join(goals)}" if goals else peers


def _goal(value: float, goal: float, digits: int) -> str:
    return f"{value:.{digits}f}" if value >= goal else f"**{value:.{digits}f}**"


def _lanes(measured: dict[str, Any]) -> str:
    """The vector instructions of the machine: what the figures depend on most."""
    processor = measured["machine"]["processor"]
    return LANES.get(processor, processor)


if __name__ == "__main__":
    main()
