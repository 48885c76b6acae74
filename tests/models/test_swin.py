"""Swin's stages; tests/models/test_hugging_face.py compares the whole with Hugging Face's, tests/layers/test_windows.py the windows."""

import pytest
import torch
from pydantic import ValidationError
from transformers.models.swin.modeling_swin import SwinPatchMerging

from saccade.data.image_shape import ImageShape
from saccade.models.shapes import Shapes
from saccade.models.swin import Config, Merge, build
from saccade.views.axes import Grid


def make(**settings):
    torch.manual_seed(0)
    small = {"width": 8, "layers": (2, 2), "heads": (2, 2), "window": 4, "expansion": 2} | settings
    return build(Config(**small), Shapes(ImageShape(3, 32, 32), classes=5)).eval()


@pytest.mark.parametrize("grid", [(4, 6), (5, 6), (3, 7), (1, 1)])
@torch.no_grad()
def test_merging_equals_hugging_faces_on_odd_grids_too(grid):
    torch.manual_seed(0)
    ours, theirs = Merge(4), SwinPatchMerging(4)
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter)
    ours.norm.load_state_dict(theirs.norm.state_dict())
    ours.reduce.load_state_dict(theirs.reduction.state_dict())
    x = torch.randn(2, *grid, 4)
    torch.testing.assert_close(ours(x).flatten(1, 2), theirs(x.flatten(1, 2), grid))


@torch.no_grad()
def test_a_pixel_is_seen_beyond_its_window_only_through_the_shift():
    """Two layers, the second shifted by half a window of 4 cells of 2 pixels: cells 0 to 5 see row 0, cells from 6 on do not."""
    model = make(layers=(2,), heads=(2,))
    images = torch.randn(1, 3, 32, 32)
    changed = images.clone()
    changed[:, :, 0, 0] += 5
    before, after = ((model.stages[0](model.embed_norm(model.embed(each)))) for each in (images, changed))
    differs = (before != after).any(-1)[0]  # (rows, columns)
    assert differs[:4, :4].all()
    assert differs[4:6, :6].any()
    assert not differs[6:].any()
    assert not differs[:, 6:].any()


def test_shift_and_width_follow_the_stages():
    model = make(layers=(3, 2))
    shifts = [[layer.self_attention.shift for layer in stage.layers] for stage in model.stages]
    assert shifts == [[0, 2, 0], [0, 2]]
    assert model.output.in_features == 16


def test_axes_are_the_grid_of_the_stage():
    model = make()
    assert model.attention_axes("stages.0.layers.1.self_attention", {"image": Grid(30, 21)}) == (
        Grid(15, 11, cell=2),
        Grid(15, 11, cell=2),
    )
    assert model.attention_axes("stages.1.layers.0.self_attention", {"image": Grid(30, 21)}) == (
        Grid(8, 6, cell=4),
        Grid(8, 6, cell=4),
    )


def test_stochastic_depth_rises_over_all_stages():
    model = make(stochastic_depth=0.3)
    rates = [layer.around_self_attention.depth.rate for stage in model.stages for layer in stage.layers]
    assert rates == pytest.approx([0.0, 0.1, 0.2, 0.3])


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"layers": (2, 2)}, "for each stage"), ({"heads": (2, 5, 8)}, "stage 2 has 96 features, which 5 heads")],
)
def test_settings_that_do_not_fit_are_refused(settings, said):
    with pytest.raises(ValidationError, match=said):
        Config(**settings)
