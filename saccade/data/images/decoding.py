"""One image of any common format as upright 8-bit pixels of one size.

Grey, colour, palette, transparent (on white), CMYK and 16-bit images become 1 or 3 channels of 8 bits; the EXIF orientation is applied. An
image of another size is scaled to cover the one wanted and cropped to its centre, or stretched to it where nothing may be lost
(`ImageShape.stretched`).

Axis legend: C channels, H rows, W columns.
"""

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from saccade.data.image_shape import ImageShape
from saccade.errors import UserError

# Pillow knows many more formats; some start other programs, and each is more code that reads untrusted bytes.
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
ENDINGS = frozenset(
    f".{ending}" for ending in ("png", "jpg", "jpeg", "jfif", "webp", "gif", "bmp", "tif", "tiff", "ppm", "pgm")
)

_GREY = frozenset(("1", "L", "LA", "La", "I", "F"))
_ORIENTATION = 0x0112  # the EXIF tag
Pixels = NDArray[np.uint8]


_MOST_SCANS = 100  # progressive pictures have about ten
_MARKER = re.compile(rb"\xff[^\x00\x01\xd0-\xd7\xff]")  # of a part of a JPEG with a length of its own, or of its end
_SCAN, _START, _END = 0xDA, 0xD8, 0xD9


class _TooManyScans(Exception):
    """A JPEG refines the same pixels again and again."""


class BadImage(UserError):
    """An image that cannot be used; the message begins with its name."""


class NoImage(BadImage):
    """There is no file to decode: the path is wrong, or may not be read."""


def open_image(content: bytes, name: str) -> Image.Image:
    """The image with its size and mode; its pixels are not decoded yet."""
    try:
        with _strict_warnings():
            image = Image.open(io.BytesIO(content), formats=FORMATS)
            if image.format == "JPEG" and _scans(content) > _MOST_SCANS:
                raise _TooManyScans
            if image.format == "PNG":  # has checksums, which decoding ignores
                Image.open(io.BytesIO(content), formats=("PNG",)).verify()
            return image
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        raise BadImage(f"{name} has more than {Image.MAX_IMAGE_PIXELS:,} pixels: make it smaller") from None
    except _TooManyScans:
        raise BadImage(
            f"{name} has {_scans(content):,} scans, which take far too long to decode (at most {_MOST_SCANS}): save it anew"
        ) from None
    except UnidentifiedImageError:
        what = f"is not a picture that can be read ({', '.join(FORMATS)})" if content else "is empty"
        raise BadImage(f"{name} {what}: replace it") from None
    except Exception as error:  # the decoders of seven formats raise all kinds of errors on damaged bytes
        raise _damaged(name, error) from None


def _scans(content: bytes) -> int:
    """How often a JPEG goes over its pixels. What stands after its end does not count: phones put films there."""
    count = place = 0
    while match := _MARKER.search(content, place):
        kind = content[match.end() - 1]
        if kind == _END:
            break
        count += kind == _SCAN
        length = 0 if kind == _START else int.from_bytes(content[match.end() : match.end() + 2], "big")
        place = match.end() + length
    return count


def decode(image: Image.Image, shape: ImageShape, name: str) -> tuple[Pixels, bool]:
    """Pixels (C, H, W), and whether the image had another size."""
    try:
        with _strict_warnings():
            _check_range(image, name)
            upright = size_upright(image)
            # A JPEG decodes to 1/2, 1/4 or 1/8 of its size at a fraction of the cost; twice the size wanted keeps the quality of scaling.
            most = 2 * max(shape.rows, shape.columns)
            image.draft(None, (most, most))
            image = _in_channels(_upright(image), shape.channels, name)
            if image.size != (shape.columns, shape.rows):
                fit = Image.Image.resize if shape.stretched else ImageOps.fit
                image = fit(image, (shape.columns, shape.rows), Image.Resampling[shape.resampling.upper()])
            pixels = np.asarray(image, np.uint8).reshape(shape.rows, shape.columns, shape.channels)
    except BadImage:
        raise
    except Exception as error:
        raise _damaged(name, error) from None
    return np.ascontiguousarray(pixels.transpose(2, 0, 1)), upright != (shape.rows, shape.columns)  # -> (C, H, W)


def size_upright(image: Image.Image) -> tuple[int, int]:
    """Rows and columns after the EXIF orientation is applied."""
    sideways = _orientation(image) in (5, 6, 7, 8) and image.format != "TIFF"  # whose size Pillow gives upright
    columns, rows = image.size
    return (columns, rows) if sideways else (rows, columns)


def is_grey(image: Image.Image) -> bool:
    return image.mode in _GREY or image.mode.startswith("I;16")


def from_array(array: Any, name: str) -> Image.Image:
    """An image from 8-bit pixels (H, W), (H, W, 1), (H, W, 3) or (H, W, 4)."""
    array = np.asarray(array)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    fits = array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (3, 4))
    if array.dtype != np.uint8 or not fits or array.size == 0:
        raise BadImage(
            f"{name} is an array {array.shape} of {array.dtype}: give 8-bit pixels (uint8) as (rows, columns) or (rows, columns, 3)"
        )
    return Image.fromarray(array)


def copied(image: Image.Image, name: str) -> Image.Image:
    """A copy that decoding may change, of an image that belongs to the caller."""
    try:
        _check_range(image, name)
        return image.copy()
    except BadImage:
        raise
    except Exception as error:
        raise _damaged(name, error) from None


@contextmanager
def _strict_warnings() -> Iterator[None]:
    """Too many pixels are an error; Pillow's other warnings about files that it can read are ignored."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # damaged metadata is no reason to refuse the image
        return 1


def _upright(image: Image.Image) -> Image.Image:
    return ImageOps.exif_transpose(image) if _orientation(image) in range(2, 9) else image


def _in_channels(image: Image.Image, channels: int, name: str) -> Image.Image:
    mode = "L" if channels == 1 else "RGB"
    if image.mode.startswith("I"):
        image = _eight_bits(image, name)
    if image.has_transparency_data:
        background = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(background, image.convert("RGBA"))
    return image if image.mode == mode else image.convert(mode)


def _check_range(image: Image.Image, name: str) -> None:
    """Called right after opening: rotating or copying an image loses its format."""
    if image.mode == "F" or (image.mode == "I" and image.format == "TIFF"):
        kind = "floating-point pixels" if image.mode == "F" else "pixels of 32 bits"
        raise BadImage(f"{name} has {kind}, whose range is unknown: save it with 8 or 16 bits")


def _eight_bits(image: Image.Image, name: str) -> Image.Image:
    """16-bit grey to 8 bits. Pillow's own conversion would clip at 255 instead of scaling."""
    values = np.asarray(image)
    if values.min(initial=0) < 0 or values.max(initial=0) > 0xFFFF:
        raise BadImage(f"{name} has pixels of more than 16 bits: save it with 8 or 16 bits")
    return Image.fromarray((values.astype(np.uint32) >> 8).astype(np.uint8))


def _damaged(name: str, error: Exception) -> BadImage:
    reason = str(error) or type(error).__name__
    return BadImage(f"{name} is damaged or incomplete ({reason}): replace it")
