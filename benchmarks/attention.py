"""Attention beside torch's own: time and peak memory by length, score and route; the lectures' complexity table, measured.

    python -m benchmarks.attention            everything (make bench); about twenty-five minutes
    python -m benchmarks.attention lengths    one part: lengths, mechanism, additive, complexity, routes
    python -m benchmarks.attention lengths --name attention-avx2      results kept apart from those of another processor

Every ratio comes from one interleaved run. Results go to benchmarks/results/attention.json, the picture to docs/images/complexity.png.
"""

import argparse
import itertools
import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.measure import RESULTS, interleaved, machine, peak_memory, table, write_json
from benchmarks.picture import draw_complexity
from saccade.attention import CAUSAL, Attend, Band, MultiHead, Route, ScaledDot, all_scores

SIZE = 128
HEADS = (4, 2)  # of 32 features as in our tiny and small Transformers and vision Transformers, of 64 as in the paper's
LENGTHS = [64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384]
TOKENS = 8192  # per batch, so that short lengths are measured in batches, as they are used


class Plain(nn.Module):
    """softmax(Q Kᵀ / √d) V as one would write it down."""

    def __init__(self, layer: MultiHead):
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        layer = self.layer
        query, key, value = (layer._split(project(x)) for project in (layer.query, layer.key, layer.value))
        weights = torch.softmax(query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5, dim=-1)
        return layer.output((weights @ value).transpose(1, 2).flatten(2))


class Ours(nn.Module):
    def __init__(self, layer: Attend, **how: Any):
        super().__init__()
        self.layer = layer
        self.how = how

    def forward(self, x: Tensor) -> Tensor:
        arguments = (x,) if isinstance(self.layer, MultiHead) else (x, x)
        return self.layer(*arguments, **self.how).context


class Torchs(nn.Module):
    def __init__(self, layer: nn.MultiheadAttention):
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x, x, x, need_weights=False)[0]


def layers(heads: int) -> dict[str, nn.Module]:
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(SIZE, heads, batch_first=True)
    ours = MultiHead.from_torch(theirs)
    return {"ours": Ours(ours), "torch.nn": Torchs(theirs), "plain": Plain(ours)}


def forward(layer: nn.Module, x: Tensor) -> None:
    layer.eval()
    with torch.no_grad():
        layer(x)


def forward_backward(layer: nn.Module, x: Tensor) -> None:
    layer.train()
    layer(x).sum().backward()


MODES: dict[str, Callable[[nn.Module, Tensor], None]] = {"forward": forward, "forward+backward": forward_backward}


