"""The retina against a numpy loop, torch's own pooling and torch's own grid_sample."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from saccade.layers.retina import Retina


def seen_by_hand(image: np.ndarray, location: tuple[float, float], patch: int, scales: int) -> np.ndarray:
    """One image (C, H, W): every pixel of every window read one at a time, 0 outside, then the mean of each block."""
    channels, rows, columns = image.shape
    centre = [round((place + 1) / 2 * size) for place, size in zip(location, (rows, columns), strict=True)]
    result = np.zeros((scales, channels, patch, patch))
    for scale in range(scales):
        block = 2**scale
        first = [middle - patch * block // 2 for middle in centre]
        for row in range(patch * block):
            for column in range(patch * block):
                y, x = first[0] + row, first[1] + column
                if 0 <= y < rows and 0 <= x < columns:
                    result[scale, :, row // block, column // block] += image[:, y, x] / block**2
    return result


@pytest.mark.parametrize(("patch", "scales", "shape"), [(4, 1, (1, 9, 9)), (2, 3, (3, 8, 13)), (6, 2, (1, 5, 4))])
def test_every_scale_is_the_mean_of_blocks_around_the_location(patch, scales, shape):
    torch.manual_seed(0)
    images = torch.randn(7, *shape).double()
    location = torch.tensor([[0, 0], [-1, -1], [1, 1], [1, -1], [0.3, -0.7], [-0.45, 0.9], [0.11, 0.52]]).double()
    retina = Retina(patch, scales)
    seen = retina(retina.prepare(images), location)
    for image, place, mine in zip(images, location.tolist(), seen, strict=True):
        np.testing.assert_allclose(mine.numpy(), seen_by_hand(image.numpy(), place, patch, scales), atol=1e-12)


def test_a_coarse_scale_is_torchs_average_pooling():
    torch.manual_seed(0)
    images = torch.randn(2, 3, 16, 16).double()
    retina = Retina(4, 3)
    seen = retina(retina.prepare(images), torch.zeros(2, 2))
    for scale in range(3):
        half = 2 * 2**scale
        window = images[:, :, 8 - half : 8 + half, 8 - half : 8 + half]
        torch.testing.assert_close(seen[:, scale], F.avg_pool2d(window, 2**scale), atol=1e-12, rtol=0)


def test_on_whole_pixels_the_finest_scale_is_torchs_grid_sample():
    torch.manual_seed(0)
    rows, columns, patch = 10, 12, 4
    images = torch.randn(5, 2, rows, columns).double()
    centre = torch.tensor([[5, 6], [0, 0], [10, 12], [3, 11], [7, 1]]).double()
    size = torch.tensor([rows, columns]).double()
    location = 2 * centre / size - 1
    offset = torch.arange(patch).double() + 0.5 - patch / 2
    y = (centre[:, :1] + offset) * 2 / rows - 1
    x = (centre[:, 1:] + offset) * 2 / columns - 1
    grid = torch.stack((x[:, None, :].expand(5, patch, patch), y[:, :, None].expand(5, patch, patch)), -1)
    retina = Retina(patch, 1)
    expected = F.grid_sample(images, grid, padding_mode="zeros", align_corners=False)
    torch.testing.assert_close(retina(retina.prepare(images), location)[:, 0], expected, atol=1e-10, rtol=0)


def test_the_first_number_of_a_location_is_the_row():
    images = torch.zeros(1, 1, 8, 8)
    images[0, 0, 7, 0] = 1.0
    retina = Retina(2, 1)
    windows = retina.prepare(images)
    assert retina(windows, torch.tensor([[0.99, -0.99]])).sum() == 1
    assert retina(windows, torch.tensor([[-0.99, 0.99]])).sum() == 0


def test_a_location_outside_is_moved_to_the_edge():
    images = torch.arange(64.0).view(1, 1, 8, 8)
    retina = Retina(4, 2)
    windows = retina.prepare(images)
    outside, edge = (retina(windows, torch.tensor([place])) for place in ([-3.0, 1.7], [-1.0, 1.0]))
    assert torch.equal(outside, edge)


def test_an_aligned_location_is_the_nearest_on_whole_pixels_and_sees_the_same():
    torch.manual_seed(0)
    images, location = torch.randn(50, 1, 8, 11), 3 * torch.rand(50, 2) - 1.5
    retina = Retina(4, 1)
    aligned = retina.aligned(location, (8, 11))
    pixels = (aligned + 1) / 2 * torch.tensor([8, 11])
    torch.testing.assert_close(pixels, pixels.round())
    assert ((aligned - location.clamp(-1, 1)).abs() <= 1 / torch.tensor([8, 11]) + 1e-6).all()
    windows = retina.prepare(images)
    assert torch.equal(retina(windows, aligned), retina(windows, location))


@pytest.mark.parametrize("scales", [1, 2, 3])
def test_the_windows_are_where_the_pixels_come_from(scales):
    torch.manual_seed(0)
    images = torch.randn(4, 1, 12, 9).double()
    retina = Retina(2, scales)
    location = 2 * torch.rand(4, 2) - 1
    seen = retina(retina.prepare(images), location)
    squares = retina.windows(location, (12, 9))
    assert squares.shape == (4, scales, 3)
    padded = F.pad(images, [20] * 4)
    for image in range(4):
        for scale, (row, column, side) in enumerate(squares[image].tolist()):
            assert side == 2 * 2**scale
            window = padded[image, :, 20 + row : 20 + row + side, 20 + column : 20 + column + side]
            torch.testing.assert_close(seen[image, scale], F.avg_pool2d(window, 2**scale), atol=1e-12, rtol=0)


def test_preparing_copies_the_image_once_and_not_every_window():
    windows = Retina(12, 3).prepare(torch.zeros(2, 1, 60, 60))
    assert windows.shape == (2, 1, 61, 61, 48, 48)
    assert windows.untyped_storage().nbytes() == 4 * 2 * 108 * 108


@pytest.mark.parametrize(("patch", "scales"), [(3, 1), (0, 1), (4, 0)])
def test_a_retina_that_cannot_be_is_refused(patch, scales):
    with pytest.raises(ValueError, match="even patch"):
        Retina(patch, scales)
