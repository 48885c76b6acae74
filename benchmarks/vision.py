"""A vision Transformer beside Hugging Face's of the same size: images per second, training and predicting.

    python -m benchmarks.vision [--quick]

32 × 32 × 3 images in patches of 4, 6 layers, width 128, 4 heads, feed-forward 256, 10 classes, dropout 0.1. Both run in the loop that
everybody writes, each in a process of its own; training ours keeps freed memory, as `saccade train` does. Writes
benchmarks/results/vision.json. Local 2-D attention beside `unfold` is benchmarks.local2d.
"""

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks import report
from benchmarks.measure import peak_memory, rounds_apart
from saccade.data.image_shape import ImageShape
from saccade.models import vit
from saccade.models.shapes import Shapes
from saccade.training.allocator import keep_freed_memory

PIXELS, CLASSES, BATCH = 32, 10, 64
CONFIG = vit.Config(dropout=0.1)


class Classifier:
    """A model that gives logits, and the update that everybody writes."""

    def __init__(self, model: nn.Module, logits: Callable[[Tensor], Tensor]):
        self.model = model
        self.logits = logits
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def train(self, images: Tensor, classes: Tensor) -> None:
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(self.logits(images), classes).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()

    @torch.inference_mode()
    def predict(self, images: Tensor, classes: Tensor) -> None:
        self.model.eval()
        self.logits(images).argmax(1)


def ours() -> Classifier:
    model = vit.build(CONFIG, Shapes(ImageShape(3, PIXELS, PIXELS), CLASSES))
    return Classifier(model, model)


def hugging_face() -> Classifier:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=CONFIG.width,
        num_hidden_layers=CONFIG.layers,
        num_attention_heads=CONFIG.heads,
        intermediate_size=CONFIG.feed_forward,
        hidden_dropout_prob=CONFIG.dropout,
        attention_probs_dropout_prob=0.0,
        image_size=PIXELS,
        patch_size=CONFIG.patch,
        num_labels=CLASSES,
    )
    model = ViTForImageClassification(config)
    return Classifier(model, lambda images: model(pixel_values=images).logits)


CLASSIFIERS: dict[str, Callable[[], Classifier]] = {report.OURS: ours, "Hugging Face": hugging_face}
MODES = ("train", "predict")


def main() -> None:
    options = report.settle(report.parser(__doc__.splitlines()[0]).parse_args())
    results: dict[str, Any] = {}
    for mode in MODES:
        count = 1 if options.quick else 4
        variants = {name: (name, mode, options.threads, count) for name in CLASSIFIERS}
        seconds = rounds_apart("benchmarks.vision:once", variants, options.repeats, options.busy)
        rows = report.contenders(seconds, count * BATCH, "images")
        for row in rows:
            row["milliseconds a batch"] = 1e3 * statistics.median(seconds[row["contender"]]) / count
            if not options.without_memory:
                row["peak MB"] = peak_memory("benchmarks.vision:once", row["contender"], mode, options.threads) / 1e6
        results[mode] = {"against the best peer": report.against_best(rows), "contenders": rows}
        report.keep("vision", options, batch=BATCH, **results)
        print(f"{mode}, batches of {BATCH} images")
        report.show(rows)


def several(classifier: Classifier, mode: str, count: int) -> None:
    torch.manual_seed(2)
    images, classes = torch.randn(BATCH, 3, PIXELS, PIXELS), torch.randint(CLASSES, (BATCH,))
    for _ in range(count):
        getattr(classifier, mode)(images, classes)


def once(name: str, mode: str, threads: str, count: str = "2") -> Callable[[], None]:
    """Some batches, to be measured in a process of its own."""
    torch.set_num_threads(int(threads))
    torch.manual_seed(1)
    if name == report.OURS and mode == "train":
        keep_freed_memory()
    return partial(several, CLASSIFIERS[name](), mode, int(count))


if __name__ == "__main__":
    main()
