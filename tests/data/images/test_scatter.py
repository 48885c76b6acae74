"""Images put anywhere in a larger frame, with and without clutter."""

import pytest
import torch

from saccade.data.image_shape import ImageShape
from saccade.data.images.scatter import ScatterConfig, cluttered, scattered, shape_after, translated
from saccade.errors import UserError


def seeded(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def some_images(count: int = 5, channels: int = 1, rows: int = 6, columns: int = 4) -> torch.Tensor:
    return torch.randint(1, 256, (count, channels, rows, columns), generator=seeded(0), dtype=torch.uint8)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_frame_holds_its_own_image_whole_and_nothing_else(channels):
    images = some_images(channels=channels)
    frames = translated(images, 15, 11, seeded())
    assert frames.shape == (5, channels, 15, 11)
    assert frames.dtype == torch.uint8
    for image, frame in zip(images, frames, strict=True):
        rows, columns = (frame.sum(0) > 0).any(1).nonzero(), (frame.sum(0) > 0).any(0).nonzero()
        found = frame[:, rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
        assert torch.equal(found, image)


def test_every_place_is_as_likely_as_any_other():
    frames = translated(torch.ones(6000, 1, 2, 2), 3, 4, seeded())
    corners = frames[:, 0, :2, :3] * frames[:, 0, 1:, 1:]  # 1 where all of the image is
    shares = corners.mean(0)
    assert corners.sum() == 6000
    torch.testing.assert_close(shares, torch.full((2, 3), 1 / 6), atol=0.02, rtol=0)


def test_an_image_as_large_as_the_frame_stays_where_it_is():
    images = some_images()
    assert torch.equal(translated(images, 6, 4), images)


@pytest.mark.parametrize("scatter", [translated, cluttered])
def test_the_same_seed_gives_the_same_frames_and_another_seed_others(scatter):
    images = some_images(rows=9, columns=9)
    first = scatter(images, 30, 30, generator=seeded(1))
    assert torch.equal(scatter(images, 30, 30, generator=seeded(1)), first)
    assert not torch.equal(scatter(images, 30, 30, generator=seeded(2)), first)
    torch.manual_seed(5)
    unseeded = scatter(images, 30, 30)
    torch.manual_seed(5)
    assert torch.equal(scatter(images, 30, 30), unseeded)


def test_clutter_leaves_the_image_where_translation_alone_would_put_it():
    images = some_images(rows=9, columns=9)
    plain = translated(images, 30, 30, seeded(1))
    full = cluttered(images, 30, 30, pieces=4, side=3, generator=seeded(1))
    assert (full >= plain).all()
    assert not torch.equal(full, plain)
    assert torch.equal(cluttered(images, 30, 30, pieces=0, side=3, generator=seeded(1)), plain)


def test_pieces_come_from_other_images_only():
    # image b is all b + 1, so that every pixel of a frame says where it came from
    images = (torch.arange(8)[:, None, None, None] + 1).expand(8, 1, 6, 6).to(torch.uint8)
    plain = translated(images, 20, 20, seeded(1))
    full = cluttered(images, 20, 20, pieces=3, side=2, generator=seeded(1))
    sources = set()
    for own, before, after in zip(range(1, 9), plain, full, strict=True):
        added = after[before == 0]
        assert own not in added[added > 0].tolist()
        assert (added > 0).sum() <= 3 * 2 * 2
        sources |= set(added.tolist())
    assert len(sources) > 4


def test_a_piece_is_cut_out_of_an_image_as_it_is():
    images = torch.zeros(2, 1, 4, 4, dtype=torch.uint8)
    images[1] = torch.arange(1, 17).view(1, 4, 4)
    frame = cluttered(images, 10, 10, pieces=1, side=3, generator=seeded(1))[0, 0]
    rows, columns = frame.nonzero().min(0).values.tolist()
    piece = frame[rows : rows + 3, columns : columns + 3].long()
    assert (frame > 0).sum() == 9
    assert (piece.diff(dim=1) == 1).all()
    assert (piece.diff(dim=0) == 4).all()


def test_an_image_alone_has_itself_to_take_pieces_from():
    frame = cluttered(torch.ones(1, 1, 4, 4), 9, 9, pieces=5, side=2, generator=seeded())
    assert frame.sum() > 16


def test_the_config_says_which_way():
    images = some_images(rows=9, columns=9)
    config = ScatterConfig(kind="cluttered", rows=20, columns=22, pieces=2, side=5)
    assert torch.equal(scattered(images, config, seeded()), cluttered(images, 20, 22, 2, 5, seeded()))
    config = ScatterConfig(kind="translated", rows=20, columns=22)
    assert torch.equal(scattered(images, config, seeded()), translated(images, 20, 22, seeded()))
    assert shape_after(config, ImageShape(3, 9, 9)) == ImageShape(3, 20, 22)
    assert scattered(images, ScatterConfig()) is images
    assert shape_after(ScatterConfig(), ImageShape(3, 9, 9)) == ImageShape(3, 9, 9)


def test_what_does_not_fit_is_named_with_its_size():
    with pytest.raises(UserError, match="6 × 4 do not fit into a frame of 5 × 9"):
        translated(some_images(), 5, 9)
    with pytest.raises(UserError, match="pieces of 5 × 5 cannot be cut out of images of 6 × 4"):
        cluttered(some_images(), 9, 9, side=5)
