"""One picture of any common format, made upright and turned into 8-bit pixels of one size.

Grey, colour, palette, transparent (laid on white), CMYK and 16-bit pictures become 1 or 3 channels of 8 bits; a camera's note about how it
was held (EXIF) is followed. Another size is scaled to cover the one wanted, and what then overhangs is cut off on both sides alike; or it
is stretched to the one wanted, where nothing may be missing (`ImageShape.stretched`).

Axis legend: C channels, H rows, W columns.
"""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from saccade.data.image_shape import ImageShape
from saccade.errors import UserError

# Pillow knows many more formats; some of them start other programs, and all of them are code that reads strangers' bytes.
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
ENDINGS = frozenset(
    f".{ending}" for ending in ("png", "jpg", "jpeg", "jfif", "webp", "gif", "bmp", "tif", "tiff", "ppm", "pgm")
)

_GREY = frozenset(("1", "L", "LA", "La", "I", "F"))
_ORIENTATION = 0x0112  # the EXIF tag
Pixels = NDArray[np.uint8]


class BadImage(UserError):
    """A picture that cannot be used, in a sentence that begins with its name."""


class NoImage(BadImage):
    """There is no file to decode: a path was mistyped, or may not be read."""


def open_image(content: bytes, name: str) -> Image.Image:
    """The picture with its size and mode known and its pixels not decoded yet."""
    try:
        with _calmly():
            image = Image.open(io.BytesIO(content), formats=FORMATS)
            if image.format == "PNG":  # has checksums, which decoding does not look at
                Image.open(io.BytesIO(content), formats=("PNG",)).verify()
            return image
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        raise BadImage(
            f"{name} has more than the {Image.MAX_IMAGE_PIXELS:,} pixels that are decoded: make it smaller"
        ) from None
    except UnidentifiedImageError:
        what = f"is not a picture that can be read ({', '.join(FORMATS)})" if content else "is empty"
        raise BadImage(f"{name} {what}: replace it") from None
    except Exception as error:  # decoders of seven formats raise whatever they stumble over in damaged bytes
        raise _damaged(name, error) from None


def decode(image: Image.Image, shape: ImageShape, name: str) -> tuple[Pixels, bool]:
    """Pixels (C, H, W), and whether the picture had another size."""
    try:
        with _calmly():
            _check_range(image, name)
            upright = size_upright(image)
            # A JPEG decodes to 1/2, 1/4 or 1/8 of its size for a fraction of the work; twice what is wanted leaves scaling its quality.
            most = 2 * max(shape.rows, shape.columns)
            image.draft(None, (most, most))
            image = _in_channels(_turned(image), shape.channels, name)
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
    """Rows and columns once the picture stands upright."""
    lying = _orientation(image) in (5, 6, 7, 8) and image.format != "TIFF"  # of which Pillow gives the size upright
    columns, rows = image.size
    return (columns, rows) if lying else (rows, columns)


def is_grey(image: Image.Image) -> bool:
    return image.mode in _GREY or image.mode.startswith("I;16")


def from_array(array: Any, name: str) -> Image.Image:
    """A picture out of 8-bit pixels (H, W), (H, W, 1), (H, W, 3) or (H, W, 4)."""
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
    """A picture that decoding may change, out of one that belongs to somebody else."""
    try:
        _check_range(image, name)
        return image.copy()
    except BadImage:
        raise
    except Exception as error:
        raise _damaged(name, error) from None


@contextmanager
def _calmly() -> Iterator[None]:
    """Too many pixels are an error; what Pillow finds odd in a file that it can read is nothing to write to a person's terminal."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # a note that cannot be read is no reason to refuse a picture that can
        return 1


def _turned(image: Image.Image) -> Image.Image:
    return ImageOps.exif_transpose(image) if _orientation(image) in range(2, 9) else image


def _in_channels(image: Image.Image, channels: int, name: str) -> Image.Image:
    mode = "L" if channels == 1 else "RGB"
    if image.mode.startswith("I"):
        image = _eight_bits(image, name)
    if image.has_transparency_data:
        paper = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(paper, image.convert("RGBA"))
    return image if image.mode == mode else image.convert(mode)


def _check_range(image: Image.Image, name: str) -> None:
    """Asked of a file as it was opened: what turns or copies it forgets its format."""
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
    return BadImage(f"{name} is damaged or cut short ({reason}): replace it")
