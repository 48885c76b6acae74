"""What holds for every model of series there is: each file in saccade/models whose kind is "series-classes"."""

import importlib
import pkgutil

import numpy as np
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier
from torch.nn import functional as F

import saccade.models
from saccade.attention import record_attention
from saccade.data.series.batch import SeriesBatch, SeriesShape
from saccade.errors import UserError
from saccade.layers.series import LearnedQueries, OnGrid
from saccade.models.random_forest import RandomForest
from saccade.models.shapes import Shapes
from saccade.views.axes import Dates

VARIANTS = {
    "ltae": [
        {"width": 32, "heads": 4, "output": 16},
        {"width": 32, "heads": 4, "output": 16, "embedding": 8, "stem": "convolutional"},
    ],
    "series_transformer": [
        {"layers": 2, "width": 16, "heads": 2, "feed_forward": 32},
        {"layers": 1, "width": 16, "heads": 2, "stem": "linear", "pooling": "max"},
    ],
    "series_lstm": [{"width": 8}],
    "temp_cnn": [{"width": 8, "hidden": 16}],
    "ms_resnet": [{"width": 4}],
    "inception_time": [{"width": 4, "depth": 3, "kernel": 8}],
    "random_forest": [{"trees": 5}],
}
GRID = tuple(float(day) for day in range(0, 120, 10))


def modules():
    names = [module.name for module in pkgutil.iter_modules(saccade.models.__path__)]
    found = {name: importlib.import_module(f"saccade.models.{name}") for name in names}
    return {
        name: each
        for name, each in found.items()
        if "series-classes" in getattr(getattr(each, "Config", None), "serves", ())
    }


MODULES = modules()
CASES = [(name, variant) for name in MODULES for variant in VARIANTS.get(name, [{}])]
NETWORKS = [(name, variant) for name, variant in CASES if name != "random_forest"]


def built(name, variant, gaps=True, classes=3):
    module = MODULES[name]
    torch.manual_seed(0)
    shapes = Shapes(classes=classes, series=SeriesShape(2, GRID, gaps))
    model = module.build(module.Config.model_validate(variant), shapes).eval()
    if isinstance(model, RandomForest):
        draw = np.random.default_rng(0)
        features = draw.normal(size=(60, len(GRID) * model.on_grid.channels)).astype(np.float32)
        model.fit(features, draw.integers(0, classes, 60), seed=1)
    return model


def batch(lengths=(12, 7), seed=0):
    draw = torch.Generator().manual_seed(seed)
    longest = max(lengths)
    there = torch.arange(longest) < torch.tensor(lengths)[:, None]
    measured = (torch.rand(len(lengths), longest, 2, generator=draw) < 0.8) & there[..., None]
    measured[..., 0] |= there
    values = torch.randn(len(lengths), longest, 2, generator=draw) * measured
    days = (torch.rand(len(lengths), longest, generator=draw) * 9 + 1).cumsum(1)
    return SeriesBatch(values, measured, days)


def test_every_model_of_the_issue_is_there():
    assert set(MODULES) == set(VARIANTS)


@pytest.mark.parametrize(("name", "variant"), CASES)
def test_a_series_is_answered_alone_as_it_is_in_a_batch(name, variant):
    model, both = built(name, variant), batch()
    with torch.no_grad():
        together = model(both)
        for row, length in enumerate((12, 7)):
            alone = model(SeriesBatch(*(part[row : row + 1, :length] for part in both)))
            torch.testing.assert_close(alone[0], together[row], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "variant"), CASES)
def test_days_beyond_the_end_of_a_series_change_nothing(name, variant):
    model, both = built(name, variant), batch()
    others = SeriesBatch(both.values, both.measured, torch.where(both.visible, both.days, 7e3))
    with torch.no_grad():
        torch.testing.assert_close(model(others), model(both))


@pytest.mark.parametrize(("name", "variant"), NETWORKS)
def test_gradients_reach_every_parameter(name, variant):
    model = built(name, variant).train()
    F.cross_entropy(model(batch((12, 7, 9))), torch.tensor([0, 1, 2])).backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize(("name", "variant"), NETWORKS)
def test_recording_changes_nothing_and_hidden_dates_get_no_attention(name, variant):
    model, both = built(name, variant), batch()
    with torch.no_grad():
        plain = model(both)
        with record_attention(model) as recorded:
            watched = model(both)
    assert torch.equal(plain, watched)
    labels = tuple(map(str, range(12)))
    for attention in recorded:
        weights = recorded.joined(attention)
        queries, keys = model.attention_axes(attention, {"dates": Dates(labels)})
        assert weights.shape[-2:] == (len(queries), len(keys))
        torch.testing.assert_close(weights[0].sum(-1), torch.ones_like(weights[0].sum(-1)))
        assert weights[1, ..., 7:].abs().max() == 0


