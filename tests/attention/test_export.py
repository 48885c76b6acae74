"""Layers as graphs for other engines, and the names under which weights are saved."""

import pytest
import torch
from torch import nn

from saccade.attention import (
    CAUSAL,
    Around2d,
    Attend,
    Band,
    CalendarDay,
    Learned,
    Learned2d,
    LocalPredictive,
    MultiHead,
    RelativeBias,
    Rotary,
    Sinusoidal,
    Sinusoidal2d,
    all_scores,
)

from .cases import SCORES, SELECTIONS, make_attend, make_score, make_selection


class Context(nn.Module):
    """An attention as a function of its tensors alone."""

    def __init__(self, attend, **how):
        super().__init__()
        self.attend = attend
        self.how = how

    def forward(self, *inputs):
        return self.attend(*inputs, **self.how).context


class OverGrid(nn.Module):
    """A picture (B, size, rows, columns) and the positions of its cells."""

    def __init__(self, positions):
        super().__init__()
        self.positions = positions

    def forward(self, picture):
        return picture.flatten(2).mT + self.positions(*picture.shape[2:])


class Fixed(nn.Module):
    """Positions for given lengths."""

    def __init__(self, positions, *lengths):
        super().__init__()
        self.positions = positions
        self.lengths = lengths

    def forward(self, x):
        return x.sum() + self.positions(*self.lengths)


