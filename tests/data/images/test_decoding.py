"""Every kind of picture becomes the right 8-bit pixels, and every bad one a sentence: against Pillow and numpy."""

import io
import struct
import warnings
import zlib
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from saccade.data.image_shape import ImageShape
from saccade.data.images.decoding import BadImage, copied, decode, from_array, is_grey, open_image, size_upright

COLOUR, GREY = ImageShape(3, 6, 8), ImageShape(1, 6, 8)
RAMP = np.linspace(0, 255, 6 * 8 * 3).astype(np.uint8).reshape(6, 8, 3)


def packed(image: Image.Image, kind: str = "PNG", **options) -> bytes:
    content = io.BytesIO()
    image.save(content, kind, **options)
    return content.getvalue()


def unpacked(content: bytes, shape: ImageShape = COLOUR, name: str = "a.png"):
    pixels, resized = decode(open_image(content, name), shape, name)
    assert pixels.shape == (shape.channels, shape.rows, shape.columns)
    assert pixels.dtype == np.uint8
    return pixels.transpose(1, 2, 0), resized


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "PPM"])
def test_a_colour_picture_keeps_its_pixels(kind):
    pixels, resized = unpacked(packed(Image.fromarray(RAMP), kind))
    np.testing.assert_array_equal(pixels, RAMP)
    assert not resized


@pytest.mark.parametrize("kind", ["JPEG", "WEBP", "GIF"])
def test_lossy_formats_decode_as_pillow_decodes_them(kind):
    content = packed(Image.fromarray(RAMP), kind)
    with Image.open(io.BytesIO(content)) as image:
        np.testing.assert_array_equal(unpacked(content)[0], np.asarray(image.convert("RGB")))


def test_colour_becomes_grey_and_grey_becomes_colour():
    grey = Image.fromarray(RAMP).convert("L")
    np.testing.assert_array_equal(unpacked(packed(Image.fromarray(RAMP)), GREY)[0][..., 0], np.asarray(grey))
    np.testing.assert_array_equal(unpacked(packed(grey))[0], np.repeat(np.asarray(grey)[..., None], 3, 2))


def test_sixteen_bits_are_scaled_and_not_clipped():
    values = np.linspace(0, 65535, 48).astype(np.uint16).reshape(6, 8)
    for kind in ("PNG", "TIFF"):
        pixels, _ = unpacked(packed(Image.fromarray(values), kind), GREY)
        np.testing.assert_array_equal(pixels[..., 0], values // 256)


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_what_shows_through_is_white(mode):
    image = Image.new(mode, (8, 6))  # black and wholly transparent
    assert (unpacked(packed(image))[0] == 255).all()
    image.putalpha(255)
    assert (unpacked(packed(image))[0] == 0).all()


def test_a_palette_is_looked_up_and_its_transparent_colour_is_white():
    image = Image.fromarray(RAMP).quantize(16)
    np.testing.assert_array_equal(unpacked(packed(image))[0], np.asarray(image.convert("RGB")))
    see_through = unpacked(packed(image, transparency=image.getpixel((0, 0))))[0]
    assert (see_through[0, 0] == 255).all()


@pytest.mark.parametrize("mode", ["1", "CMYK", "YCbCr"])
def test_rarer_modes_are_converted_as_pillow_does(mode):
    image = Image.fromarray(RAMP).convert(mode)
    pixels, _ = unpacked(packed(image, "TIFF"))
    np.testing.assert_array_equal(pixels, np.asarray(image.convert("RGB")))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_picture_taken_sideways_stands_upright(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = packed(Image.fromarray(RAMP), "PNG", exif=exif)
    expected = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(content))))
    assert size_upright(open_image(content, "a")) == expected.shape[:2]
    pixels, resized = unpacked(content, ImageShape(3, *expected.shape[:2]))
    np.testing.assert_array_equal(pixels, expected)
    assert not resized


