"""The preprocessing of a model in Hugging Face's format: preprocessor_config.json beside its weights.

    x = (pixel / 255 - mean) / deviation,  of an image that was stretched to the model's size

Without the file, mean and deviation are 0.5 and images are stretched bilinearly, as for their ViT.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from saccade.errors import UserError
from saccade.files import read_text


@dataclass(frozen=True)
class Standardisation:
    mean: tuple[float, ...]  # of each channel, pixels counted from 0 to 1
    deviation: tuple[float, ...]


def read_standardisation(directory: Path, channels: int) -> Standardisation:
    path, settings = _read(directory)
    try:
        if settings.get("do_normalize") is False:
            return Standardisation((0.0,) * channels, (1.0,) * channels)
        mean, deviation = (_of_channels(settings, name, channels) for name in ("image_mean", "image_std"))
        if not all(value > 0 for value in deviation):
            raise ValueError(f"the deviation {list(deviation)} is not above 0")
        return Standardisation(mean, deviation)
    except (ValueError, TypeError) as error:
        raise UserError(f"{path} does not say how pixels are standardised ({error}): copy the model again") from None


def read_resampling(directory: Path) -> str:
    """The filter that stretches images to the model's size; any other preprocessing is refused."""
    path, settings = _read(directory)
    size = settings.get("size")
    unsupported = {
        "crops the centre of an image (do_center_crop)": settings.get("do_center_crop"),
        "does not resize images (do_resize)": settings.get("do_resize") is False,
        "scales images by one side (size)": isinstance(size, dict) and "height" not in size,
        "scales pixel values differently (do_rescale, rescale_factor)": settings.get("do_rescale") is False
        or not math.isclose(255 * float(settings.get("rescale_factor", 1 / 255)), 1, rel_tol=1e-6),
    }
    for what, holds in unsupported.items():
        if holds:
            raise UserError(
                f"{path} {what}, and only stretching to the model's size is supported: choose another model"
            )
    try:
        return Image.Resampling(settings.get("resample", Image.Resampling.BILINEAR)).name.lower()
    except ValueError as error:
        raise UserError(f"{path} names a filter that Pillow does not have ({error}): copy the model again") from None


def _read(directory: Path) -> tuple[Path, dict[str, Any]]:
    """The settings that are not null."""
    path = directory / "preprocessor_config.json"
    try:
        settings = json.loads(read_text(path)) if path.exists() else {}
        return path, {name: value for name, value in settings.items() if value is not None}
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise UserError(f"{path} does not say how pixels are standardised ({error}): copy the model again") from None


def _of_channels(settings: dict[str, Any], name: str, channels: int) -> tuple[float, ...]:
    values = tuple(float(value) for value in settings.get(name, (0.5,) * channels))
    if len(values) != channels:
        raise ValueError(f"{name} {list(values)} is not for {channels} channels")
    return values
