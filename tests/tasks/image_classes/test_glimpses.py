"""The view of a glimpse network is the path that it predicts by."""

import numpy as np
import pytest
import torch

from saccade.config.options import chosen
from saccade.config.recipe import load
from saccade.data.image_shape import ImageShape
from saccade.errors import ConfigError
from saccade.models.glimpse import Config, build
from saccade.models.shapes import Shapes
from saccade.tasks.image_classes.glimpses import shares
from saccade.tasks.image_classes.look import look
from saccade.tasks.image_classes.options import ImageOptions
from saccade.tasks.image_classes.task import Classified, ImageClassTask
from saccade.tasks.task import Example

DIGITS = tuple("0123456789")


@pytest.fixture(scope="module")
def digits(tmp_path_factory) -> ImageClassTask:
    recipe = load("digits-glimpse", ["model.hidden=16", "model.scales=2"])
    task = ImageClassTask.prepare(recipe, tmp_path_factory.mktemp("digits"), say=lambda sentence: None)
    torch.manual_seed(0)
    torch.nn.init.normal_(task.model.policy.mean.weight)  # or every glimpse stays in the middle
    return task


@pytest.fixture
def image(digits) -> np.ndarray:
    return digits.images.test.pixels[0, 0]


def the_answer(task: ImageClassTask, image: np.ndarray) -> Classified:
    return next(task.answers([Example(image)], ImageOptions(best=None)))


def test_a_view_shows_the_path_of_the_prediction(digits, image):
    view, answer = look(digits, Example(image)), the_answer(digits, image)
    steps = view.maps[0].queries
    assert view.answer == answer.to_dict()
    assert view.title == f"{answer.text} (probability {answer.probability:.2f})"
    assert view.subtitle.endswith(f"after {len(steps)} glimpses")
    np.testing.assert_array_equal(view.picture[..., 0], image)
    assert steps.classes == DIGITS
    assert max(steps.probabilities[-1]) == pytest.approx(answer.probability, abs=1e-5)
    np.testing.assert_allclose(np.sum(steps.probabilities, axis=1), 1, atol=1e-5)
    assert len(set(steps.windows)) > 1


def test_looking_does_not_change_the_model(digits, image):
    before = {name: tensor.clone() for name, tensor in digits.model.state_dict().items()}
    look(digits, Example(image))
    assert all(torch.equal(tensor, before[name]) for name, tensor in digits.model.state_dict().items())


def test_patches_are_what_the_windows_hold_and_beyond_the_edge_lies_the_mean_colour(digits, image):
    """The retina fills up with 0, and 0 is the mean colour once an image is standardised."""
    steps = look(digits, Example(image)).maps[0].queries
    padded = np.pad(image / 255, 20, constant_values=digits.images.mean[0])
    for windows, patches in zip(steps.windows, steps.patches, strict=True):
        for scale, (row, column, side) in enumerate(windows):
            window = padded[20 + row : 20 + row + side, 20 + column : 20 + column + side]
            patch = len(patches[scale])
            blocks = window.reshape(patch, 2**scale, patch, 2**scale).mean(axis=(1, 3))
            np.testing.assert_allclose(patches[scale], blocks, atol=1e-5)


def test_colour_images_have_patches_in_colour(digits, monkeypatch):
    monkeypatch.setattr(digits, "model", build(Config(patch=4, hidden=16), Shapes(ImageShape(3, 14, 18), 10)))
    monkeypatch.setattr(digits, "shape", ImageShape(3, 14, 18))
    monkeypatch.setattr(digits, "standardise", lambda pixels: pixels / 255)
    view = look(digits, Example(np.zeros((14, 18, 3), np.uint8)))
    assert view.maps[0].queries.patches[0][0].shape == (4, 4, 3)


def test_the_weights_are_each_pixels_share_in_what_was_seen():
    windows = [[[2, 3, 4], [0, 1, 8]], [[-2, -2, 4], [-4, -4, 8]]]
    expected = np.zeros((2, 14, 18))
    for glimpse, squares in enumerate(windows):
        for top, left, side in squares:
            for row in range(max(top, 0), min(top + side, 14)):
                for column in range(max(left, 0), min(left + side, 18)):
                    expected[glimpse, row, column] += 0.5 / side**2
    np.testing.assert_allclose(shares(windows, (14, 18)), expected)
    assert expected.sum(axis=(1, 2)) == pytest.approx([1, 0.25])  # less than 1 over the edge


def test_a_pixel_or_a_layer_of_a_path_is_refused(digits, image):
    options = digits.options(digits.recipe)
    for name in ("pixel", "only"):
        with pytest.raises(ConfigError, match=f"^--{name} is not an option of look for run: it takes none"):
            chosen(options, "look", {name: "0,0"}, "run", "--{}")
