"""A random forest over a series at fixed dates (Breiman 2001), fitted by scikit-learn and kept as plain arrays of nodes.

    p(c | x) = 1/T Σ_t share of class c in the leaf of tree t that x falls into

It looks at nothing in particular: there is no attention in it. Every table of crop mapping has one, and it is hard to beat on clean series.

Axis legend: B batch, T trees, M nodes of all trees, C classes.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from torch import Tensor, nn

from saccade.config.recipe import Config as BaseConfig
from saccade.data.series.batch import SeriesBatch, SeriesShape
from saccade.errors import UserError
from saccade.files import replacing
from saccade.layers.series import OnGrid
from saccade.models.shapes import Shapes
from saccade.views.axes import Axis

_LEAF = -1


class Config(BaseConfig):
    serves: ClassVar[tuple[str, ...]] = ("series-classes",)

    trees: int = Field(500, ge=1)
    smallest_leaf: int = Field(1, ge=1, description="series in a leaf at least")
    features: Literal["sqrt", "log2", "all"] = Field("sqrt", description="how many features a split may choose from")


class RandomForest(nn.Module):
    def __init__(self, config: Config, shape: SeriesShape, classes: int):
        super().__init__()
        self.config = config
        self.classes = classes
        self.on_grid = OnGrid(shape)
        self.arrays: dict[str, NDArray[Any]] = {}

    @property
    def trees(self) -> int:
        return len(self.arrays["roots"])

    @property
    def nodes(self) -> int:
        return len(self.arrays["feature"])

    def features(self, series: SeriesBatch) -> Tensor:
        """(B, channels · days)"""
        return self.on_grid(series).flatten(1)

    def fit(self, features: NDArray[np.float32], truths: NDArray[np.int64], seed: int) -> None:
        from sklearn.ensemble import RandomForestClassifier

        most = None if self.config.features == "all" else self.config.features
        forest = RandomForestClassifier(
            self.config.trees,
            min_samples_leaf=self.config.smallest_leaf,
            max_features=most,
            random_state=seed % 2**32,
            n_jobs=torch.get_num_threads(),
        )
        self.take(forest.fit(features, truths))

    def take(self, forest: Any) -> None:
        """The nodes of a fitted forest of scikit-learn."""
        trees = [estimator.tree_ for estimator in forest.estimators_]
        counts = np.array([tree.node_count for tree in trees])
        roots = np.concatenate([[0], np.cumsum(counts)[:-1]])
        # A class that no series was trained on has no column in the forest.
        columns = np.asarray(forest.classes_, np.int64)
        shares = np.zeros((int(counts.sum()), self.classes), np.float64)
        own = np.concatenate([tree.value[:, 0] for tree in trees]).astype(np.float64)
        shares[:, columns] = own / own.sum(1, keepdims=True)

        def children(side: str) -> NDArray[np.int32]:
            parts = [
                np.where(getattr(tree, side) < 0, _LEAF, getattr(tree, side) + root)
                for tree, root in zip(trees, roots, strict=True)
            ]
            return np.concatenate(parts).astype(np.int32)

        self.arrays = {
            "roots": roots.astype(np.int32),
            "left": children("children_left"),
            "right": children("children_right"),
            "feature": np.concatenate([tree.feature for tree in trees]).astype(np.int32),
            "threshold": np.concatenate([tree.threshold for tree in trees]).astype(np.float64),
            "shares": shares,
        }

    def probabilities(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """(B, C): every series walks down every tree."""
        left, right, feature, threshold = (self.arrays[name] for name in ("left", "right", "feature", "threshold"))
        rows = np.arange(len(features))
        total = np.zeros((len(features), self.classes))
        for root in self.arrays["roots"]:
            node = np.full(len(features), root)
            inside = left[node] >= 0
            while inside.any():
                own, here = rows[inside], node[inside]
                goes_left = features[own, feature[here]] <= threshold[here]
                node[inside] = np.where(goes_left, left[here], right[here])
                inside = left[node] >= 0
            total += self.arrays["shares"][node]
        return total / len(self.arrays["roots"])

    def forward(self, series: SeriesBatch) -> Tensor:
        """Logarithms of the probabilities (B, C); a class that no tree speaks for is given 1e-6."""
        shares = self.probabilities(self.features(series).numpy())
        return torch.from_numpy(np.log(np.maximum(shares, 1e-6))).float()

    def save(self, path: Path) -> None:
        with replacing(path) as aside:
            save_file(self.arrays, aside)

    def load(self, path: Path) -> None:
        """Every node is checked: a walk must end, inside the arrays."""
        try:
            arrays = load_file(path)
            _require_sound(arrays, self.classes, len(self.on_grid.days) * self.on_grid.channels)
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            raise UserError(f"{path} is damaged or missing ({error}): train the run anew") from None
        self.arrays = dict(arrays)

    def attention_axes(self, name: str, axes: Mapping[str, Axis]) -> tuple[Axis, Axis]:
        raise KeyError(f"a forest has no attention {name!r}")


def _require_sound(arrays: Mapping[str, NDArray[Any]], classes: int, features: int) -> None:
    left, right, feature, shares, roots = (arrays[name] for name in ("left", "right", "feature", "shares", "roots"))
    count = len(left)
    own = np.arange(count)
    is_leaf = left < 0
    fits = all(len(arrays[name]) == count for name in ("right", "feature", "threshold")) and shares.shape == (
        count,
        classes,
    )
    fits = fits and len(roots) > 0 and bool(((roots >= 0) & (roots < count)).all())
    if fits:
        inner = ~is_leaf
        fits = bool(
            ((left > own) & (right > own) & (left < count) & (right < count) & (feature >= 0) & (feature < features))[
                inner
            ].all()
        )
    if not fits:
        raise ValueError("its nodes do not fit together")


def build(config: Config, shapes: Shapes) -> RandomForest:
    return RandomForest(config, shapes.require_series(), shapes.classes)