def test_the_order_of_dates_that_are_seen_changes_nothing_where_days_say_when_they_were():
    """Of attention over single dates: the day stands beside each value."""
    for name, variant in (("ltae", VARIANTS["ltae"][0]), ("series_transformer", VARIANTS["series_transformer"][1])):
        model, both = built(name, variant), batch((12, 12))
        order = torch.randperm(12)
        mixed = SeriesBatch(*(part[:, order] for part in both))
        with torch.no_grad():
            torch.testing.assert_close(model(mixed), model(both), rtol=1e-4, atol=1e-5)


def test_learned_queries_are_torchs_attention_of_each_head():
    pooling = LearnedQueries(12, 3, 5)
    x, visible = torch.randn(2, 6, 12), torch.arange(6) < torch.tensor([[6], [4]])
    keys = pooling.key(x).view(2, 6, 3, 5).transpose(1, 2)
    values = x.view(2, 6, 3, 4).transpose(1, 2)
    expected = F.scaled_dot_product_attention(pooling.query.expand(2, 3, 1, 5), keys, values, visible[:, None, None])
    torch.testing.assert_close(pooling(x, visible), expected.flatten(1))


def test_a_series_is_read_at_fixed_days_as_numpy_interpolates_it():
    both = batch()
    grid = OnGrid(SeriesShape(2, GRID, has_gaps=False))(both)
    for row in range(2):
        for band in range(2):
            known = both.measured[row, :, band].numpy()
            days, values = both.days[row].numpy()[known], both.values[row, :, band].numpy()[known]
            np.testing.assert_allclose(grid[row, band].numpy(), np.interp(GRID, days, values), rtol=1e-4, atol=1e-5)


# The forest


def forest_and_features():
    draw = np.random.default_rng(2)
    features = draw.normal(size=(200, len(GRID) * 2)).astype(np.float32)
    truths = (features[:, 0] + 0.3 * draw.normal(size=200) > 0).astype(np.int64) + 2 * (features[:, 1] > 1)
    return draw.normal(size=(100, features.shape[1])).astype(np.float32), features, truths


def test_a_forest_predicts_as_scikit_learn_does_and_is_read_back_the_same(tmp_path):
    asked, features, truths = forest_and_features()
    model = built("random_forest", {"trees": 20}, gaps=False, classes=4)
    model.fit(features, truths, seed=3)
    theirs = RandomForestClassifier(20, random_state=3).fit(features, truths).predict_proba(asked)
    ours = model.probabilities(asked)
    np.testing.assert_allclose(ours[:, np.unique(truths)], theirs, rtol=0, atol=1e-12)
    model.save(tmp_path / "forest.safetensors")
    again = built("random_forest", {"trees": 20}, gaps=False, classes=4)
    again.load(tmp_path / "forest.safetensors")
    np.testing.assert_array_equal(again.probabilities(asked), ours)


def test_a_leaf_of_a_forest_holds_as_many_series_as_it_must():
    asked, features, truths = forest_and_features()
    model = built("random_forest", {"trees": 10, "smallest_leaf": 8}, gaps=False, classes=4)
    model.fit(features, truths, seed=3)
    theirs = RandomForestClassifier(10, min_samples_leaf=8, random_state=3).fit(features, truths).predict_proba(asked)
    np.testing.assert_allclose(model.probabilities(asked)[:, np.unique(truths)], theirs, rtol=0, atol=1e-12)
    free = RandomForestClassifier(10, random_state=3).fit(features, truths).predict_proba(asked)
    assert np.abs(theirs - free).max() > 0.1


def test_a_forest_whose_walk_would_not_end_is_refused(tmp_path):
    _, features, truths = forest_and_features()
    model = built("random_forest", {"trees": 2}, gaps=False, classes=4)
    model.fit(features, truths, seed=3)
    model.arrays["left"][0] = 0
    model.save(tmp_path / "forest.safetensors")
    with pytest.raises(UserError, match="damaged or missing"):
        model.load(tmp_path / "forest.safetensors")


def test_settings_that_do_not_fit_are_refused():
    for name, settings, words in (
        ("ltae", {"width": 30, "heads": 4}, "multiple of 4 heads"),
        ("series_transformer", {"width": 30, "heads": 4}, "multiple of 4 heads"),
        ("series_transformer", {"kernel": 4}, "must be odd"),
        ("temp_cnn", {"kernel": 4}, "must be odd"),
    ):
        with pytest.raises(ValueError, match=words):
            MODULES[name].Config.model_validate(settings)