def test_another_size_is_scaled_to_cover_and_cut_on_both_sides_alike():
    image = Image.fromarray(np.hstack([np.zeros((20, 10), np.uint8), np.full((20, 60), 200, np.uint8)]))
    pixels, resized = unpacked(packed(image), ImageShape(1, 10, 10))
    assert resized
    assert (pixels == 200).all()  # 25 of the 70 columns are cut on each side, the black ones with them
    whole = unpacked(packed(image), ImageShape(1, 10, 35))[0][..., 0]
    np.testing.assert_array_equal(whole, np.asarray(image.resize((35, 10), Image.Resampling.BICUBIC)))


def test_another_size_is_stretched_where_nothing_may_be_missing():
    image = Image.fromarray(np.hstack([np.zeros((20, 10), np.uint8), np.full((20, 60), 200, np.uint8)]))
    pixels, resized = unpacked(packed(image), ImageShape(1, 10, 14, stretched=True))
    assert resized
    np.testing.assert_array_equal(pixels[..., 0], np.asarray(image.resize((14, 10), Image.Resampling.BICUBIC)))


def test_a_single_pixel_fills_the_whole_picture():
    pixels, resized = unpacked(packed(Image.new("RGB", (1, 1), (10, 20, 30))))
    assert resized
    assert (pixels == [10, 20, 30]).all()


def test_a_large_jpeg_shrinks_to_nearly_the_same_as_without_shortcuts():
    x = np.linspace(0, 20, 900)
    smooth = (127 + 100 * np.sin(x[:, None] / 3) * np.cos(x[None, :] / 2)).astype(np.uint8)
    content = packed(Image.fromarray(smooth), "JPEG", quality=95)
    pixels, _ = unpacked(content, ImageShape(1, 32, 32))
    exact = np.asarray(Image.open(io.BytesIO(content)).resize((32, 32), Image.Resampling.BICUBIC))
    assert (
        np.abs(pixels[..., 0].astype(int) - exact).max() <= 5
    )  # of 255: an eighth of 900 is no whole number of pixels


def test_only_the_first_picture_of_an_animation_counts():
    first, second = Image.new("L", (8, 6), 255), Image.new("L", (8, 6), 0)
    content = packed(first, "GIF", save_all=True, append_images=[second])
    assert (unpacked(content, GREY)[0] == 255).all()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "cat/1.png is empty: replace it"),
        (b"not a picture at all", "cat/1.png is not a picture that can be read"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "cat/1.png is not a picture that can be read"),
    ],
)
def test_what_is_no_picture_is_named(content, sentence):
    with pytest.raises(BadImage, match=sentence):
        open_image(content, "cat/1.png")


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_a_picture_cut_short_is_named(kind):
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8))
    content = packed(noise, kind)
    with pytest.raises(BadImage, match=r"cat/1\.png (is damaged or incomplete|is not a picture)"):
        unpacked(content[: len(content) // 2], name="cat/1.png")


def test_a_bomb_is_refused_before_it_is_decoded(monkeypatch):
    header = b"IHDR" + struct.pack(">IIBBBBB", 20_000, 20_000, 8, 2, 0, 0, 0)
    content = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))
    content += packed(Image.new("RGB", (1, 1)))[33:]  # its pixels would be missing, but nobody gets that far
    with pytest.raises(BadImage, match="has more than 89,478,485 pixels"):
        open_image(content, "bomb.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 300)  # 20 × 20 is above it, but not twice above it
    with pytest.raises(BadImage, match="more than 300 pixels"):
        open_image(packed(Image.new("L", (20, 20))), "small bomb.png")


def test_a_picture_that_is_refined_for_ever_is_refused_before_it_is_decoded():
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8))
    content = packed(noise, "JPEG", progressive=True)
    last = content.rindex(b"\xff\xda")
    bomb = content[:last] + content[last:-2] * 200 + content[-2:]
    with pytest.raises(BadImage, match=r"bomb\.jpg has 2\d\d scans, which take far too long .*at most 100"):
        open_image(bomb, "bomb.jpg")
    with_a_film = content + b"\xff\xda" * 500
    assert unpacked(with_a_film)[0].shape == (6, 8, 3)


