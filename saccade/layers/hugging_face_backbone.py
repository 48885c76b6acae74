"""A vision backbone in Hugging Face's format (config.json, model.safetensors) from a local folder: nothing is loaded from elsewhere.

The class comes from the package transformers; code that lies in the folder is not run, and weights are read from safetensors only.
How pixels are standardised is in preprocessor_config.json.

Axis legend: B batch, N tokens, R rows and S columns of cells, D features.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from saccade.data.image_shape import ImageShape
from saccade.data.images.preprocessor import read_standardisation
from saccade.errors import UserError

Values = tuple[float, ...]
_MOST_EXTRA = 8  # tokens in front of the patches: [class], distillation, registers


@dataclass(frozen=True)
class Backbone:
    model: nn.Module
    size: int
    grid: tuple[int, int]
    mean: Values  # of bytes, for each channel
    deviation: Values


def load_backbone(directory: Path, image: ImageShape) -> Backbone:
    """The model, and what it makes of an image of this shape."""
    model = _load(directory)
    try:
        with torch.no_grad():
            blank = torch.zeros(1, image.channels, image.rows, image.columns)
            hidden = model(pixel_values=blank).last_hidden_state
    except Exception as error:  # every architecture checks its input in its own way
        said = str(error).replace("\n", " ")
        raise UserError(
            f"{directory} does not take images of {image.rows} × {image.columns} pixels ({said}): "
            "set data.rows and data.columns to the size it was trained on"
        ) from None
    if hidden.dim() == 4:
        size, *sides = hidden.shape[1:]
        grid = int(sides[0]), int(sides[1])
    else:
        size, grid = hidden.shape[2], _patches(model.config, image, directory)
        if not 0 <= hidden.shape[1] - grid[0] * grid[1] <= _MOST_EXTRA:
            raise UserError(
                f"{directory} gives {hidden.shape[1]} tokens for {grid[0]} × {grid[1]} patches: "
                "choose a backbone with a token for each patch, or a convolutional one"
            )
    wanted = read_standardisation(directory, image.channels)
    mean, deviation = (tuple(255 * value for value in values) for values in (wanted.mean, wanted.deviation))
    return Backbone(model, int(size), grid, mean, deviation)


def _load(directory: Path) -> Any:
    try:
        from transformers import AutoModel
    except ImportError:
        raise UserError(
            "encoders of Hugging Face need the package transformers: run `pip install transformers`, or choose another encoder"
        ) from None
    try:
        with _without_progress():
            return AutoModel.from_pretrained(directory, local_files_only=True, use_safetensors=True).eval()
    except Exception as error:  # files of many kinds are read, by code of many hands
        said = str(error).split("\n")[0]
        raise UserError(
            f"{directory} cannot be loaded as a vision backbone ({said}): give a folder with config.json and model.safetensors"
        ) from None


@contextmanager
def _without_progress() -> Iterator[None]:
    from transformers.utils import logging

    was_shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_shown:
            logging.enable_progress_bar()


def _patches(settings: Any, image: ImageShape, directory: Path) -> tuple[int, int]:
    patch = getattr(settings, "patch_size", None)
    if patch is None:
        raise UserError(f"{directory} has no patch_size in its config.json: choose a ViT or a convolutional backbone")
    rows, columns = (patch, patch) if isinstance(patch, int) else patch
    return image.rows // rows, image.columns // columns
