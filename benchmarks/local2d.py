"""Local 2-D self-attention beside the usual implementation by `unfold`: time and peak memory.

    python -m benchmarks.local2d

Both compute the same numbers from the same parameters, which is checked first. Writes benchmarks/results/local2d.json.
"""

import argparse
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.measure import RESULTS, interleaved, machine, peak_memory, table, write_json
from saccade.attention.local2d import LocalSelfAttention2d

CHANNELS, SIZE, KERNEL = 64, 32, 7


def main() -> None:
    parser = argparse.ArgumentParser(description="Local 2-D self-attention beside unfold: time and peak memory.")
    parser.add_argument("--heads", type=int, nargs="+", default=[8, 4, 1])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    results = [compare(heads, options.batch, options.repeats) for heads in options.heads]
    print(
        f"Batch {options.batch}, {CHANNELS} channels, {SIZE} x {SIZE} pixels, {KERNEL} x {KERNEL} neighbours, float32\n"
    )
    print(as_table(results))
    path = RESULTS / "local2d.json"
    setting = {
        "batch": options.batch,
        "channels": CHANNELS,
        "size": SIZE,
        "kernel_size": KERNEL,
        "repeats": options.repeats,
    }
    write_json(path, {"machine": machine(), "setting": setting, "results": results})
    print(f"\nWritten to {path}")


def compare(heads: int, batch: int, repeats: int) -> dict[str, Any]:
    memory = {name: peak_memory("benchmarks.local2d:training_step", name, heads, batch) for name in VARIANTS}
    layer, image = layer_and_image(heads, batch)
    torch.testing.assert_close(local(layer, image), by_unfold(layer, image), rtol=1e-4, atol=1e-5)
    forward = interleaved({name: _forward(run, layer, image) for name, run in VARIANTS.items()}, repeats)
    both = interleaved({name: _forward_backward(run, layer, image) for name, run in VARIANTS.items()}, repeats)
    measured = {
        name: {"forward_seconds": forward[name], "forward_backward_seconds": both[name], "peak_bytes": memory[name]}
        for name in VARIANTS
    }
    ratio = {key: measured["unfold"][key] / measured["saccade"][key] for key in measured["saccade"]}
    return {"heads": heads, **measured, "ratio": ratio}


def as_table(results: list[dict[str, Any]]) -> str:
    rows: list[list[object]] = []
    for result in results:
        for name in VARIANTS:
            numbers = result[name]
            rows.append(
                [
                    f"{name}, heads {result['heads']}",
                    f"{numbers['forward_seconds']:.3f} s",
                    f"{numbers['forward_backward_seconds']:.3f} s",
                    f"{numbers['peak_bytes'] / 2**20:.0f} MiB",
                ]
            )
        rows.append(["unfold / saccade", *(f"{value:.1f} x" for value in result["ratio"].values())])
    return table(["", "forward", "forward + backward", "peak memory"], rows)


def local(layer: LocalSelfAttention2d, image: Tensor) -> Tensor:
    return layer(image)


def by_unfold(layer: LocalSelfAttention2d, image: Tensor) -> Tensor:
    """The textbook way: copy every pixel's neighbours, then multiply and sum. Written as fast as unfold allows."""
    size, heads, stride = layer.kernel_size, layer.heads, layer.stride

    def neighbours(picture: Tensor) -> Tensor:
        copies = F.unfold(picture, size, padding=size // 2, stride=stride)
        return copies.unflatten(1, (heads, -1, size**2))  # (B, H, D, k², Q)

    query = layer.query(image)
    asks = query.flatten(2).unflatten(1, (heads, -1))  # (B, H, D, Q)
    by_row, by_column = asks.chunk(2, dim=2)
    rows, columns = layer.row_embedding @ by_row, layer.column_embedding @ by_column
    relative = rows.unsqueeze(3) + columns.unsqueeze(2)  # (B, H, k, k, Q)
    scores = (asks.unsqueeze(3) * neighbours(layer.key(image))).sum(2) + relative.flatten(2, 3)
    visible = F.unfold(torch.ones_like(image[:1, :1]), size, padding=size // 2, stride=stride) > 0
    weights = scores.masked_fill(~visible[:, None], -torch.inf).softmax(2)
    return (weights.unsqueeze(2) * neighbours(layer.value(image))).sum(3).reshape(query.shape)


Run = Callable[[LocalSelfAttention2d, Tensor], Tensor]
VARIANTS: dict[str, Run] = {"saccade": local, "unfold": by_unfold}


def layer_and_image(heads: int, batch: int) -> tuple[LocalSelfAttention2d, Tensor]:
    torch.manual_seed(0)
    layer = LocalSelfAttention2d(CHANNELS, CHANNELS, KERNEL, heads)
    return layer, torch.randn(batch, CHANNELS, SIZE, SIZE, requires_grad=True)


def training_step(variant: str, heads: str, batch: str) -> Callable[[], None]:
    """Prepare one forward and backward pass, for `peak_memory`."""
    layer, image = layer_and_image(int(heads), int(batch))
    return _forward_backward(VARIANTS[variant], layer, image)


def _forward(run: Run, layer: LocalSelfAttention2d, image: Tensor) -> Callable[[], None]:
    @torch.no_grad()
    def work() -> None:
        run(layer, image)

    return work


def _forward_backward(run: Run, layer: LocalSelfAttention2d, image: Tensor) -> Callable[[], None]:
    gradient = torch.randn(image.shape)

    def work() -> None:
        layer.zero_grad()
        image.grad = None
        run(layer, image).backward(gradient)

    return work


if __name__ == "__main__":
    main()
