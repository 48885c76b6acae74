"""What did each word of a caption look at? The caption is written first, then replayed while recording.

Axis legend: H heads, Q words and the end, K cells.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import torch

from saccade.attention import record_attention
from saccade.data.images.store import AnyImage
from saccade.data.text.tokenizer import BOS
from saccade.errors import UserError
from saccade.tasks.captions.options import CaptionOptions
from saccade.tasks.task import Example
from saccade.tasks.words import END, words_of
from saccade.tasks.writing import looks_at
from saccade.views.axes import Grid, Tokens
from saccade.views.maps import AttentionMap
from saccade.views.view import View

if TYPE_CHECKING:
    from saccade.tasks.captions.task import CaptionTask


@torch.no_grad()
def look(task: "CaptionTask", example: Example[AnyImage], target: str | None = None, only: str | None = None) -> View:
    """The attention over the image of every layer whose name matches, for a caption, by default the model's own."""
    image = example.content
    answer = next(task.answers([example], CaptionOptions())) if target is None else task.score_caption(image, target)
    hypothesis, pixels = answer.hypotheses[0], task.picture(image)
    words = Tokens((*task.vocabulary.words(hypothesis.tokens), END))
    grid = Grid(*task.stepper.encoder.grid)
    names = looks_at(task.model, "target", "cells")
    names = names if only is None else _matching(names, only)
    maps = []
    if names:
        with record_attention(task.model, names) as recorded:
            encoded = task.encoded(torch.tensor(pixels, device=task.device)[None])
            task.stepper.read(encoded, torch.tensor([[BOS, *hypothesis.tokens]], device=task.device))
        maps = [AttentionMap(name, recorded.joined(name)[0], words, grid, "words", "image") for name in recorded]
    return View(
        title=answer.text,
        maps=tuple(maps),
        text=answer.text,
        answer=answer.to_dict(),
        source=example.name or answer.source,
        truth=example.truth,
        picture=pixels.transpose(1, 2, 0),
        words=words_of(task.vocabulary, hypothesis),
        hint="" if names else NEVER_LOOKS,
        details={"log_prob": hypothesis.log_prob},
    )


NEVER_LOOKS = "this model never looks at the image while it writes: train show_attend_tell or caption_transformer"


def _matching(names: Sequence[str], only: str) -> list[str]:
    if not names:
        raise UserError(NEVER_LOOKS)
    matching = [name for name in names if fnmatchcase(name, only)]
    if not matching:
        raise UserError(f"no attention of this model matches {only!r}: it has {', '.join(names)}")
    return matching
