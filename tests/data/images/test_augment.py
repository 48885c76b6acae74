"""Every augmentation against a plain loop, Pillow, or what can be said on paper."""

import math

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional as F

from saccade.data.image_shape import ImageShape
from saccade.data.images.augment import Augment, AugmentConfig, Changes, Standardise, cutout, flip_and_crop, mixup
from saccade.errors import ConfigError

PLAIN = Standardise((0.0, 0.0, 0.0), (1 / 255,) * 3)  # leaves bytes as they are, as floats


def pixels(batch: int = 64, channels: int = 3, rows: int = 6, columns: int = 9) -> torch.Tensor:
    torch.manual_seed(3)
    return torch.randint(0, 256, (batch, channels, rows, columns), dtype=torch.uint8)


def targets(batch: int = 64, classes: int = 5) -> torch.Tensor:
    return torch.eye(classes)[torch.arange(batch) % classes]


def one_change(
    kind: str, sign: int, strength: float = 1.0, count: int = 1, images: torch.Tensor | None = None
) -> Changes:
    """The same change for every image."""
    images = pixels() if images is None else images
    with pytest.MonkeyPatch.context() as patch:
        drawn = iter((Changes._KINDS.index(kind), (sign + 1) // 2))
        patch.setattr(torch, "randint", lambda high, size, device: torch.full(size, next(drawn)))
        return Changes.draw(images, count, strength)


def test_standardised_pixels_have_mean_0_and_deviation_1():
    images = pixels()
    share = images.double() / 255
    standardise = Standardise(share.mean((0, 2, 3)).tolist(), share.std((0, 2, 3), correction=0).tolist())
    result = standardise(images)
    assert result.dtype == torch.float32
    torch.testing.assert_close(result.mean((0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(result.std((0, 2, 3), correction=0), torch.ones(3), atol=1e-5, rtol=0)


def test_with_nothing_set_nothing_changes():
    images, wanted = pixels(), targets()
    augmented, same = Augment(AugmentConfig(), PLAIN)(images, wanted)
    torch.testing.assert_close(augmented, images.float())
    assert same is wanted


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_flipping_mirrors_the_asked_share_of_images_and_no_other(share):
    images = pixels(2000, rows=4, columns=5)
    flipped = flip_and_crop(images, share, 0)
    mirrored = (flipped == images.flip(3)).flatten(1).all(1)
    same = (flipped == images).flatten(1).all(1)
    assert (mirrored ^ same).all()
    assert abs(float(mirrored.float().mean()) - share) < 0.05


def test_cropping_is_a_crop_out_of_the_reflected_image():
    images, by = pixels(300), 3
    cropped = flip_and_crop(images, 0.0, by)
    padded = F.pad(images.float(), (by, by, by, by), mode="reflect").to(torch.uint8)
    rows, columns = images.shape[2:]
    seen = set()
    for one, wide in zip(cropped, padded, strict=True):
        places = [
            (down, right)
            for down in range(2 * by + 1)
            for right in range(2 * by + 1)
            if torch.equal(one, wide[:, down : down + rows, right : right + columns])
        ]
        assert places
        seen.update(places)
    assert len(seen) == (2 * by + 1) ** 2  # every shift occurs


def test_cutout_hides_one_square_with_its_middle_on_the_image():
    images = torch.ones(500, 2, 7, 9)
    hidden = cutout(images, 3) == 0
    assert torch.equal(hidden[:, 0], hidden[:, 1])
    sizes = set()
    for one in hidden[:, 0]:
        rows, columns = one.any(1).nonzero().flatten(), one.any(0).nonzero().flatten()
        height, width = len(rows), len(columns)
        assert int(one.sum()) == height * width == (rows[-1] - rows[0] + 1) * (columns[-1] - columns[0] + 1)
        sizes.add((height, width))
    assert sizes == {(height, width) for height in (2, 3) for width in (2, 3)}


def test_mixup_mixes_images_as_it_mixes_targets():
    classes = 8
    images = torch.arange(classes).float()[:, None, None, None].expand(classes, 3, 2, 2)
    mixed, wanted = mixup(images, torch.eye(classes), 1.0)
    torch.testing.assert_close(wanted.sum(1), torch.ones(classes))
    torch.testing.assert_close(mixed[:, 0, 0, 0], wanted @ torch.arange(classes).float())
    assert (wanted.diagonal() > 0).all()
    assert len(wanted.diagonal().unique()) > 2  # every image has a share of its own


@pytest.mark.parametrize("alpha", [0.2, 1.0])
def test_the_shares_of_mixup_follow_the_beta_distribution(alpha):
    torch.manual_seed(0)
    images = torch.tensor([0.0, 1.0]).view(2, 1, 1, 1)
    shares = torch.stack([mixup(images, torch.eye(2), alpha)[1][0, 0] for _ in range(1600)])
    shares = shares[shares < 1]  # half of the images are partners of themselves
    assert abs(float(shares.mean()) - 0.5) < 0.05
    assert abs(float(shares.var()) - 1 / (4 * (2 * alpha + 1))) < 0.015


@pytest.mark.parametrize("sign", [-1, 1])
def test_turning_turns_as_pillow_does(sign):
    images = F.interpolate(pixels(1, 1, 5, 7).float(), (40, 56), mode="bicubic", align_corners=True).clamp(0, 255)
    turned = one_change("turn", sign, images=images).place(images)
    degrees = math.degrees(Changes._TURN) * sign
    expected = Image.fromarray(images[0, 0].numpy()).rotate(degrees, Image.Resampling.BILINEAR)
    # Pillow leaves black what comes from outside without blending at its edge.
    inside = np.asarray(Image.fromarray(np.ones((40, 56), np.float32)).rotate(degrees, Image.Resampling.BILINEAR)) > 0
    inside &= F.max_pool2d(-torch.tensor(inside).float()[None, None], 3, 1, 1)[0, 0].numpy() < -0.5
    difference = np.abs(turned[0, 0].numpy() - np.asarray(expected))
    assert difference[inside].max() < 6
    assert np.abs(images[0, 0].numpy() - np.asarray(expected))[inside].max() > 60  # it did turn


@pytest.mark.parametrize(("kind", "axis"), [("shift x", 3), ("shift y", 2)])
def test_shifting_moves_by_a_share_of_the_image_and_fills_with_the_mean(kind, axis):
    images = torch.rand(2, 3, 20, 20) + 1
    moved = one_change(kind, 1, strength=5 / 9, images=images).place(images)  # 5/9 of .45 of 20 pixels are 5
    torch.testing.assert_close(moved.narrow(axis, 0, 15), images.narrow(axis, 5, 15), atol=1e-4, rtol=0)
    assert moved.narrow(axis, 15, 5).abs().max() < 1e-4


@pytest.mark.parametrize(("kind", "axis"), [("shear x", 3), ("shear y", 2)])
def test_shearing_keeps_the_middle_and_moves_the_edges_apart(kind, axis):
    images = torch.zeros(1, 1, 41, 61)
    line = [slice(None)] * 4
    line[axis] = slice(images.shape[axis] // 2, images.shape[axis] // 2 + 1)
    images[tuple(line)] = 1.0  # a line through the middle, across the direction of the shear
    moved = one_change(kind, 1, images=images).place(images)[0, 0]
    if axis == 2:
        moved = moved.T
    tops = moved.argmax(1)
    across, reach = moved.shape[1] // 2, moved.shape[0] // 2
    assert tops[reach] == across
    for end, sign in ((tops[0], 1), (tops[-1], -1)):
        assert abs(int(end) - across - sign * round(0.3 * reach)) <= 1


def test_two_changes_of_place_are_one_after_the_other():
    images = F.interpolate(pixels(2, 1, 5, 5).float(), (60, 60), mode="bicubic").clamp(0, 255)
    twice = one_change("turn", 1, strength=0.3, count=2, images=images).place(images)
    once = one_change("turn", 1, strength=0.6, images=images).place(images)
    torch.testing.assert_close(twice, once, atol=1e-2, rtol=0)


@pytest.mark.parametrize("sign", [-1, 1])
def test_colours_change_as_pillow_enhances_them(sign):
    from PIL import ImageEnhance

    images, strength = pixels(4), 0.5
    factor = 1 + 0.9 * strength * sign
    for kind, enhancer in (("brightness", ImageEnhance.Brightness), ("contrast", ImageEnhance.Contrast)):
        ours = one_change(kind, sign, strength, images=images).colour(images)
        for mine, one in zip(ours, images, strict=True):
            # The mean grey that contrast is measured from weighs the channels alike here, and by the eye in Pillow: use one channel.
            grey = Image.fromarray(one[0].numpy())
            single = one_change(kind, sign, strength, images=one[None, :1]).colour(one[None, :1])[0, 0]
            expected = torch.tensor(np.asarray(enhancer(grey).enhance(factor))).float()
            torch.testing.assert_close(single, expected, atol=2.0, rtol=0)
            assert mine.min() >= 0
            assert mine.max() <= 255


def test_without_colour_an_image_is_grey_and_with_more_it_keeps_its_grey():
    images = pixels(4)
    changes = Changes(
        torch.eye(2, 3).expand(4, 2, 3), torch.tensor([1.0, 1.0, 0.0]).view(3, 1, 1, 1, 1), torch.ones(4, 1, 1, 1)
    )
    result = changes.colour(images)
    expected = images.float().mean(1, keepdim=True).expand_as(result)
    torch.testing.assert_close(result, expected)


def test_solarising_turns_bright_pixels_over_as_pillow_does():
    from PIL import ImageOps

    images = pixels(4, 1)
    ours = one_change("solarise", 1, 0.5, images=images).colour(images)
    for mine, one in zip(ours, images, strict=True):
        expected = np.asarray(ImageOps.solarize(Image.fromarray(one[0].numpy()), 128))
        np.testing.assert_array_equal(mine[0].numpy(), expected)


def test_doing_nothing_is_one_of_the_changes():
    images = pixels(8)
    changes = one_change("nothing", 1, images=images)
    torch.testing.assert_close(changes.colour(images), images.float())
    torch.testing.assert_close(changes.place(images.float()), images.float(), atol=1e-2, rtol=0)


def test_all_together_keep_shapes_and_probabilities_and_differ_between_draws():
    config = AugmentConfig(flip=0.5, crop=2, random=2, cutout=3, mixup=0.4)
    for images in (pixels(), pixels(1, 1), pixels(7, 3, 5, 4)):
        augment = Augment(config, Standardise((0.5,) * images.shape[1], (0.25,) * images.shape[1]))
        result, wanted = augment(images, targets(len(images)))
        assert result.shape == images.shape
        assert result.isfinite().all()
        torch.testing.assert_close(wanted.sum(1), torch.ones(len(images)))
        assert not torch.equal(result, augment(images, targets(len(images)))[0])


def test_the_same_seed_gives_the_same_images_and_bytes_stay_as_they_were():
    augment = Augment(AugmentConfig(flip=0.5, crop=2, random=2, cutout=3, mixup=0.4), PLAIN)
    images = pixels()
    before = images.clone()
    torch.manual_seed(9)
    first = augment(images, targets())
    torch.manual_seed(9)
    second = augment(images, targets())
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    assert torch.equal(images, before)


@pytest.mark.parametrize("settings", [{"crop": 6}, {"cutout": 6}])
def test_more_than_the_image_has_is_refused(settings):
    with pytest.raises(ConfigError, match=r"= 6 is too large for images of 6 × 9 pixels: choose at most 5"):
        AugmentConfig(**settings).check_fits(ImageShape(3, 6, 9))
    AugmentConfig(**dict.fromkeys(settings, 5)).check_fits(ImageShape(3, 6, 9))
