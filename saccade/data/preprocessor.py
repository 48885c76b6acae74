"""How a model in Hugging Face's format wants its pixels: preprocessor_config.json beside its weights.

    x = (pixel / 255 - mean) / deviation,  of an image that was stretched to the model's size or cut to its proportions

Without the file mean and deviation are 0.5, and images are stretched bilinearly, as their own ViT does.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from saccade.errors import UserError


@dataclass(frozen=True)
class Preprocessor:
    mean: tuple[float, ...]  # of each channel, pixels counted from 0 to 1
    deviation: tuple[float, ...]
    stretched: bool
    resampling: str


def read_preprocessor(directory: Path, channels: int) -> Preprocessor:
    path = directory / "preprocessor_config.json"
    try:
        settings = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        mean, deviation = (_of_channels(settings, name, channels) for name in ("image_mean", "image_std"))
        if min(deviation) <= 0:
            raise ValueError(f"the deviation {deviation} is not above 0")
        if abs(255 * settings.get("rescale_factor", 1 / 255) - 1) > 1e-6 or not settings.get("do_rescale", True):
            raise ValueError("pixels must be counted from 0 to 1")
        if not settings.get("do_normalize", True):
            mean, deviation = (0.0,) * channels, (1.0,) * channels
        size = settings.get("size", {})
        stretched = not (isinstance(size, dict) and "shortest_edge" in size)
        resampling = Image.Resampling(settings.get("resample", Image.Resampling.BILINEAR)).name.lower()
        return Preprocessor(mean, deviation, stretched, resampling)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} does not say how pixels are standardised ({error}): copy the model again") from None


def _of_channels(settings: dict[str, Any], name: str, channels: int) -> tuple[float, ...]:
    values = tuple(float(value) for value in settings.get(name, (0.5,) * channels))
    if len(values) != channels:
        raise ValueError(f"{name} {list(values)} is not for {channels} channels")
    return values
