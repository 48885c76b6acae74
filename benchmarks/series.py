"""Series: our Transformer and the lightweight temporal attention beside plain torch twins of the same sizes, the forest beside
scikit-learn's.

    python -m benchmarks.series [--quick]

Batches of 64 series of 46 dates and 4 bands, 12 classes; each contender in a process of its own, in the loop that everybody writes. The
twins are what a tutorial writes: torch.nn.TransformerEncoder with padding masks, nn.MultiheadAttention for the learned queries. Also how
many series a minute our attention and the forest name. Writes benchmarks/results/series.json.
"""

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks import report
from benchmarks.measure import rounds_apart
from saccade.attention import CalendarDay
from saccade.data.series.batch import SeriesBatch, SeriesShape
from saccade.models import ltae, random_forest, series_transformer
from saccade.models.shapes import Shapes
from saccade.training.allocator import keep_freed_memory

DATES, BANDS, CLASSES, BATCH = 46, 4, 12, 64
SHAPES = Shapes(classes=CLASSES, series=SeriesShape(BANDS, tuple(float(8 * date) for date in range(DATES)), False))
TRANSFORMER = series_transformer.Config(width=64, layers=3, feed_forward=128)
LTAE = ltae.Config()


class TorchTransformer(nn.Module):
    """The same sizes of torch.nn.TransformerEncoder, the same stem, the largest value over time."""

    def __init__(self) -> None:
        super().__init__()
        size = TRANSFORMER.width
        self.stem = nn.ModuleList(
            nn.Conv1d(channels, size, TRANSFORMER.kernel, padding=TRANSFORMER.kernel // 2) for channels in (BANDS, size)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in self.stem)
        self.embed = nn.Linear(size, size)
        self.positions = CalendarDay(size)
        layer = nn.TransformerEncoderLayer(
            size,
            TRANSFORMER.heads,
            TRANSFORMER.feed_forward,
            TRANSFORMER.dropout,
            F.gelu,
            batch_first=True,
            norm_first=True,
        )
        self.encoder = nn.TransformerEncoder(layer, TRANSFORMER.layers, nn.LayerNorm(size), enable_nested_tensor=False)
        self.output = nn.Linear(size, CLASSES)

    def forward(self, series: SeriesBatch) -> Tensor:
        x = series.values
        for convolution, norm in zip(self.stem, self.norms, strict=True):
            x = F.gelu(norm(convolution(x.transpose(1, 2)).transpose(1, 2)))
        x = self.embed(x) + self.positions(series.days)
        hidden = ~series.visible
        x = self.encoder(x, src_key_padding_mask=hidden).masked_fill(hidden[..., None], -torch.inf)
        return self.output(x.amax(1))


class TorchQueries(nn.Module):
    """Learned queries by nn.MultiheadAttention, with its full projections."""

    def __init__(self) -> None:
        super().__init__()
        size = LTAE.width
        self.embed = nn.Sequential(
            nn.Linear(BANDS, LTAE.embedding), nn.LayerNorm(LTAE.embedding), nn.ReLU(), nn.Linear(LTAE.embedding, size)
        )
        self.norm = nn.LayerNorm(size)
        self.positions = CalendarDay(size)
        self.query = nn.Parameter(torch.randn(1, 1, size))
        self.attention = nn.MultiheadAttention(size, LTAE.heads, batch_first=True)
        self.after = nn.Sequential(
            nn.Linear(size, LTAE.output), nn.LayerNorm(LTAE.output), nn.ReLU(), nn.Dropout(LTAE.dropout)
        )
        self.output = nn.Linear(LTAE.output, CLASSES)

    def forward(self, series: SeriesBatch) -> Tensor:
        x = self.norm(self.embed(series.values)) + self.positions(series.days)
        query = self.query.expand(len(x), -1, -1)
        read, _ = self.attention(query, x, x, key_padding_mask=~series.visible, need_weights=False)
        return self.output(self.after(read[:, 0]))


class Classifier:
    """A model that gives logits, and the update that everybody writes."""

    def __init__(self, model: nn.Module):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def train(self, series: SeriesBatch, classes: Tensor) -> None:
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(self.model(series), classes).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()

    @torch.inference_mode()
    def predict(self, series: SeriesBatch, classes: Tensor) -> None:
        self.model.eval()
        self.model(series).argmax(1)


class Forests:
    """Fitted once on noise: our walk over its arrays, or scikit-learn's own."""

    def __init__(self, is_ours: bool):
        from sklearn.ensemble import RandomForestClassifier

        draw = np.random.default_rng(1)
        features = draw.normal(size=(2000, DATES * BANDS)).astype(np.float32)
        theirs = RandomForestClassifier(100, random_state=1).fit(features, draw.integers(0, CLASSES, 2000))
        ours = random_forest.build(random_forest.Config(trees=100), SHAPES)
        ours.take(theirs)
        self.probabilities = ours.probabilities if is_ours else theirs.predict_proba

    def predict(self, series: SeriesBatch, classes: Tensor) -> None:
        self.probabilities(series.values.flatten(1).numpy())


def transformer() -> Classifier:
    return Classifier(series_transformer.build(TRANSFORMER, SHAPES))


def learned_queries() -> Classifier:
    return Classifier(ltae.build(LTAE, SHAPES))


CONTENDERS: dict[str, dict[str, Callable[[], Any]]] = {
    "transformer": {report.OURS: transformer, "torch.nn": lambda: Classifier(TorchTransformer())},
    "ltae": {report.OURS: learned_queries, "torch.nn": lambda: Classifier(TorchQueries())},
    "forest": {report.OURS: lambda: Forests(True), "scikit-learn": lambda: Forests(False)},
}


def main() -> None:
    options = report.settle(report.parser(__doc__.splitlines()[0]).parse_args())
    results: dict[str, Any] = {}
    for kind, contenders in CONTENDERS.items():
        for mode in ("train", "predict") if kind != "forest" else ("predict",):
            count = 2 if options.quick else 8
            variants = {name: (kind, name, mode, options.threads, count) for name in contenders}
            seconds = rounds_apart("benchmarks.series:once", variants, options.repeats, options.busy)
            rows = report.contenders(seconds, count * BATCH, "series")
            for row in rows:
                row["a minute"] = 60 * count * BATCH / statistics.median(seconds[row["contender"]])
            results[f"{kind}, {mode}"] = {"against the best peer": report.against_best(rows), "contenders": rows}
            report.keep("series", options, batch=BATCH, **results)
            print(f"{kind}, {mode}, batches of {BATCH} series")
            report.show(rows)


def several(classifier: Any, mode: str, count: int) -> None:
    torch.manual_seed(2)
    for _ in range(count):
        lengths = torch.randint(DATES // 2, DATES + 1, (BATCH, 1))
        measured = (torch.arange(DATES) < lengths)[..., None].expand(BATCH, DATES, BANDS)
        days = (8.0 * torch.arange(DATES)).expand(BATCH, DATES)
        series = SeriesBatch(torch.randn(BATCH, DATES, BANDS) * measured, measured, days)
        getattr(classifier, mode)(series, torch.randint(CLASSES, (BATCH,)))


def once(kind: str, name: str, mode: str, threads: str, count: str) -> Callable[[], None]:
    """Some batches, to be measured in a process of its own."""
    torch.set_num_threads(int(threads))
    torch.manual_seed(1)
    if name == report.OURS and mode == "train":
        keep_freed_memory()
    return partial(several, CONTENDERS[kind][name](), mode, int(count))


if __name__ == "__main__":
    main()
