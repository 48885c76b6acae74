"""One look at one example: what the model answered, what it looked at, and the attention maps in between.

A task makes a View; a View knows no task. It draws itself by the axes of its maps: `save` writes a picture, a page or data by the ending.
"""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from saccade.views.maps import AttentionMap


@dataclass(frozen=True)
class Word:
    """A word of an answer and how probable it was."""

    text: str
    probability: float


@dataclass(frozen=True, eq=False)
class View:
    title: str  # the line above everything: the sentence, or the class with its probability
    maps: tuple[AttentionMap, ...]  # all that were recorded, in the order of the model
    text: str = ""  # the answer in one line
    answer: Mapping[str, Any] = field(default_factory=dict)  # the answer as JSON values
    subtitle: str = ""
    truth: str | None = None  # the reference, where it is known
    picture: NDArray[np.uint8] | None = None  # (rows, columns, channels): what the cells of grids lie over
    words: tuple[Word, ...] = ()  # of an answer that was written word by word
    seen_from: Mapping[str, int] = field(default_factory=dict)  # by the name of a map: the query that is shown first
    summary: tuple[AttentionMap, ...] = ()  # what a picture shows instead of `maps`, where those are too many
    first: int = 0  # the map that a page opens on
    hint: str = ""  # what a picture leaves out, and how to see it
    details: Mapping[str, Any] = field(default_factory=dict)  # further JSON values for the task's own part of the page

    def to_dict(self) -> dict[str, Any]:
        """JSON values: what `.json` files, the API and pages hold."""
        return {
            "title": self.title,
            "subtitle": self.subtitle,
            "text": self.text,
            "answer": dict(self.answer),
            "truth": self.truth,
            "picture": None if self.picture is None else picture_to_dict(self.picture),
            "words": [{"text": word.text, "probability": word.probability} for word in self.words],
            "maps": [{**attention.to_dict(), "from": self.seen_from.get(attention.name)} for attention in self.maps],
            "first": self.first,
            **self.details,
        }


def picture_to_dict(pixels: NDArray[np.uint8]) -> dict[str, Any]:
    """Pixels (rows, columns, channels) as a page gets them."""
    rows, columns = pixels.shape[:2]
    return {"rows": rows, "columns": columns, "address": data_address(pixels)}


def data_address(pixels: NDArray[np.uint8]) -> str:
    """Pixels (H, W), (H, W, 1) or (H, W, 3) as a PNG in a data: address."""
    content = BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels).save(content, "PNG")
    return "data:image/png;base64," + b64encode(content.getvalue()).decode()