def batch(length: int, size: int = SIZE) -> Tensor:
    torch.manual_seed(1)
    return torch.randn(max(1, TOKENS // length), length, size, requires_grad=True)


def lengths() -> list[dict[str, Any]]:
    """Ours beside torch's layer and the plain formula, at every length."""
    rows = []
    for heads, length, mode in itertools.product(HEADS, LENGTHS, MODES):
        x, run = batch(length), MODES[mode]
        contenders = layers(heads)
        seconds = interleaved(
            {name: partial(run, layer, x) for name, layer in contenders.items()}, repeats=repeats(length)
        )
        memory = {name: peak_memory("benchmarks.attention:once", name, mode, heads, length) for name in contenders}
        best = min(seconds["torch.nn"], seconds["plain"])
        rows.append(
            {
                "features a head": SIZE // heads,
                "length": length,
                "mode": mode,
                **{f"{name} ms": 1e3 * value for name, value in seconds.items()},
                **{f"{name} MB": value / 1e6 for name, value in memory.items()},
                "ours / best": seconds["ours"] / best,
                "plain / ours": seconds["plain"] / seconds["ours"],
            }
        )
        print(rows[-1], file=sys.stderr)
    return rows


def once(name: str, mode: str, heads: str, length: str) -> Callable[[], None]:
    """One call, to be measured in a process of its own."""
    return partial(MODES[mode], layers(int(heads))[name], batch(int(length)))


def mechanism() -> list[dict[str, Any]]:
    """Without projections: score, softmax and sum beside softmax(Q Kᵀ / √d) V, over the whole sequence and causal."""
    rows = []
    bands = {"all": None, "causal": CAUSAL}
    for heads, length, keys, mode in itertools.product(HEADS, (1024, 2048, 4096, 8192), bands, MODES):
        torch.manual_seed(1)
        features, band = SIZE // heads, bands[keys]
        x = torch.randn(max(1, TOKENS // length), heads, length, features, requires_grad=True)
        mask = None if band is None else band.visible(length, length)
        contenders = {"ours": Ours(Attend(ScaledDot(features)), band=band), "plain": Formula(mask)}
        seconds = interleaved(
            {name: partial(MODES[mode], layer, x) for name, layer in contenders.items()}, repeats=repeats(length)
        )
        times = {f"{name} ms": 1e3 * value for name, value in seconds.items()}
        what = {"features a head": features, "length": length, "keys": keys, "mode": mode}
        rows.append({**what, **times, "plain / ours": seconds["plain"] / seconds["ours"]})
        print(rows[-1], file=sys.stderr)
    return rows


class Formula(nn.Module):
    """softmax(Q Kᵀ / √d) V with Q = K = V, as one would write it down."""

    def __init__(self, visible: Tensor | None):
        super().__init__()
        self.visible = visible

    def forward(self, x: Tensor) -> Tensor:
        scores = x @ x.transpose(-2, -1) * x.shape[-1] ** -0.5
        if self.visible is not None:
            scores = scores.masked_fill(~self.visible, -torch.inf)
        return torch.softmax(scores, dim=-1) @ x


def routes() -> list[dict[str, Any]]:
    """Every score by every route that it can take, D = 64, one head; sliding windows of 129 keys apart."""
    rows = []
    for length in (64, 256, 1024, 4096, 16384):
        for name in all_scores():
            for window in (0, 64):
                if length > 2 * window:
                    rows += route_rows(length, name, window)
    return rows


def route_rows(length: int, name: str, window: int) -> list[dict[str, Any]]:
    """A row per mode: milliseconds of each route, of the one that is chosen, and peak memory with the gradient."""
    rows = []
    x = route_input(length)
    variants = [route for route in (*Route, None) if is_measured(length, name, window, route)]
    for mode, run in MODES.items():
        timed = {_called(route): partial(run, route_layer(length, name, window, route), x) for route in variants}
        seconds = interleaved(timed, repeats=7 if length <= 1024 else 3 if length <= 4096 else 1)
        row: dict[str, Any] = {
            "score": name,
            "length": length,
            "window": 2 * window + 1 if window else "",
            "mode": mode,
        }
        row |= {f"{route} ms": 1e3 * value for route, value in seconds.items()}
        if mode == "forward+backward" and length >= 1024 and not window:
            for route in variants:
                arguments = (length, name, window, "" if route is None else route.value)
                row[f"{_called(route)} MB"] = peak_memory("benchmarks.attention:route_once", *arguments) / 1e6
        rows.append(row)
        print(row, file=sys.stderr)
    return rows


def is_measured(length: int, name: str, window: int, route: Route | None) -> bool:
    """Whether the route can compute this score, in memory (a hidden layer at full length is 17 GB at 8192) and in reasonable time."""
    hidden_layer = name in ("additive", "perceptron")
    if hidden_layer and not window and (length > 4096 or (route is Route.EXPLICIT and length > 2048)):
        return False
    if hidden_layer and window and route in (Route.EXPLICIT, Route.CHUNKED) and length > 1024:
        return False
    x = route_input(length)
    try:
        # Two words tell whether a route fits, but for the one that takes few keys; that refuses more before it computes.
        forward(route_layer(length, name, window, route), x if route is Route.SHORT else x[:, :2])
    except ValueError:
        return False
    return True


def route_layer(length: int, name: str, window: int, route: Route | None) -> nn.Module:
    torch.manual_seed(0)
    options = {"longest": length} if name == "location" else {}
    attend = Attend(all_scores()[name](64, **options), route=route)
    return Ours(attend, band=Band(window, window) if window else None)


def route_input(length: int) -> Tensor:
    torch.manual_seed(1)
    return torch.randn(max(1, 4096 // length), length, 64, requires_grad=True)


def route_once(length: str, name: str, window: str, route: str) -> Callable[[], None]:
    layer = route_layer(int(length), name, int(window), Route(route) if route else None)
    return partial(forward_backward, layer, route_input(int(length)))


def _called(route: Route | None) -> str:
    return "chosen" if route is None else route.value


def additive() -> dict[str, Any]:
    """The additive score at Q = K = 1024, D = 256, in chunks with recomputation, beside the whole formula at once."""
    names = ("chunked", "explicit")
    x = additive_input()
    seconds = interleaved({name: partial(forward_backward, additive_layer(name), x) for name in names}, repeats=7)
    memory = {name: peak_memory("benchmarks.attention:additive_once", name) for name in names}
    return {
        **{f"{name} ms": 1e3 * value for name, value in seconds.items()},
        **{f"{name} MB": value / 1e6 for name, value in memory.items()},
        "times less memory": memory["explicit"] / memory["chunked"],
        "times faster": seconds["explicit"] / seconds["chunked"],
    }


def additive_layer(route: str) -> nn.Module:
    torch.manual_seed(0)
    return Ours(Attend(all_scores()["additive"](256), route=route))


def additive_input() -> Tensor:
    torch.manual_seed(1)
    return torch.randn(1, 1024, 256, requires_grad=True)


def additive_once(route: str) -> Callable[[], None]:
    return partial(forward_backward, additive_layer(route), additive_input())


def complexity() -> dict[str, Any]:
    """Time of one layer over n, with the exponent of n fitted to the longer half, beside the theory."""
    size, reach, kernel = 64, 32, 3
    torch.manual_seed(0)
    convolution = nn.Conv1d(size, size, kernel, padding=kernel // 2)
    recurrent = nn.GRU(size, size, batch_first=True)
    attend = Attend(ScaledDot(size))
    window = Band(reach, reach)
    kinds: dict[str, tuple[Callable[[Tensor], object], float]] = {
        "self-attention, n²d": (lambda x: attend(x, x), 2.0),
        "recurrent, nd²": (lambda x: recurrent(x), 1.0),
        f"convolution (k = {kernel}), knd²": (lambda x: convolution(x.transpose(1, 2)), 1.0),
        f"restricted self-attention (r = {2 * reach + 1}), rnd": (lambda x: attend(x, x, band=window), 1.0),
    }
    ns = [256, 512, 1024, 2048, 4096, 8192, 16384, 32768]
    times: dict[str, list[float]] = {name: [] for name in kinds}
    for n in ns:
        x = torch.randn(1, n, size)
        with torch.no_grad():
            seconds = interleaved({name: partial(kind, x) for name, (kind, _) in kinds.items()}, repeats=repeats(n))
        for name, value in seconds.items():
            times[name].append(value)
    half = len(ns) // 2
    fitted = {name: float(np.polyfit(np.log(ns[half:]), np.log(values[half:]), 1)[0]) for name, values in times.items()}
    theory = {name: exponent for name, (_, exponent) in kinds.items()}
    measured = {"n": ns, "seconds": times, "fitted exponent": fitted, "theory": theory}
    draw_complexity(measured)
    return measured


def repeats(length: int) -> int:
    return 15 if length <= 1024 else 9 if length <= 4096 else 5


def show(results: dict[str, Any]) -> None:
    for part in ("lengths", "mechanism", "additive", "routes"):
        if part in results:
            print(as_table(results[part] if isinstance(results[part], list) else [results[part]]), end="\n\n")
    if "complexity" in results:
        fitted, theory = results["complexity"]["fitted exponent"], results["complexity"]["theory"]
        print(
            table(
                ("layer", "measured exponent", "theory"),
                [(name, f"{fitted[name]:.2f}", theory[name]) for name in fitted],
            )
        )


def as_table(rows: list[dict[str, Any]]) -> str:
    header = list(dict.fromkeys(name for row in rows for name in row))
    cells = [
        [f"{row[name]:.2f}" if isinstance(row.get(name), float) else row.get(name, "") for name in header]
        for row in rows
    ]
    return table(header, cells)


PARTS: dict[str, Callable[[], Any]] = {
    "lengths": lengths,
    "mechanism": mechanism,
    "additive": additive,
    "complexity": complexity,
    "routes": routes,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all of them unless given")
    parser.add_argument("--name", default="attention", help="of the file in benchmarks/results, without .json")
    options = parser.parse_args()
    parts = options.parts
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        parser.error(f"{unknown[0]} is not a part: choose {', '.join(PARTS)}")
    torch.set_num_threads(1)  # more threads than idle cores wait for each other, which would measure the neighbours
    path = RESULTS / f"{options.name}.json"
    results: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if parts and path.exists() else {}
    for part in parts or PARTS:
        results[part] = PARTS[part]()
        results.setdefault("machines", {})[part] = machine()  # a part may be measured again elsewhere
        write_json(path, results)
    show(results)


if __name__ == "__main__":
    main()
