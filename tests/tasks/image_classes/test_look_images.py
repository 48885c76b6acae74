"""Looking gives the right row of what was recorded, for every kind of model."""

import itertools

import numpy as np
import pytest
import torch
from PIL import Image
from sights import a_picture, a_task

from saccade.attention import record_attention
from saccade.errors import UserError
from saccade.tasks.image_classes import look as looking
from saccade.tasks.image_classes.look import start_of
from saccade.tasks.image_classes.options import ImageOptions
from saccade.tasks.task import Example
from saccade.views.axes import Grid, Tokens
from saccade.views.maps import AttentionMap
from saccade.views.view import View


def view_of(task, picture, pixel=None, only=None) -> View:
    return looking.look(task, Example(picture), pixel, only)


def look(*arguments, **settings) -> tuple[AttentionMap, ...]:
    """Every map as it is shown first."""
    return view_of(*arguments, **settings).rows()


def recorded(task, picture) -> dict[str, np.ndarray]:
    """All weights (H, Q, K) of a picture, by hand."""
    image = (torch.tensor(picture.transpose(2, 0, 1))[None] / 255 - 0.5) / 0.25
    with torch.no_grad(), record_attention(task.model) as maps:
        task.model(image)
    found = {name: maps[name][0][0].numpy() for name in maps}
    return {name: weights if weights.ndim == 3 else weights[None] for name, weights in found.items()}


def test_a_class_token_looks_from_its_own_row_of_every_layer(tmp_path):
    task, picture = a_task(tmp_path, "vit"), a_picture()
    maps, whole = look(task, picture), recorded(task, picture)
    assert [each.name for each in maps] == ["rollout of 3 layers", *whole]
    for each in maps[1:]:
        np.testing.assert_allclose(each.weights[:, 0], whole[each.name][:, 0], atol=1e-5)
        assert each.queries == Tokens(("[class]",))
        assert each.keys == Grid(4, 6, ("[class]",), cell=4)
        np.testing.assert_allclose(each.weights.sum(-1), 1, atol=1e-5)


def test_rollout_is_that_of_a_plain_loop(tmp_path):
    task, picture = a_task(tmp_path, "vit"), a_picture()
    flow = np.eye(25)
    for weights in recorded(task, picture).values():
        flow = (0.5 * np.eye(25) + 0.5 * weights.mean(0)) @ flow
    np.testing.assert_allclose(look(task, picture)[0].weights[0, 0], flow[0], atol=1e-5)
    np.testing.assert_allclose(look(task, picture, (9, 23))[0].weights[0, 0], flow[1 + 2 * 6 + 5], atol=1e-5)


def test_attention_pooling_reads_the_rollout(tmp_path):
    task, picture = a_task(tmp_path, "pooled"), a_picture()
    maps, whole = look(task, picture), recorded(task, picture)
    flow = np.eye(24)
    for name in ("layers.0.self_attention", "layers.1.self_attention"):
        flow = (0.5 * np.eye(24) + 0.5 * whole[name].mean(0)) @ flow
    np.testing.assert_allclose(maps[0].weights[0, 0], whole["pooling.attention"][0, 0] @ flow, atol=1e-5)
    assert maps[0].queries == maps[-1].queries == Tokens(("[image]",))


@pytest.mark.parametrize(("pixel", "cell"), [((0, 0), (0, 0)), ((3, 3), (0, 0)), ((4, 3), (1, 0)), ((15, 23), (3, 5))])
def test_a_pixel_looks_from_the_cell_that_it_lies_in(tmp_path, pixel, cell):
    task, picture = a_task(tmp_path, "cnn"), a_picture()
    (attention,) = look(task, picture, pixel)
    row, column = cell
    np.testing.assert_allclose(
        attention.weights[:, 0], recorded(task, picture)["over_cells.attention"][:, row * 6 + column], atol=1e-5
    )
    assert attention.queries == Tokens((f"row {row} column {column}",))


def test_without_a_pixel_a_model_that_reads_the_mean_of_its_cells_looks_from_all_of_them(tmp_path):
    task, picture = a_task(tmp_path, "cnn"), a_picture()
    (attention,) = look(task, picture)
    np.testing.assert_allclose(
        attention.weights[:, 0], recorded(task, picture)["over_cells.attention"].mean(1), atol=1e-5
    )
    assert attention.queries == Tokens(("the average cell",))