def check_export(module, *inputs, longer=None, **options):
    module.eval()
    exported = torch.export.export(module, inputs, **options).module()
    torch.testing.assert_close(exported(*inputs), module(*inputs))
    if longer is not None:
        torch.testing.assert_close(exported(*longer), module(*longer), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", SCORES)
def test_every_score_exports(name):
    check_export(Context(make_attend(name)), torch.randn(2, 3, 4), torch.randn(2, 5, 4))


@pytest.mark.parametrize("name", SCORES)
def test_many_heads_of_every_score_export(name):
    check_export(Context(MultiHead(8, 2, score=all_scores()[name]), band=CAUSAL), torch.randn(2, 5, 8))


@pytest.mark.parametrize("selection", SELECTIONS)
def test_every_selection_exports(selection):
    visible = torch.arange(5) < torch.tensor([5, 3])[:, None, None]
    attend = make_attend("general", selection)
    check_export(Context(attend, visible=visible), torch.randn(2, 3, 4), torch.randn(2, 5, 4))


@pytest.mark.parametrize(
    ("route", "name"), [("explicit", "dot"), ("fused", "dot"), ("blockwise", "dot"), ("chunked", "additive")]
)
def test_every_route_exports(route, name):
    x = torch.randn(2, 6, 4)
    check_export(Context(Attend(make_score(name), route=route), band=Band(1, 1)), x, x.flip(1))


LENGTHS = torch.export.Dim("batch", max=64), torch.export.Dim("queries", max=400), torch.export.Dim("keys", max=400)


@pytest.mark.parametrize("name", SCORES)
def test_every_score_exports_once_for_all_lengths(name):
    batch, queries, keys = LENGTHS
    longer = torch.randn(3, 150, 4), torch.randn(3, 300, 4)
    check_export(
        Context(make_attend(name)),
        torch.randn(2, 3, 4),
        torch.randn(2, 5, 4),
        longer=longer,
        dynamic_shapes=(({0: batch, 1: queries}, {0: batch, 1: keys}),),
    )


@pytest.mark.parametrize(
    ("options", "band"),
    [({}, CAUSAL), ({}, Band(4, 4)), ({"rotary": Rotary(4), "relative": RelativeBias(2)}, None)],
    ids=["causal", "window", "positions"],
)
def test_many_heads_export_once_for_all_lengths(options, band):
    check_export(
        Context(MultiHead(8, 2, **options), band=band),
        torch.randn(2, 5, 8),
        longer=(torch.randn(3, 300, 8),),
        dynamic_shapes=(({0: LENGTHS[0], 1: LENGTHS[1]},),),
    )


@pytest.mark.parametrize(
    "positions",
    [
        Fixed(Sinusoidal(4), 5, 2),
        Fixed(Learned(4, longest=9), 5, 2),
        Fixed(Sinusoidal2d(4), 3, 2),
        Fixed(Learned2d(4, rows=3, columns=4), 3, 2),
        Fixed(CalendarDay(4), torch.tensor([3, 50])),
        Fixed(RelativeBias(2), 5, 7),
        Fixed(Around2d(2), 3, 2),
        Rotary(4),
    ],
    ids=lambda module: type(getattr(module, "positions", module)).__name__,
)
def test_positions_export(positions):
    check_export(positions, torch.randn(2, 5, 4))


# What a checkpoint holds

PROJECTIONS = [f"{which}.{kind}" for which in ("query", "key", "value", "output") for kind in ("weight", "bias")]

SCORE_KEYS = {
    "dot": [],
    "scaled-dot": [],
    "general": ["weight"],
    "cosine": ["sharpness"],
    "additive": ["weight", "v"],
    "perceptron": ["query_weight", "key_weight", "v"],
    "concat": ["query_weight", "key_weight"],
    "location": ["weight"],
}

SELECTION_KEYS = {"soft": [], "hard": [], "straight-through": [], "local-m": [], "local-p": ["weight", "v"]}


@pytest.mark.parametrize("name", SCORE_KEYS)
def test_weights_of_a_score_are_saved_under_these_names(name):
    assert list(make_score(name).state_dict()) == SCORE_KEYS[name]
    prefixed = [f"score.{key}" for key in SCORE_KEYS[name]]
    assert list(make_attend(name).state_dict()) == prefixed
    assert list(MultiHead(8, 2, score=all_scores()[name]).state_dict()) == prefixed + PROJECTIONS


@pytest.mark.parametrize("name", SELECTION_KEYS)
def test_weights_of_a_selection_are_saved_under_these_names(name):
    assert list(make_selection(name).state_dict()) == SELECTION_KEYS[name]


def test_weights_of_a_layer_with_everything_are_saved_under_these_names():
    layer = MultiHead(
        8,
        2,
        selection=LocalPredictive(4),
        rotary=Rotary(4),
        relative=RelativeBias(2),
        bias=False,
        score=all_scores()["cosine"],
    )
    assert list(layer.state_dict()) == [
        "score.sharpness",
        "selection.weight",
        "selection.v",
        "query.weight",
        "key.weight",
        "value.weight",
        "output.weight",
        "relative.table",
    ]


def test_weights_of_positions_are_saved_under_these_names():
    assert {type(module).__name__: list(module.state_dict()) for module in positions()} == {
        "Sinusoidal": [],
        "Sinusoidal2d": [],
        "CalendarDay": [],
        "Rotary": [],
        "Learned": ["table"],
        "Learned2d": ["row_table", "column_table"],
        "RelativeBias": ["table"],
        "Around2d": ["centre", "sharpness"],
    }


def positions():
    return (
        Sinusoidal(4),
        Sinusoidal2d(4),
        CalendarDay(4),
        Rotary(4),
        Learned(4, 3),
        Learned2d(4, 3, 3),
        RelativeBias(2),
        Around2d(2),
    )


@pytest.mark.parametrize("name", SCORES)
def test_a_saved_layer_is_the_same_layer_when_loaded(name):
    layer, other = (MultiHead(8, 2, score=all_scores()[name]) for _ in range(2))
    other.load_state_dict(layer.state_dict())
    x = torch.randn(2, 5, 8)
    assert torch.equal(layer(x).context, other(x).context)


@pytest.mark.parametrize("positions", [Sinusoidal2d(4), Learned2d(4, rows=9, columns=9)], ids=["sinusoidal", "learned"])
def test_positions_of_grids_export_once_for_all_sizes(positions):
    rows, columns = torch.export.Dim("rows", max=9), torch.export.Dim("columns", max=9)
    check_export(
        OverGrid(positions),
        torch.randn(2, 4, 3, 5),
        longer=(torch.randn(2, 4, 7, 6),),
        dynamic_shapes=({2: rows, 3: columns},),
    )