def test_pixels_of_unknown_range_are_refused():
    with pytest.raises(BadImage, match="floating-point pixels"):
        unpacked(packed(Image.new("F", (8, 6)), "TIFF"))
    exif = Image.Exif()
    exif[0x0112] = 6
    for value, options in ((200, {}), (70_000, {}), (200, {"exif": exif})):
        content = packed(Image.fromarray(np.full((6, 8), value, np.int32)), "TIFF", **options)
        with pytest.raises(BadImage, match="pixels of 32 bits"):
            unpacked(content, GREY)
        with pytest.raises(BadImage, match="pixels of 32 bits"):
            copied(Image.open(io.BytesIO(content)), "a picture")


def test_one_wrong_byte_in_a_png_is_noticed_by_its_checksum():
    content = packed(Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)))
    start = content.index(b"IDAT") + 4
    for place in (start + 30, start + 1000):
        damaged = content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
        with pytest.raises(BadImage, match="damaged or incomplete"):
            unpacked(damaged)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_turned_tiff_is_upright_by_path_and_as_a_picture(orientation, dtype):
    values = np.random.default_rng(0).integers(0, np.iinfo(dtype).max + 1, (5, 9), dtype=dtype)
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = packed(Image.fromarray(values), "TIFF", exif=exif)
    png = packed(
        Image.fromarray(values), "PNG", exif=exif
    )  # Pillow leaves these as they are, so this is turned by its note alone
    rows, columns = size_upright(open_image(png, "a.png"))
    shape = ImageShape(1, rows, columns)
    expected, _ = unpacked(png, shape)
    assert size_upright(open_image(content, "a.tiff")) == (rows, columns)
    pixels, resized = unpacked(content, shape)
    np.testing.assert_array_equal(pixels, expected)
    assert not resized
    given = copied(Image.open(io.BytesIO(content)), "a picture")
    np.testing.assert_array_equal(decode(given, shape, "a picture")[0].transpose(1, 2, 0), expected)


@settings(max_examples=60, deadline=None)
@given(kind=st.sampled_from(["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM"]), data=st.data())
def test_damaged_bytes_only_ever_raise_bad_image(kind, data):
    content = bytearray(packed(Image.fromarray(RAMP), kind))
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with suppress(BadImage):
            unpacked(bytes(content[: data.draw(st.integers(0, len(content)))]))


def test_damaged_metadata_is_ignored():
    content = packed(Image.fromarray(RAMP), "PNG", exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff broken")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(unpacked(content)[0], RAMP)


def test_grey_is_recognised_without_decoding():
    modes = {"L": True, "1": True, "LA": True, "RGB": False, "RGBA": False, "P": False}
    assert {mode: is_grey(open_image(packed(Image.new(mode, (4, 4))), "a")) for mode in modes} == modes
    assert is_grey(open_image(packed(Image.fromarray(np.zeros((4, 4), np.uint16))), "a"))


@pytest.mark.parametrize("shape", [(6, 8), (6, 8, 1), (6, 8, 3), (6, 8, 4)])
def test_arrays_are_pictures(shape):
    array = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    assert from_array(array, "x").size == (8, 6)


@pytest.mark.parametrize("array", [np.zeros((6, 8)), np.zeros((6, 8, 2), np.uint8), np.zeros((0, 8), np.uint8), [1, 2]])
def test_an_array_of_something_else_is_refused(array):
    with pytest.raises(BadImage, match="give 8-bit pixels"):
        from_array(array, "the array")


def test_somebody_elses_picture_is_not_changed():
    image = Image.open(io.BytesIO(packed(Image.fromarray(np.zeros((400, 400, 3), np.uint8)), "JPEG")))
    decode(copied(image, "x"), COLOUR, "x")
    assert image.size == (400, 400)
    broken = Image.open(io.BytesIO(packed(Image.fromarray(RAMP))[:-30]))
    with pytest.raises(BadImage, match="x is damaged"):
        copied(broken, "x")