@pytest.mark.parametrize(("size", "cell"), [((28, 30), 8), ((33, 35), 4), ((20, 17), 16)])
def test_a_pixel_lies_in_its_own_cell_also_where_the_last_cells_hang_over_the_edge(size, cell):
    rows, columns = size
    grid = Grid(-(-rows // cell), -(-columns // cell), ("[class]",), cell)
    for row, column in itertools.product(range(rows), range(columns)):
        assert start_of(grid, (row, column), size) == 1 + row // cell * grid.columns + column // cell


def test_a_pixel_of_a_class_token_model_is_counted_after_the_token(tmp_path):
    task, picture = a_task(tmp_path, "vit"), a_picture()
    attention = look(task, picture, (4, 8), only="layers.2.*")[0]
    np.testing.assert_allclose(
        attention.weights[:, 0], recorded(task, picture)["layers.2.self_attention"][:, 1 + 1 * 6 + 2], atol=1e-5
    )


def test_a_pixel_of_a_model_that_pools_by_attention_is_looked_from_everywhere(tmp_path):
    """Pooling looks from the whole picture, so neither it nor what it would read from the rollout is shown."""
    task, picture = a_task(tmp_path, "pooled"), a_picture()
    first, last = (look(task, picture, pixel) for pixel in ((0, 0), (15, 23)))
    assert [each.queries for each in first] == [Tokens(("row 0 column 0",))] * 3
    for mine, other in zip(first, last, strict=True):
        assert mine.name == other.name != "pooling.attention"
        assert np.abs(mine.weights - other.weights).max() > 1e-4
    with pytest.raises(UserError, match=r"pooling\.attention looks from the whole picture and from no pixel"):
        look(task, picture, (0, 0), only="pooling*")


@pytest.mark.parametrize("pixel", [(0, 0), (8, 12), (15, 23), (7, 1)])
def test_local_attention_looks_around_its_pixel_and_nowhere_else(tmp_path, pixel):
    for attention in look(a_task(tmp_path, "resnet"), a_picture(), pixel):
        rows, columns = attention.keys.rows, attention.keys.columns
        stride = 2 if attention.name.endswith("0.first") and "stages.0" not in attention.name else 1
        asked = tuple(map(int, attention.queries.words[0].split()[1::2]))
        centre = (asked[0] * stride, asked[1] * stride)
        assert abs(centre[0] * 16 / rows - pixel[0]) < 2 * 16 / rows
        assert abs(centre[1] * 24 / columns - pixel[1]) < 2 * 24 / columns
        looked = np.argwhere(attention.weights[0, 0].reshape(rows, columns) > 0)
        assert (abs(looked - centre) <= 1).all()
        assert len(looked) >= 4


def test_a_window_looks_inside_itself(tmp_path):
    maps = look(a_task(tmp_path, "swin"), a_picture(), (0, 0))
    assert [each.name for each in maps] == [
        "stages.0.layers.0.self_attention",
        "stages.0.layers.1.self_attention",
        "stages.1.layers.0.self_attention",
    ]  # its layers look over different grids, so there is no rollout
    looked = np.argwhere(maps[0].weights[0, 0].reshape(8, 12) > 0)
    assert looked.max(0).tolist() == [3, 3]


def test_what_is_seen_is_what_is_predicted_and_the_picture_as_the_model_gets_it(tmp_path):
    task = a_task(tmp_path, "vit")
    Image.fromarray(a_picture(50, 60)).save(tmp_path / "photo.png")
    view = view_of(task, tmp_path / "photo.png")
    (answer,) = task.answers([Example(tmp_path / "photo.png")], ImageOptions(best=None))
    assert view.answer == answer.to_dict()
    assert view.source == answer.source == str(tmp_path / "photo.png")
    assert view.title == f"{answer.text} (probability {answer.probability:.2f})"
    assert view.subtitle.startswith(f"else {answer.classes[1]} {answer.probabilities[1]:.2f}, ")
    np.testing.assert_array_equal(view.picture, task.picture(tmp_path / "photo.png").transpose(1, 2, 0))
    assert view.picture.shape == (16, 24, 3)
    assert look(task, Image.fromarray(a_picture(50, 60)))[-1].weights == pytest.approx(view.rows()[-1].weights)


def test_layers_are_chosen_by_name_and_some_of_them_roll_nothing_out(tmp_path):
    task, picture = a_task(tmp_path, "vit"), a_picture()
    chosen = look(task, picture, only="layers.[12].*")
    assert [each.name for each in chosen] == ["layers.1.self_attention", "layers.2.self_attention"]
    with pytest.raises(
        UserError, match=r"no attention of this model matches 'x\*': it has layers\.0\.self_attention, "
    ):
        look(task, picture, only="x*")


def test_a_model_without_attention_says_so(tmp_path):
    view = view_of(a_task(tmp_path, "plain"), a_picture())
    assert view.maps == ()
    with pytest.raises(UserError, match="has no attention to look at"):
        view.save(tmp_path / "look.png")


@pytest.mark.parametrize("pixel", [(16, 0), (0, 24), (-1, 0)])
def test_a_pixel_outside_of_the_picture_is_refused(tmp_path, pixel):
    with pytest.raises(UserError, match="give a row from 0 to 15 and a column from 0 to 23"):
        look(a_task(tmp_path, "cnn"), a_picture(), pixel)


def test_maps_that_would_not_fit_in_memory_are_refused_before_they_are_made(tmp_path, monkeypatch):
    task, picture = a_task(tmp_path, "resnet"), a_picture()
    monkeypatch.setattr("saccade.tasks.image_classes.look._LARGEST", 100_000)
    with pytest.raises(UserError, match=r"'\*' would record 687,744 weights.*for example --only stages\.2\.0\.second"):
        look(task, picture, only="*")
    assert len(look(task, picture, only="stages.2.0.second")) == 1
    view = view_of(task, picture)  # unless some are named, the last ones that fit
    assert view.maps[-1].name == "stages.2.0.second"
    assert 0 < view.details["left_out"] == 6 - len(view.maps) < 6


def test_a_view_holds_every_row_and_says_which_one_comes_first(tmp_path):
    task, picture = a_task(tmp_path, "vit"), a_picture()
    view, whole = view_of(task, picture, (4, 8)), recorded(task, picture)
    for attention in view.maps[1:]:
        np.testing.assert_allclose(attention.weights, whole[attention.name], atol=1e-5)
    assert set(view.seen_from.values()) == {1 + 1 * 6 + 2}
    assert view.details["pixel"] == {"row": 4, "column": 8}
    values = view.to_dict()
    assert [each["from"] for each in values["maps"]] == [9] * 4
    few = view.to_dict(most=100)
    assert [np.shape(each["weights"]) for each in few["maps"]] == [(1, 1, 25), (2, 1, 25), (2, 1, 25), (2, 1, 25)]


def test_a_picture_shows_the_heads_of_the_last_layer_unless_layers_are_named(tmp_path):
    task, picture = a_task(tmp_path, "vit"), a_picture()
    view = view_of(task, picture)
    assert [each.heads for each in view.summary] == [1, 1, 1, 2]
    assert view.hint == "shows the heads of the last layer: --only '*' draws those of all 3 layers"
    assert (view_of(task, picture, only="*").summary, view_of(task, picture, only="*").hint) == ((), "")


@pytest.mark.parametrize("model", ["vit", "pooled", "cnn", "resnet", "swin"])
def test_every_model_can_be_drawn_without_words_over_words(tmp_path, model):
    figure = view_of(a_task(tmp_path, model), a_picture()).figure()
    figure.canvas.draw()
    panels = [axes for axes in figure.axes if axes.images]
    boxes = [text.get_window_extent() for holder in (figure, *panels) for text in holder.texts if text.get_text()]
    assert not any(a.overlaps(b) for place, a in enumerate(boxes) for b in boxes[place + 1 :])


def test_panels_say_who_looks_where_that_differs(tmp_path):
    figure = view_of(a_task(tmp_path, "pooled"), a_picture()).figure()
    said = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert sum(text.startswith("from the average cell · ") for text in said) == 2 + 2  # heads, layers
    assert sum(text.startswith("from the pooling query · ") for text in said) == 3
    assert not any("[image]" in text for text in said)
